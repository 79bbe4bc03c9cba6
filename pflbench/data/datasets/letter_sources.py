"""The letters a to j as NIST, EMNIST and LEAF distribute them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pflbench.data.formats.idx import read_idx
from pflbench.data.source import check_labels
from pflbench.errors import PflbenchError

LETTERS = "abcdefghij"
"""Labels are their order."""
FIRST = 36
"""The letter a among the characters of LEAF and of EMNIST's "byclass": digits, capitals, small letters."""
CHARACTERS = 62
SIDE = 28
"""Pixels."""

Pool = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Images uint8 ["pool", 28, 28], white 255 and ink 0, and labels int64 ["pool"], in 0..9."""


class LetterSource:
    """One of the three sources."""

    def folder(self, root: Path) -> Path:
        """Where it lies."""
        raise NotImplementedError

    def missing(self, root: Path) -> list[Path]:
        """The files or folders that are not there."""
        raise NotImplementedError

    def fetch(self, root: Path) -> None:
        """Download it, if that is possible; raises whatever a download raises."""

    def by_hand(self, root: Path) -> str:
        """How to get it otherwise: half a sentence."""
        raise NotImplementedError

    def read(self, root: Path) -> Pool:
        """The letters of a source that is there. Raises `PflbenchError` naming a damaged file."""
        raise NotImplementedError


class NIST(LetterSource):
    """Special Database 19, 2nd edition: `by_class/<code>/train_<code>/*.png`, code being the letter's in hexadecimal.

    Images, 128x128, are shrunk with the anti-aliasing (Lanczos) filter, as LEAF and FedEC's script do.
    """

    def folder(self, root: Path) -> Path:
        return root / "by_class"

    def missing(self, root: Path) -> list[Path]:
        return [folder for folder in self._folders(root) if not folder.is_dir()]

    def by_hand(self, root: Path) -> str:
        return (
            "unpack https://s3.amazonaws.com/nist-srd/SD19/by_class.zip (NIST Special Database 19, 2nd edition) in "
            f"{root}"
        )

    def read(self, root: Path) -> Pool:
        paths = [sorted(folder.glob("*.png"), key=lambda path: path.name) for folder in self._folders(root)]
        images = np.empty((sum(map(len, paths)), SIDE, SIDE), dtype=np.uint8)
        for image, path in zip(images, (path for letter in paths for path in letter), strict=True):
            image[:] = shrunk(path)
        return images, np.repeat(np.arange(len(LETTERS), dtype=np.int64), list(map(len, paths)))

    def _folders(self, root: Path) -> list[Path]:
        codes = [f"{ord(letter):x}" for letter in LETTERS]
        return [self.folder(root) / code / f"train_{code}" for code in codes]


class EMNIST(LetterSource):
    """The training file of "byclass" in `EMNIST/raw`, where images lie transposed and light on black."""

    records = 697_932
    """Images of the file, all characters."""

    def folder(self, root: Path) -> Path:
        return root / "EMNIST" / "raw"

    def missing(self, root: Path) -> list[Path]:
        return [path for path in self._files(root) if not path.is_file()]

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import EMNIST as Download

        Download(root, split="byclass", download=True)

    def by_hand(self, root: Path) -> str:
        return (
            f"put these files of https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip in {self.folder(root)}, as they "
            "are (.gz) or uncompressed"
        )

    def read(self, root: Path) -> Pool:
        images_file, labels_file = self._files(root)
        characters = read_idx(labels_file, (self.records,)).astype(np.int64)
        check_labels(labels_file, characters, CHARACTERS)
        rows = _letters(characters)
        images = read_idx(images_file, (self.records, SIDE, SIDE))[rows]
        return 255 - images.transpose(0, 2, 1), characters[rows] - FIRST

    def _files(self, root: Path) -> list[Path]:
        names = ["emnist-byclass-train-images-idx3-ubyte", "emnist-byclass-train-labels-idx1-ubyte"]
        plain = [self.folder(root) / name for name in names]
        gzipped = [path.with_name(f"{path.name}.gz") for path in plain]
        return [b if b.is_file() and not a.is_file() else a for a, b in zip(plain, gzipped, strict=True)]


class LEAF(LetterSource):
    """LEAF's `femnist/data/train/*.json` and `femnist/data/test/*.json`: gray levels from 0 (ink) to 1, by writer."""

    def folder(self, root: Path) -> Path:
        return root / "femnist" / "data"

    def missing(self, root: Path) -> list[Path]:
        parts = [self.folder(root) / which for which in ("train", "test")]
        return [part / "*.json" for part in parts if not any(part.glob("*.json"))]

    def by_hand(self, root: Path) -> str:
        return (
            "run data/femnist/preprocess.sh of https://github.com/TalwalkarLab/leaf and put its data/train and "
            f"data/test in {self.folder(root)}"
        )

    def read(self, root: Path) -> Pool:
        paths = [
            path
            for which in ("train", "test")
            for path in sorted((self.folder(root) / which).glob("*.json"), key=lambda path: path.name)
        ]
        parts = [_read_json(path) for path in paths]
        return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


SOURCES: dict[str, LetterSource] = {"nist": NIST(), "emnist": EMNIST(), "leaf": LEAF()}


def shrunk(path: Path) -> npt.NDArray[np.uint8]:
    """An image file as the pool holds it, uint8 [28, 28]. Raises `PflbenchError` if it is no image, or damaged."""
    from PIL import Image

    try:
        with Image.open(path) as file:
            return np.asarray(file.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS))
    except Exception as error:  # Pillow's decoders raise anything
        raise PflbenchError(f"Cannot read {path} ({type(error).__name__}: {error}).") from error


def _read_json(path: Path) -> Pool:
    images, labels = [np.empty((0, SIDE, SIDE), dtype=np.uint8)], [np.empty(0, dtype=np.int64)]
    try:
        held = json.loads(path.read_bytes())
        for user in held["users"]:
            characters = np.array(held["user_data"][user]["y"], dtype=np.int64)
            check_labels(path, characters, CHARACTERS)
            levels = np.array(held["user_data"][user]["x"], dtype=np.float64).reshape(len(characters), SIDE, SIDE)
            if levels.size and not (levels.min() >= 0 and levels.max() <= 1):
                raise PflbenchError(f"{path} holds gray levels outside 0..1: it is not what its name says.")
            rows = _letters(characters)
            images.append((levels[rows] * 255).round().astype(np.uint8))
            labels.append(characters[rows] - FIRST)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PflbenchError(f"{path} is not a file of LEAF's FEMNIST ({type(error).__name__}: {error}).") from error
    return np.concatenate(images), np.concatenate(labels)


def _letters(characters: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.flatnonzero((characters >= FIRST) & (characters < FIRST + len(LETTERS)))
