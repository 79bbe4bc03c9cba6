"""The five sources of Digit-Five, each in the form in which its publisher distributes it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets import mnist
from pflbench.data.formats.idx import IdxFiles
from pflbench.data.source import check_labels
from pflbench.errors import DataMissing, PflbenchError

SIDE = 32
"""Pixels of an image in the pool."""

Which = Literal["train", "test"]


class DigitSplit(NamedTuple):
    """One split as it lies there.

    Attributes:
        images: Files, or pixels ["images", "height", "width"], or ["images", "height", "width", 3].
        labels: int64 ["images"], in 0..9.
    """

    images: Sequence[Path] | npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]


class DigitSource:
    """One of the five sources."""

    by_hand = ""
    """Where to get it, if it cannot be downloaded."""

    def missing(self, root: Path) -> list[str]:
        """What is not there, for a message."""
        raise NotImplementedError

    def official(self, root: Path) -> dict[Path, str]:
        """The files in use whose official MD5 is known, with it."""
        return {}

    def fetch(self, root: Path) -> None:
        """Download it. Raises `DataMissing` where there is nothing to download from, and whatever a download raises."""
        raise DataMissing(self.by_hand)

    def read(self, root: Path, which: Which) -> DigitSplit:
        """One split of a source that is there. Raises `PflbenchError` naming a damaged file."""
        raise NotImplementedError


class MNISTSource(DigitSource):
    """MNIST in torchvision's layout `MNIST/raw`."""

    _files = IdxFiles("MNIST", "digit-five", (mnist.TRAIN, mnist.TEST))

    def missing(self, root: Path) -> list[str]:
        return [str(path) for path in self._files.missing(root)]

    def official(self, root: Path) -> dict[Path, str]:
        return self._files.sums(root)

    def fetch(self, root: Path) -> None:
        self._files.fetch(root)

    def read(self, root: Path, which: Which) -> DigitSplit:
        split = self._files.splits[0 if which == "train" else 1]
        return DigitSplit(*replace(self._files, splits=(split,)).read(root))


class SVHNSource(DigitSource):
    """SVHN's cropped digits: `SVHN/train_32x32.mat` and `test_32x32.mat`, in which label 10 means 0."""

    _md5: ClassVar = {"train": "e26dedcc434d2e4c54c9b2d4a06d8373", "test": "eb5a983be6a315427106f1b164d9cef3"}

    def missing(self, root: Path) -> list[str]:
        return [str(path) for path in self.official(root) if not path.is_file()]

    def official(self, root: Path) -> dict[Path, str]:
        return {_svhn(root, which): md5 for which, md5 in self._md5.items()}

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import SVHN

        for which in self._md5:
            SVHN(root / "SVHN", split=which, download=True)

    def read(self, root: Path, which: Which) -> DigitSplit:
        from scipy.io import loadmat

        path = _svhn(root, which)
        try:
            held = loadmat(path)
            images = np.asarray(held["X"]).transpose(3, 0, 1, 2)
            labels = np.asarray(held["y"]).reshape(-1).astype(np.int64)
        except Exception as error:  # a damaged file raises anything
            raise PflbenchError(f"Cannot read {path} ({type(error).__name__}: {error}).") from error
        return _checked(path, images, np.where(labels == 10, 0, labels), (SIDE, SIDE, 3))


class USPSSource(DigitSource):
    """USPS, 16x16 gray: `USPS/usps.bz2` and `usps.t.bz2` as torchvision fetches them, or `USPS/usps.h5`.

    Gray levels are rounded to whole numbers from 0 to 255 in both forms. The latter needs h5py.
    """

    _md5: ClassVar = {
        "train": ("usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197"),
        "test": ("usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118"),
    }

    def missing(self, root: Path) -> list[str]:
        hdf = root / "USPS" / "usps.h5"
        texts = self._texts(root)
        if hdf.is_file() or all(path.is_file() for path in texts):
            return []
        return [f"{' and '.join(map(str, texts))} (or {hdf})"]

    def official(self, root: Path) -> dict[Path, str]:
        texts = self._texts(root)
        return texts if all(path.is_file() for path in texts) else {}

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import USPS

        for train in (True, False):
            USPS(root / "USPS", train=train, download=True)

    def read(self, root: Path, which: Which) -> DigitSplit:
        if self.official(root):
            path = root / "USPS" / self._md5[which][0]
            levels, labels = _libsvm(path)
        else:
            path = root / "USPS" / "usps.h5"
            levels, labels = _hdf(path, which)
        if levels.size and not (levels.min() >= 0 and levels.max() <= 1):
            raise PflbenchError(f"{path} holds gray levels outside its range: it is not what its name says.")
        return _checked(path, (levels * 255).round().astype(np.uint8).reshape(-1, 16, 16), labels, (16, 16))

    def _texts(self, root: Path) -> dict[Path, str]:
        return {root / "USPS" / name: md5 for name, md5 in self._md5.values()}


class MNISTMSource(DigitSource):
    """MNIST-M as its authors distribute it: PNG files in `mnist_m`, listed with their labels in two text files."""

    by_hand = "unpack mnist_m.tar.gz from http://yaroslav.ganin.net there"

    def missing(self, root: Path) -> list[str]:
        folder = root / "mnist_m"
        names = ["mnist_m_train_labels.txt", "mnist_m_test_labels.txt", "mnist_m_train", "mnist_m_test"]
        return [str(folder / name) for name in names if not (folder / name).exists()]

    def read(self, root: Path, which: Which) -> DigitSplit:
        path = root / "mnist_m" / f"mnist_m_{which}_labels.txt"
        try:
            lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            images = [path.parent / f"mnist_m_{which}" / name for name, _ in lines]
            labels = np.array([int(label) for _, label in lines], dtype=np.int64)
        except (OSError, ValueError) as error:
            raise PflbenchError(f"{path} is no list of files and labels ({error}).") from error
        check_labels(path, labels, 10)
        return DigitSplit(images, labels)


class SyntheticSource(DigitSource):
    """Synthetic digits on photos (Roy et al., 2018): `synthetic_digits/imgs_{train,valid}/<digit>/*.jpg`."""

    by_hand = "unpack https://www.kaggle.com/datasets/prasunroy/synthetic-digits there"  # which asks for an account

    def missing(self, root: Path) -> list[str]:
        folders = (_synthetic(root, "train"), _synthetic(root, "test"))
        return [str(folder) for folder in folders if not folder.is_dir()]

    def read(self, root: Path, which: Which) -> DigitSplit:
        folder = _synthetic(root, which)
        images, labels = [], []
        for digit in range(10):
            found = sorted((folder / str(digit)).glob("*.jpg"), key=lambda path: path.name)
            if not found:
                raise PflbenchError(f"There is no image *.jpg in {folder / str(digit)}: unpack the archive again.")
            images += found
            labels += [digit] * len(found)
        return DigitSplit(images, np.array(labels, dtype=np.int64))


SOURCES: dict[str, DigitSource] = {
    "mnist": MNISTSource(),
    "svhn": SVHNSource(),
    "usps": USPSSource(),
    "mnist-m": MNISTMSource(),
    "synthetic": SyntheticSource(),
}
"""In the order of their numbers."""


def as_color(image: Path | npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """An image as the pool holds it: RGB, resized bilinearly where it has another size.

    Args:
        image: A file, or pixels ["height", "width"] or ["height", "width", 3].

    Returns:
        uint8 [3, 32, 32].

    Raises:
        PflbenchError: The file is no image, or a damaged one.
    """
    from PIL import Image as Pillow

    try:
        opened = Pillow.open(image) if isinstance(image, Path) else Pillow.fromarray(image)
        with opened:
            color = opened.convert("RGB")
    except Exception as error:  # Pillow's decoders raise anything
        raise PflbenchError(f"Cannot read {image} ({type(error).__name__}: {error}).") from error
    if color.size != (SIDE, SIDE):
        color = color.resize((SIDE, SIDE), Pillow.Resampling.BILINEAR)
    return np.asarray(color).transpose(2, 0, 1)


def _checked(path: Path, images: npt.NDArray[Any], labels: npt.NDArray[np.int64], shape: tuple[int, ...]) -> DigitSplit:
    if images.dtype != np.uint8 or images.shape != (len(labels), *shape):
        raise PflbenchError(f"{path} holds {images.dtype} {images.shape} for {len(labels)} labels: fetch it again.")
    check_labels(path, labels, 10)
    return DigitSplit(images, labels)


def _libsvm(path: Path) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.int64]]:
    """Gray levels from -1 to 1 as levels in [0, 1], and labels from 1 to 10 as 0..9."""
    from sklearn.datasets import load_svmlight_file

    try:
        levels, labels = load_svmlight_file(str(path), n_features=256, zero_based=False)
        return (levels.toarray() + 1) / 2, labels.astype(np.int64) - 1
    except Exception as error:  # a damaged file raises anything
        raise PflbenchError(f"Cannot read {path} ({type(error).__name__}: {error}).") from error


def _hdf(path: Path, which: Which) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.int64]]:
    """Gray levels in [0, 1] and labels 0..9."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise PflbenchError(
            f"Reading {path} needs h5py: pip install h5py, or put usps.bz2 and usps.t.bz2 beside it."
        ) from error
    try:
        with h5py.File(path, "r") as held:
            levels, labels = np.asarray(held[which]["data"]), np.asarray(held[which]["target"])
        return levels.reshape(len(labels), 256), labels.astype(np.int64)
    except Exception as error:  # a damaged file raises anything
        raise PflbenchError(f"Cannot read {path} ({type(error).__name__}: {error}).") from error


def _svhn(root: Path, which: str) -> Path:
    return root / "SVHN" / f"{which}_32x32.mat"


def _synthetic(root: Path, which: Which) -> Path:
    return root / "synthetic_digits" / ("imgs_train" if which == "train" else "imgs_valid")
