"""The ten letters of FedEC's FEMNIST (FedRep's code), as NIST, EMNIST and LEAF distribute them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.femnist_forms import CHARACTERS, SIDE, leaf
from pflbench.data.datasets.mnist import read_idx
from pflbench.data.partitions.fedec import MOST
from pflbench.data.prepared import filled, prepared
from pflbench.data.published import Known, Published, opened
from pflbench.data.source import Source, check_labels
from pflbench.errors import DataMissing, PflbenchError, unknown

LETTERS = "abcdefghij"
"""Labels are their order."""
FIRST = 36
"""The letter a among the characters of LEAF and of EMNIST's "byclass": digits, capitals, small letters."""
_NIST = "nist: 28x28, lanczos: 1"
"""To be changed with `shrunk`."""

Pool = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Images uint8 ["pool", 28, 28], white 255 and ink 0, and labels int64 ["pool"], in 0..9."""


class LetterSource(Published):
    """One of the three sources; `by_hand` is half a sentence in which {root} is the data root."""

    folder: ClassVar[str]
    """Where it lies in the data root."""

    def read(self, root: Path) -> Pool:
        """The letters of a source that is there. Raises `PflbenchError` naming a damaged file."""
        raise NotImplementedError


class NIST(LetterSource):
    """Special Database 19, 2nd edition: `by_class/<code>/train_<code>/*.png`, code being the letter's in hexadecimal.

    Images, 128x128, are shrunk with the anti-aliasing (Lanczos) filter, as LEAF and FedEC's script do.
    """

    folder: ClassVar = "by_class"
    by_hand: ClassVar = (
        "unpack https://s3.amazonaws.com/nist-srd/SD19/by_class.zip (NIST Special Database 19, 2nd edition) in {root}"
    )

    def parts(self, root: Path) -> dict[Path, Known]:
        codes = [f"{ord(letter):x}" for letter in LETTERS]
        return {root / self.folder / code / f"train_{code}": Known() for code in codes}

    def read(self, root: Path) -> Pool:
        paths = [sorted(folder.glob("*.png"), key=lambda path: path.name) for folder in self.parts(root)]
        files = [path for letter in paths for path in letter]
        shape = (len(files), SIDE, SIDE)
        (images,) = prepared(_NIST, files, lambda: (filled(shape, map(shrunk, files)),))
        return images, np.repeat(np.arange(len(LETTERS), dtype=np.int64), list(map(len, paths)))


class EMNIST(LetterSource):
    """The training file of "byclass" in `EMNIST/raw`, where images lie transposed and light on black."""

    records: ClassVar = 697_932
    """Images of the file, all characters."""
    folder: ClassVar = "EMNIST/raw"
    by_hand: ClassVar = (
        "put these files of https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip in {root}/EMNIST/raw, as they are "
        "(.gz) or uncompressed"
    )

    def parts(self, root: Path) -> dict[Path, Known]:
        names = ["emnist-byclass-train-images-idx3-ubyte", "emnist-byclass-train-labels-idx1-ubyte"]
        plain = [root / self.folder / name for name in names]
        gzipped = [path.with_name(f"{path.name}.gz") for path in plain]
        return {b if b.is_file() and not a.is_file() else a: Known() for a, b in zip(plain, gzipped, strict=True)}

    def fetch(self, root: Path) -> None:
        from torchvision import datasets

        datasets.EMNIST(root, split="byclass", download=True)

    def read(self, root: Path) -> Pool:
        images_file, labels_file = self.parts(root)
        characters = read_idx(labels_file, (self.records,)).astype(np.int64)
        check_labels(labels_file, characters, CHARACTERS)
        rows = _letters(characters)
        images = read_idx(images_file, (self.records, SIDE, SIDE))[rows]
        return 255 - images.transpose(0, 2, 1), characters[rows] - FIRST


class LEAF(LetterSource):
    """LEAF's `femnist/data/train/*.json` and `femnist/data/test/*.json`: gray levels from 0 (ink) to 1, by writer."""

    folder: ClassVar = "femnist/data"
    by_hand: ClassVar = (
        "run data/femnist/preprocess.sh of https://github.com/TalwalkarLab/leaf and put its data/train and data/test "
        "in {root}/femnist/data"
    )

    def parts(self, root: Path) -> dict[Path, Known]:
        folders = [root / self.folder / which for which in ("train", "test")]
        paths = [sorted(folder.glob("*.json"), key=lambda path: path.name) or [folder / "*.json"] for folder in folders]
        return {path: Known() for some in paths for path in some}

    def read(self, root: Path) -> Pool:
        found = leaf(list(self.parts(root)))
        rows = _letters(found.characters)
        return found.images[rows], found.characters[rows] - FIRST


SOURCES: dict[str, LetterSource] = {"nist": NIST(), "emnist": EMNIST(), "leaf": LEAF()}


@dataclass(frozen=True)
class FEMNISTLetters:
    """Gray handwritten letters a to j, 28x28, dark on white: the part of FEMNIST that FedEC uses, no test split.

    Who holds what, and that at most 4000 images of a letter are used, is the partition's: letter-users.

    Attributes:
        source: "nist": NIST Special Database 19, 2nd edition, as FedEC's script takes it: of each letter the folder
            `by_class/<code>/train_<code>`, code being 61 to 6a. "emnist": the training file of EMNIST's "byclass", in
            torchvision's layout or still gzipped; its images are blurred and centered, so results are EMNIST's.
            "leaf": LEAF's `femnist/data/train/*.json` and `femnist/data/test/*.json`, all of both, which may be a
            sample only.
    """

    source: Literal["nist", "emnist", "leaf"] = "nist"

    seeded: ClassVar[bool] = False
    examples: ClassVar = MOST * len(LETTERS)
    shape: ClassVar = (1, SIDE, SIDE)
    classes: ClassVar = len(LETTERS)

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise unknown("source of femnist-letters", self.source, SOURCES)

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: files by name, LEAF's training files first.

        NIST's PNG files, tens of thousands, are `prepared`.

        Raises:
            DataMissing: Files are not there.
            PflbenchError: A file is damaged, or there is no image of a letter.
        """
        if self._source.missing(root):
            raise self._lacking(root)
        images, labels = self._source.read(root)
        for letter in np.array(list(LETTERS))[np.bincount(labels, minlength=self.classes) == 0].tolist():
            raise PflbenchError(f"{root / self._source.folder} holds no image of the letter {letter}.")
        return Source.of(images[:, None], labels, self.classes)

    def fetch(self, root: Path) -> None:
        """Download EMNIST with torchvision; NIST's and LEAF's files are left to the user.

        Raises:
            DataMissing: They are not there, or the download failed; the message says what to put where.
        """
        if not self._source.missing(root):
            return
        try:
            self._source.fetch(root)
        except Exception as error:  # torchvision lets through what urllib, zipfile and gzip raise
            raise self._lacking(root, f" (downloading failed: {error})") from error
        if self._source.missing(root):
            raise self._lacking(root)

    def status(self, root: Path) -> str:
        """One line about all three sources, this one first, from the presence of their files or folders."""
        lacking = {name: source.missing(root) for name, source in SOURCES.items()}
        order = [self.source, *(name for name in SOURCES if name != self.source)]
        told: dict[str, list[str]] = {}
        for name in order:
            where = _listed(lacking[name], root) if lacking[name] else SOURCES[name].folder
            told.setdefault("missing" if lacking[name] else "ready", []).append(f"{name} ({where})")
        return "; ".join(f"{state}: {', '.join(names)}" for state, names in told.items())

    @property
    def _source(self) -> LetterSource:
        return SOURCES[self.source]

    def _lacking(self, root: Path, why: str = "") -> DataMissing:
        others = [name for name in SOURCES if name != self.source]
        there = [name for name in others if not SOURCES[name].missing(root)]
        example = (there or others)[0]
        here = " and ".join(there)
        return DataMissing(
            f"femnist-letters lacks the files of {self.source}: {_listed(self._source.missing(root), root)} in {root}"
            f"{why}. To go on, {self._source.by_hand.format(root=root)}; or take another source"
            f"{f' ({here} is there)' if there else ''}: "
            f'dataset = {{ name = "femnist-letters", source = "{example}" }}, as columns of fedec-femnist do.'
        )


def _listed(paths: Sequence[str], root: Path) -> str:
    """A few paths, or the first and the last of many; what they begin with is said once."""
    first, *more = map(Path, paths)
    if not more:
        return first.relative_to(root).as_posix()
    last = more[-1].relative_to(os.path.commonpath(paths)).as_posix()
    return f"{first.relative_to(root).as_posix()}{' … ' if len(more) > 1 else ', '}{last}"


def shrunk(path: Path) -> npt.NDArray[np.uint8]:
    """An image file as the pool holds it, uint8 [28, 28]. Raises `PflbenchError` if it is no image, or damaged."""
    from PIL.Image import Resampling

    return np.asarray(opened(path, "L").resize((SIDE, SIDE), Resampling.LANCZOS))


def _letters(characters: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.flatnonzero((characters >= FIRST) & (characters < FIRST + len(LETTERS)))
