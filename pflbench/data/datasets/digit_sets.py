"""SVHN and USPS as datasets of their own, from the files that Digit-Five reads, in the form in which they come."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.digit_sources import DigitSource, SVHNSource, USPSSource, Which
from pflbench.data.prepared import filled, prepared
from pflbench.data.published import Downloaded, Known, warn_unofficial
from pflbench.data.source import Source
from pflbench.errors import PflbenchError, UsageError


class DigitSet(Downloaded):
    """Base of a dataset that is one of Digit-Five's sources, with its test split."""

    source: ClassVar[DigitSource]
    published: ClassVar[tuple[int, int]]
    """Training and test images, as published."""

    seeded: ClassVar[bool] = False
    classes: ClassVar = 10

    @property
    def examples(self) -> int:
        """Training images, as published."""
        return self.published[0]

    def parts(self, root: Path) -> dict[Path, Known]:
        """The files of the source."""
        parts = self.source.parts(root)
        images = self.published if len(parts) == 2 else [sum(self.published)]
        return {path: known._replace(images=n) for (path, known), n in zip(parts.items(), images, strict=True)}

    def missing(self, root: Path) -> list[str]:
        """Missing files of the set."""
        return self.source.missing(root)

    def download(self, root: Path) -> None:
        """Have torchvision download both splits."""
        self.source.fetch(root)

    def read(self, root: Path, which: Which) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """A split's images, uint8 ["images", "channels", "height", "width"], and labels. Raises `PflbenchError`."""
        images, labels = self.source.read(root, which)
        if not isinstance(images, np.ndarray) or not len(images):
            raise PflbenchError(f"{self.name}: its {which} split is empty.")
        return (images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)), labels

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, training rows first. Raises `DataMissing`, or `PflbenchError` if damaged.

        Warns once with `UnofficialFile` where files are not the official ones.
        """
        self.require(root)
        parts = self.parts(root)
        images, labels, test = prepared(f"{self!r} 1", list(parts), lambda: self._both(root))
        warn_unofficial(parts)
        return Source.of(images, labels, self.classes, test=int(test[0]))

    def _both(self, root: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Both splits, and the number of test images."""
        (train, a), (test, b) = self.read(root, "train"), self.read(root, "test")
        return np.concatenate([train, test]), np.concatenate([a, b]), np.array([len(b)])


@dataclass(frozen=True)
class SVHN(DigitSet):
    """73,257 + 26,032 digits of house numbers in color, 32x32: SVHN's cropped digits with their test split."""

    name: ClassVar = "SVHN"
    command: ClassVar = "svhn"
    by_hand: ClassVar = (
        "get train_32x32.mat (182 MB) and test_32x32.mat (64 MB) from http://ufldl.stanford.edu/housenumbers and put "
        "them there"
    )
    source: ClassVar = SVHNSource()
    published: ClassVar = (73_257, 26_032)
    shape: ClassVar = (3, 32, 32)


@dataclass(frozen=True)
class USPS(DigitSet):
    """7,291 + 2,007 handwritten gray digits from envelopes, 16x16: USPS with its test split.

    Attributes:
        size: Height and width to which images are resized, bilinearly; None: they stay 16x16.
    """

    size: int | None = None

    name: ClassVar = "USPS"
    command: ClassVar = "usps"
    by_hand: ClassVar = (
        "get usps.bz2 (6.6 MB) and usps.t.bz2 (1.8 MB) from "
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html and put them there"
    )
    source: ClassVar = USPSSource()
    published: ClassVar = (7_291, 2_007)

    def __post_init__(self) -> None:
        if self.size is not None and not 1 <= self.size <= 1024:
            raise UsageError(f"USPS: size must lie in 1..1024, not {self.size}.")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return 1, self.size or 16, self.size or 16

    def read(self, root: Path, which: Which) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """See `DigitSet`; resized if need be."""
        from PIL import Image

        images, labels = super().read(root, which)
        if self.size is None:
            return images, labels
        sides, bilinear = (self.size, self.size), Image.Resampling.BILINEAR
        resized = (np.asarray(Image.fromarray(image[0]).resize(sides, bilinear)) for image in images)
        return filled((len(images), *sides), resized)[:, None], labels
