"""The ten letters of FedEC's FEMNIST (FedRep's code), from NIST's files, or from what others made of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from pflbench.data.datasets.letter_sources import LETTERS, SIDE, SOURCES, LetterSource
from pflbench.data.partitions.letter_users import MOST
from pflbench.data.source import Source, content_hash
from pflbench.errors import DataMissing, PflbenchError, unknown


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

        NIST's PNG files, tens of thousands, are decoded and shrunk at every call: nothing is kept on disk.

        Raises:
            DataMissing: Files are not there.
            PflbenchError: A file is damaged, or there is no image of a letter.
        """
        import torch

        if self._source.missing(root):
            raise self._lacking(root)
        images, labels = self._source.read(root)
        for letter in np.array(list(LETTERS))[np.bincount(labels, minlength=self.classes) == 0].tolist():
            raise PflbenchError(f"{self._source.folder(root)} holds no image of the letter {letter}.")
        pool = torch.from_numpy(images).unsqueeze(1)
        return Source(pool, labels, None, self.classes, content_hash(images, labels))

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
            where = _listed(lacking[name] or [SOURCES[name].folder(root)], root)
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
            f"{why}. To go on, {self._source.by_hand(root)}; or take another source"
            f"{f' ({here} is there)' if there else ''}: "
            f'dataset = {{ name = "femnist-letters", source = "{example}" }}, as columns of fedec-femnist do.'
        )


def _listed(paths: Sequence[Path], root: Path) -> str:
    """A few paths, or the first and the last of many; what they begin with is said once."""
    first, *more = paths
    if not more:
        return first.relative_to(root).as_posix()
    last = more[-1].relative_to(os.path.commonpath(paths)).as_posix()
    return f"{first.relative_to(root).as_posix()}{' … ' if len(more) > 1 else ', '}{last}"
