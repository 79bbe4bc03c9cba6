"""FEMNIST by writer (CAFeMe, Table 2; LEAF), and the ten letters of it that FedEC uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.mnist import EMNIST
from pflbench.data.partitions.fedec import MOST
from pflbench.data.pixels import decode_all
from pflbench.data.prepared import prepared
from pflbench.data.published import Published, file_errors
from pflbench.data.source import Normalization, Source
from pflbench.hyper import hyper
from pflbench.rng import stream

CHARACTERS = 62
"""Digits, capitals, small letters, in this order, in both forms."""
SIDE = 28
"""Pixels."""
TRAIN = 0.9
"""Share of a writer's images in LEAF's train part."""

Piece = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], Sequence[str]]
"""Some images [n, 28, 28], the character of each, and its writer."""


class Samples(NamedTuple):
    """Images uint8 ["images", 28, 28], characters and writers int64 ["images"], number of those for training.

    Writers are numbered in the order of their names; images for training come first.
    """

    images: npt.NDArray[np.uint8]
    characters: npt.NDArray[np.int64]
    writers: npt.NDArray[np.int64]
    training: npt.NDArray[np.int64]


def leaf(train: Sequence[Path], test: Sequence[Path] = ()) -> Samples:
    """LEAF's files of the training part and of the rest."""

    def make() -> Samples:
        pieces, others = ([piece for path in paths for piece in _read_json(path)] for paths in (train, test))
        images, characters, writers = _joined([*pieces, *others])
        numbers = np.unique(writers, return_inverse=True)[1].astype(np.int64)
        return Samples(images, characters, numbers, np.array(sum(len(images) for images, _, _ in pieces)))

    return Samples(*prepared("femnist, leaf: 3", [*train, *test], make))


def hugging_face(files: Sequence[Path]) -> Samples:
    """The Parquet files of flwrlabs/femnist: the training part, then the rest, each in the order of the files.

    As there is no split, 90 % of each writer's images, as many as LEAF would take, are drawn for training; the draw
    depends on the writer's name and number of images alone. Of a writer with one image, it is that one.
    """

    def make() -> Samples:
        images, characters, writers = _joined([piece for path in files for piece in _read_parquet(path)])
        names, numbers, counts = np.unique(writers, return_inverse=True, return_counts=True)
        chosen = np.zeros(len(writers), dtype=np.bool_)
        by_writer = np.split(np.argsort(numbers, kind="stable"), np.cumsum(counts)[:-1])
        for name, rows in zip(names.tolist(), by_writer, strict=True):
            drawn = stream(0, "femnist", "train", name).permutation(len(rows))
            chosen[rows[drawn[: max(1, int(TRAIN * len(rows)))]]] = True
        order = np.argsort(~chosen, kind="stable")
        return Samples(images[order], characters[order], numbers[order].astype(np.int64), np.array(chosen.sum()))

    return Samples(*prepared("femnist, hugging-face: 3", files, make))


def _joined(pieces: Sequence[Piece]) -> tuple[npt.NDArray[Any], ...]:
    return tuple(np.concatenate(arrays) for arrays in zip(*pieces, strict=True))


def _read_json(path: Path) -> Iterator[Piece]:
    with file_errors(f"{path} is not a file of LEAF's FEMNIST"):
        content = json.loads(path.read_bytes())
        for user in content["users"]:
            data = content["user_data"][user]
            characters = np.asarray(data["y"]).astype(np.int64, casting="safe")
            levels = np.asarray(data["x"], dtype=np.float64)
            if not (levels.min() >= 0 and levels.max() <= 1):
                raise ValueError(f"writer {user!r} has gray levels outside 0..1")
            images = (levels * 255).round().astype(np.uint8).reshape(len(characters), SIDE, SIDE)
            yield images, characters, [str(user)] * len(images)


def _read_parquet(path: Path) -> Iterator[Piece]:
    from pyarrow.parquet import ParquetFile

    with file_errors(f"{path} is not a Parquet file of flwrlabs/femnist"), ParquetFile(path) as file:
        for batch in file.iter_batches(4096, columns=["image", "writer_id", "character"]):
            rows = batch.to_pydict()
            images = decode_all([image["bytes"] for image in rows["image"]], (1, SIDE, SIDE))
            yield images[:, 0], np.asarray(rows["character"]).astype(np.int64, casting="safe"), rows["writer_id"]


def _white(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Images with white paper, 255, and black ink, uint8 [*shape], whichever of both they have: corners are paper."""
    return 255 - images if np.median(images[:, :: SIDE - 1, :: SIDE - 1]) < 128 else images


def _files(folder: Path, suffix: str) -> list[Path]:
    """Files of a folder by name, or the pattern of their names."""
    return sorted(folder.glob(suffix), key=lambda path: path.name) or [folder / suffix]


LEAF = (
    "in data/femnist of https://github.com/TalwalkarLab/leaf run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample (it "
    "downloads NIST's images and writes 3.5 GB of JSON) and put its data/train and data/test in {root}/femnist/data"
)


@dataclass(frozen=True)
class FEMNIST(Published):
    """Gray handwritten characters of 62 classes, 28x28, by writer: FEMNIST's training part, ink 1 and paper -1.

    Classes are LEAF's: digits, capitals, small letters. Source "leaf": the files `femnist/data/train/*.json` that its
    scripts write, which may be a sample of the writers only; their test part is `femnist/data/test/*.json`.
    "hugging-face": the Parquet files of flwrlabs/femnist in `flwrlabs-femnist/data`; 90 % of each writer's images, the
    same for every seed, are its training part.
    """

    source: Literal["leaf", "hugging-face"] = hyper("leaf", "Publisher of the files.")
    test: bool | None = hyper(None, "End the pool with the rest of each writer's images.")

    name: ClassVar = "femnist"
    examples: ClassVar = 100 * 204
    """Of 100 writers, with LEAF's mean: a table's clients are as many, and estimates go by what clients hold."""
    shape: ClassVar = (1, SIDE, SIDE)
    classes: ClassVar = CHARACTERS

    @property
    def by_hand(self) -> str:  # type: ignore[override]
        """See `Published`."""
        hub = "hf download flwrlabs/femnist --repo-type dataset --local-dir {root}/flwrlabs-femnist (201 MB)"
        way, other = (LEAF, "hugging-face") if self.source == "leaf" else (hub, "leaf")
        return f'{way}; or take the other form, dataset = {{{{ name = "femnist", source = "{other}" }}}}'

    def parts(self, root: Path) -> list[Path]:
        """The files, training part first, or the pattern of their names."""
        if self.source == "hugging-face":
            return _files(root / "flwrlabs-femnist/data", "*.parquet")
        parts = ("train", "test") if self.test else ("train",)
        return [path for part in parts for path in _files(root / "femnist/data" / part, "*.json")]

    def files(self, root: Path) -> list[Path]:
        """Files that are read: part of a run's identity, as LEAF's scripts draw writers and splits with each run."""
        return self.parts(root)

    def read(self, root: Path, seed: int) -> Source:
        """The same pool for every seed; `kind` is the writer, numbered by sorted ids."""
        files = self.parts(root)
        training = len(_files(root / "femnist/data/train", "*.json"))
        samples = leaf(files[:training], files[training:]) if self.source == "leaf" else hugging_face(files)
        end = len(samples.images) if self.test else int(samples.training)
        images, labels, kind = _white(samples.images[:end]), samples.characters[:end], samples.writers[:end]
        # 1 - 2x: paper, 1 in the files, is -1, and ink 1 (CAFeMe's code).
        normalization = Normalization((0.5,), (-0.5,))
        test = end - int(samples.training)
        return Source.of(images[:, None], labels, self.classes, kind, test=test, normalization=normalization)


LETTERS = "abcdefghij"
"""Labels are their order."""
FIRST = 36
"""The letter a among the characters of LEAF and of EMNIST's "byclass": digits, capitals, small letters."""
_EMNIST = EMNIST("byclass")


@dataclass(frozen=True)
class FEMNISTLetters(Published):
    """Gray handwritten letters a to j, 28x28, dark on white: the part of FEMNIST that FedEC uses, no test split.

    The partition letter-users divides them, and deals at most 4000 images of a letter. Source "nist": Special Database
    19, 2nd edition, as FedEC's script takes it: of each letter `by_class/<code>/train_<code>/*.png`, code being 61 to
    6a, shrunk from 128x128 with the anti-aliasing (Lanczos) filter. "emnist": the training file of EMNIST's "byclass";
    its images are blurred and centered. "leaf": all of LEAF's `femnist/data`, which may be a sample only.
    """

    source: Literal["nist", "emnist", "leaf"] = hyper("nist", "Publisher of the files.")

    name: ClassVar = "femnist-letters"
    examples: ClassVar = MOST * len(LETTERS)
    shape: ClassVar = (1, SIDE, SIDE)
    classes: ClassVar = len(LETTERS)

    @property
    def by_hand(self) -> str:  # type: ignore[override]
        """See `Published`."""
        nist = "unpack https://s3.amazonaws.com/nist-srd/SD19/by_class.zip (NIST Special Database 19) in {root}"
        return {"nist": nist, "emnist": _EMNIST.by_hand, "leaf": LEAF}[self.source] + "; or set another source"

    @property
    def downloads(self) -> Any:  # type: ignore[override]
        """Those of EMNIST; other sources have none."""
        return _EMNIST.downloads if self.source == "emnist" else ()

    def parts(self, root: Path) -> list[Path]:
        """Files or folders of the source."""
        if self.source == "nist":
            codes = [f"{ord(letter):x}" for letter in LETTERS]
            return [root / "by_class" / code / f"train_{code}" for code in codes]
        if self.source == "emnist":
            return _EMNIST.parts(root)
        return [path for part in ("train", "test") for path in _files(root / "femnist/data" / part, "*.json")]

    def read(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: files by name, LEAF's training files first."""
        if self.source == "nist":
            several = [_files(folder, "*.png") for folder in self.parts(root)]
            paths = [path for letter in several for path in letter]
            (images,) = prepared("nist: 3", paths, lambda: (decode_all(paths, self.shape, sharp=True),))
            labels = np.repeat(np.arange(len(LETTERS), dtype=np.int64), list(map(len, several)))
            return Source.of(images, labels, self.classes)
        if self.source == "emnist":
            transposed, characters, _ = _EMNIST.pool(root, "train")
            pixels = 255 - transposed[:, 0].transpose(0, 2, 1)
        else:
            pixels, characters, _, _ = leaf(self.parts(root))
        rows = np.flatnonzero((characters >= FIRST) & (characters < FIRST + len(LETTERS)))
        labels = characters[rows] - FIRST
        if len(np.unique(labels)) < self.classes:
            raise ValueError(f"there are images of {len(np.unique(labels))} of {self.classes} letters")
        return Source.of(pixels[rows][:, None], labels, self.classes)
