"""The five sources of Digit-Five, each in the form in which its publisher distributes it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.mnist import MNIST, TEST, TRAIN
from pflbench.data.published import Known, Published, opened, reading
from pflbench.data.source import check_labels
from pflbench.errors import PflbenchError

SIDE = 32
"""Pixels of an image in the pool."""

Which = Literal["train", "test"]


class DigitSplit(NamedTuple):
    """One split as it lies there; labels int64 ["images"], in 0..9."""

    images: Sequence[Path] | npt.NDArray[np.uint8]
    """Files, or pixels ["images", "height", "width"], or ["images", "height", "width", 3]."""
    labels: npt.NDArray[np.int64]


class DigitSource(Published):
    """One of the five sources."""

    def read(self, root: Path, which: Which) -> DigitSplit:
        """One split of a source that is there. Raises `PflbenchError` naming a damaged file."""
        raise NotImplementedError


class MNISTSource(MNIST, DigitSource):
    """MNIST in torchvision's layout `MNIST/raw`."""

    splits: ClassVar = (TRAIN, TEST)

    def read(self, root: Path, which: Which) -> DigitSplit:
        return DigitSplit(*self.splits[0 if which == "train" else 1].read(self.folder(root)))


class SVHNSource(DigitSource):
    """SVHN's cropped digits: `SVHN/train_32x32.mat` and `test_32x32.mat`, in which label 10 means 0."""

    _md5: ClassVar = {"train": "e26dedcc434d2e4c54c9b2d4a06d8373", "test": "eb5a983be6a315427106f1b164d9cef3"}

    def parts(self, root: Path) -> dict[Path, Known]:
        return {root / "SVHN" / f"{which}_32x32.mat": Known(md5) for which, md5 in self._md5.items()}

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import SVHN

        for which in self._md5:
            SVHN(root / "SVHN", split=which, download=True)

    def read(self, root: Path, which: Which) -> DigitSplit:
        from scipy.io import loadmat

        path = root / "SVHN" / f"{which}_32x32.mat"
        with reading(f"Cannot read {path}"):
            held = loadmat(path)
            images = np.asarray(held["X"]).transpose(3, 0, 1, 2)
            labels = np.asarray(held["y"]).reshape(-1).astype(np.int64)
        return _checked(path, images, np.where(labels == 10, 0, labels), (SIDE, SIDE, 3))


class USPSSource(DigitSource):
    """USPS, 16x16 gray: `USPS/usps.bz2` and `usps.t.bz2` as torchvision fetches them, or `USPS/usps.h5`.

    Gray levels are rounded to whole numbers from 0 to 255 in both forms. The latter needs h5py.
    """

    _md5: ClassVar = {"usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197", "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118"}

    def parts(self, root: Path) -> dict[Path, Known]:
        texts = {root / "USPS" / name: Known(md5) for name, md5 in self._md5.items()}
        hdf = root / "USPS" / "usps.h5"
        return {hdf: Known()} if hdf.is_file() and not all(path.is_file() for path in texts) else texts

    def missing(self, root: Path) -> list[str]:
        texts = " and ".join(map(str, self.parts(root)))
        return [f"{texts} (or {root / 'USPS' / 'usps.h5'})"] if super().missing(root) else []

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import USPS

        for train in (True, False):
            USPS(root / "USPS", train=train, download=True)

    def read(self, root: Path, which: Which) -> DigitSplit:
        paths = list(self.parts(root))
        path = paths[0 if which == "train" else -1]
        if len(paths) > 1:
            from sklearn.datasets import load_svmlight_file

            with reading(f"Cannot read {path}"):  # gray levels from -1 to 1, labels from 1 to 10
                found, names = load_svmlight_file(str(path), n_features=256, zero_based=False)
                levels, labels = (found.toarray() + 1) / 2, names.astype(np.int64) - 1
        else:
            levels, labels = _hdf(path, which)
        if levels.size and not (levels.min() >= 0 and levels.max() <= 1):
            raise PflbenchError(f"{path} holds gray levels outside its range: it is not what its name says.")
        return _checked(path, (levels * 255).round().astype(np.uint8).reshape(-1, 16, 16), labels, (16, 16))


class MNISTMSource(DigitSource):
    """MNIST-M as its authors distribute it: PNG files in `mnist_m`, listed with their labels in two text files."""

    by_hand: ClassVar = "unpack mnist_m.tar.gz from http://yaroslav.ganin.net there"

    def parts(self, root: Path) -> dict[Path, Known]:
        names = ["mnist_m_train_labels.txt", "mnist_m_test_labels.txt", "mnist_m_train", "mnist_m_test"]
        return {root / "mnist_m" / name: Known() for name in names}

    def read(self, root: Path, which: Which) -> DigitSplit:
        path = root / "mnist_m" / f"mnist_m_{which}_labels.txt"
        with reading(f"{path} is no list of files and labels"):
            lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            images = [path.parent / f"mnist_m_{which}" / name for name, _ in lines]
            labels = np.array([int(label) for _, label in lines], dtype=np.int64)
        check_labels(path, labels, 10)
        return DigitSplit(images, labels)


class SyntheticSource(DigitSource):
    """Synthetic digits on photos (Roy et al., 2018): `synthetic_digits/imgs_{train,valid}/<digit>/*.jpg`."""

    by_hand: ClassVar = "unpack https://www.kaggle.com/datasets/prasunroy/synthetic-digits there"  # asks for an account

    def parts(self, root: Path) -> dict[Path, Known]:
        return {root / "synthetic_digits" / name: Known() for name in ("imgs_train", "imgs_valid")}

    def read(self, root: Path, which: Which) -> DigitSplit:
        folder = list(self.parts(root))[0 if which == "train" else 1]
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
    """An image as the pool holds it, uint8 [3, 32, 32]: RGB, resized bilinearly if need be. See `opened`."""
    from PIL.Image import Resampling

    color = opened(image, "RGB")
    if color.size != (SIDE, SIDE):
        color = color.resize((SIDE, SIDE), Resampling.BILINEAR)
    return np.asarray(color).transpose(2, 0, 1)


def _checked(path: Path, images: npt.NDArray[Any], labels: npt.NDArray[np.int64], shape: tuple[int, ...]) -> DigitSplit:
    if images.dtype != np.uint8 or images.shape != (len(labels), *shape):
        raise PflbenchError(f"{path} holds {images.dtype} {images.shape} for {len(labels)} labels: fetch it again.")
    check_labels(path, labels, 10)
    return DigitSplit(images, labels)


def _hdf(path: Path, which: Which) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.int64]]:
    """Gray levels in [0, 1] and labels 0..9."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise PflbenchError(
            f"Reading {path} needs h5py: pip install h5py, or put usps.bz2 and usps.t.bz2 beside it."
        ) from error
    with reading(f"Cannot read {path}"), h5py.File(path, "r") as held:
        levels, labels = np.asarray(held[which]["data"]), np.asarray(held[which]["target"])
        return levels.reshape(len(labels), 256), labels.astype(np.int64)
