"""EMNIST: handwritten digits and letters, in any of its six splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.mnist import read_idx
from pflbench.data.prepared import prepared
from pflbench.data.published import Downloaded, Known
from pflbench.data.source import Source, check_labels
from pflbench.errors import unknown


class Counts(NamedTuple):
    """Training and test images of a split, and its classes."""

    train: int
    test: int
    classes: int


SPLITS = {
    "byclass": Counts(697_932, 116_323, 62),
    "bymerge": Counts(697_932, 116_323, 47),
    "balanced": Counts(112_800, 18_800, 47),
    "letters": Counts(124_800, 20_800, 26),
    "digits": Counts(240_000, 40_000, 10),
    "mnist": Counts(60_000, 10_000, 10),
}


@dataclass(frozen=True)
class EMNIST(Downloaded):
    """Handwritten digits and letters, 28x28, light on black: a split of EMNIST with its test part (arXiv:1702.05373).

    Labels are those of the files, but for "letters", where they are one less: a is 0. Images, which lie transposed in
    the files, are upright.

    Attributes:
        split: "byclass": 62 classes, digits, capitals, small letters. "bymerge": 47, as small letters that look like
            their capitals are one class with them. "balanced": these 47, equally many of each. "letters": 26, capitals
            and small letters together. "digits" and "mnist": 10.
    """

    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "balanced"

    name: ClassVar = "EMNIST"
    command: ClassVar = "emnist"
    by_hand: ClassVar = (
        "unpack https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip (562 MB) and put these files of it there, as they "
        "are (.gz) or uncompressed"
    )

    seeded: ClassVar[bool] = False
    shape: ClassVar = (1, 28, 28)

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise unknown("split of emnist", self.split, SPLITS)

    @property
    def classes(self) -> int:
        """Those of the split."""
        return SPLITS[self.split].classes

    @property
    def examples(self) -> int:
        """Training images of the split."""
        return SPLITS[self.split].train

    def parts(self, root: Path) -> dict[Path, Known]:
        """Images and labels of both parts, each gzipped where it is not there uncompressed."""
        found: dict[Path, Known] = {}
        for which, images in zip(("train", "test"), SPLITS[self.split][:2], strict=True):
            for what, known in (("images-idx3", Known(images=images)), ("labels-idx1", Known())):
                plain = root / "EMNIST" / "raw" / f"emnist-{self.split}-{which}-{what}-ubyte"
                gzipped = plain.with_name(f"{plain.name}.gz")
                found[gzipped if gzipped.is_file() and not plain.is_file() else plain] = known
        return found

    def download(self, root: Path) -> None:
        """Have torchvision download the archive, which has all splits."""
        from torchvision import datasets

        datasets.EMNIST(root, split=self.split, download=True)

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, training rows first. Raises `DataMissing`, or `PflbenchError` if damaged."""
        self.require(root)
        files = list(self.parts(root))
        images, labels = prepared(f"{self!r} 1", files, lambda: self._read(files))
        return Source.of(images, labels, self.classes, test=SPLITS[self.split].test)

    def _read(self, files: list[Path]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Both parts, uint8 ["pool", 1, 28, 28], and their labels."""
        counts, least = SPLITS[self.split], 1 if self.split == "letters" else 0
        images, labels = [], []
        for rows, pixels, names in zip(counts[:2], files[::2], files[1::2], strict=True):
            labels.append(read_idx(names, (rows,)).astype(np.int64) - least)
            check_labels(names, labels[-1], counts.classes)
            images.append(read_idx(pixels, (rows, 28, 28)))
        return np.concatenate(images).transpose(0, 2, 1)[:, None], np.concatenate(labels)
