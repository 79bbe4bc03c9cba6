"""Digit-Five (pFedVEM, Table 7): handwritten, printed and drawn digits from five datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.mnist import MNIST
from pflbench.data.pixels import decode_all, images_by_class
from pflbench.data.published import Published, SeveralSources, Torchvision
from pflbench.data.source import HALF, Normalization, Source
from pflbench.hyper import hyper
from pflbench.rng import stream

SIDE = 32
"""Pixels of an image of Digit-Five."""
MOST = {"train": 25_000, "test": 9_000}
"""Most images of a source that are taken; the paper has no number."""
PUBLISHED = {"mnist": 60_000, "svhn": 73_257, "usps": 7_291, "mnist-m": 59_001, "synthetic": 10_000}
"""Training images of the sources as published; the pool has what the files hold."""

Split = tuple[Sequence[Path] | npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Image files, or pixels ["images", "height", "width"] and perhaps 3 colors, and labels int64 ["images"], in 0..9."""


class DigitSource(Published):
    """One of the five sources."""

    command: ClassVar = "digit-five"

    def split(self, root: Path, which: str) -> Split:
        """One split of a source whose files are present."""
        raise NotImplementedError


class TorchvisionDigits(Torchvision, DigitSource):
    """Source that torchvision reads."""

    def __init__(self, name: str, needs: Sequence[str], calls: Sequence[tuple[str, str, Mapping[str, object]]]) -> None:
        self.name, self.needs, self.downloads = name, needs, calls  # type: ignore[misc]

    def split(self, root: Path, which: str) -> Split:
        images, labels = self.read_split(root, which)
        return images[:, 0] if images.shape[1] == 1 else images.transpose(0, 2, 3, 1), labels


class MNISTM(DigitSource):
    """MNIST-M as its authors distribute it: PNG files in `mnist_m`, listed with their labels in two text files."""

    name: ClassVar = "mnist-m"
    by_hand: ClassVar = "unpack mnist_m.tar.gz from http://yaroslav.ganin.net in {root}"
    needs: ClassVar = tuple(f"mnist_m/mnist_m_{n}" for n in ("train_labels.txt", "test_labels.txt", "train", "test"))

    def split(self, root: Path, which: str) -> Split:
        lists = (root / f"mnist_m/mnist_m_{which}_labels.txt").read_text(encoding="utf-8-sig").split()
        return [root / f"mnist_m/mnist_m_{which}" / name for name in lists[::2]], np.array(lists[1::2], dtype=np.int64)


class SyntheticDigits(DigitSource):
    """Synthetic digits on photos (Roy et al., 2018): `synthetic_digits/imgs_{train,valid}/<digit>/*.jpg`."""

    name: ClassVar = "synthetic"
    by_hand: ClassVar = "unpack https://www.kaggle.com/datasets/prasunroy/synthetic-digits in {root}"  # an account
    needs: ClassVar = ("synthetic_digits/imgs_train", "synthetic_digits/imgs_valid")

    def split(self, root: Path, which: str) -> Split:
        folder = self.parts(root)[0 if which == "train" else 1]
        listed = [(path, int(digit)) for digit, paths in images_by_class(folder).items() for path in paths]
        return [path for path, _ in listed], np.array([digit for _, digit in listed])


def _calls(name: str, option: str, *values: object) -> list[tuple[str, str, Mapping[str, object]]]:
    return [(name, name, {option: value}) for value in values]


SOURCES: dict[str, DigitSource] = {
    "mnist": TorchvisionDigits("mnist", MNIST.needs, MNIST.downloads),
    "svhn": TorchvisionDigits(
        "svhn", ["SVHN/train_32x32.mat", "SVHN/test_32x32.mat"], _calls("SVHN", "split", "train", "test")
    ),
    "usps": TorchvisionDigits("usps", ["USPS/usps.bz2", "USPS/usps.t.bz2"], _calls("USPS", "train", True, False)),
    "mnist-m": MNISTM(),
    "synthetic": SyntheticDigits(),
}
"""In the order of their numbers."""


@dataclass(frozen=True)
class DigitFive(SeveralSources[DigitSource]):
    """92,291 + 31,007 color digits from five sources, 32x32: MNIST, SVHN, USPS, MNIST-M, Synthetic Digits."""

    sources: str | None = hyper(None, "Sources in use, separated by commas; none: all five.")

    name: ClassVar = "digit-five"
    shape: ClassVar = (3, SIDE, SIDE)
    classes: ClassVar = 10
    known: ClassVar = SOURCES
    usual: ClassVar = tuple(SOURCES)

    def __post_init__(self) -> None:
        _ = self.chosen  # checks the option

    @property
    def examples(self) -> int:
        """Size of the training split if the files are those that were published."""
        return sum(min(PUBLISHED[name], MOST["train"]) for name in self.chosen)

    def read(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: the training rows of all sources, then their test rows.

        `kind` is 10 * source + digit, sources numbered in the order above, whichever are chosen. `hash` covers
        images and kinds.
        """
        chosen = self.chosen.items()
        parts = [_part(root, name, source, which) for which in ("train", "test") for name, source in chosen]
        images, kind = (np.concatenate(some) for some in zip(*parts, strict=True))
        test = sum(len(kind) for _, kind in parts[len(chosen) :])
        normalization = Normalization(HALF.mean * 3, HALF.std * 3)  # the paper names none
        return Source.of(images, kind % 10, self.classes, kind, hashed=kind, test=test, normalization=normalization)


def _part(
    root: Path, name: str, source: DigitSource, which: str
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images that are taken of one split of one source, uint8 ["images", 3, 32, 32], and their kinds."""
    images, labels = source.split(root, which)
    rows = stream(0, "digit-five", name, which).permutation(len(labels))[: MOST[which]]
    pixels = decode_all([images[row] for row in rows], (3, SIDE, SIDE))
    return pixels, 10 * list(SOURCES).index(name) + labels[rows]
