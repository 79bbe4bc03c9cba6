"""Digit-Five (pFedVEM, Table 7): handwritten, printed and drawn digits from five datasets."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.mnist import MNIST, TEST, TRAIN
from pflbench.data.pixels import Picture, decode_all
from pflbench.data.published import (
    Download,
    Expected,
    Published,
    SeveralSources,
    file_errors,
    warn_unofficial,
)
from pflbench.data.source import Normalization, Source, check_labels
from pflbench.errors import DataMissing, PflbenchError
from pflbench.rng import stream

SIDE = 32
"""Pixels of an image of Digit-Five."""
MOST = {"train": 25_000, "test": 9_000}
"""Most images of a source that are taken; the paper has no number."""
PUBLISHED = {"mnist": 60_000, "svhn": 73_257, "usps": 7_291, "mnist-m": 59_001, "synthetic": 10_000}
"""Training images of the sources as published; the pool has what the files hold."""
NORMALIZATION = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
"""The paper names none."""

Which = Literal["train", "test"]
WHICH: tuple[Which, Which] = ("train", "test")


class DigitSplit(NamedTuple):
    """One split as it lies there; labels int64 ["images"], in 0..9."""

    images: Sequence[Path] | npt.NDArray[np.uint8]
    """Files, or pixels ["images", "height", "width"], or ["images", "height", "width", 3]."""
    labels: npt.NDArray[np.int64]


class DigitSource(Published):
    """One of the five sources."""

    def split(self, root: Path, which: Which) -> DigitSplit:
        """One split of a source that is there. Raises `PflbenchError` naming a damaged file."""
        raise NotImplementedError


class MNISTSource(MNIST, DigitSource):
    """MNIST in torchvision's layout `MNIST/raw`."""

    splits: ClassVar = (TRAIN, TEST)

    def split(self, root: Path, which: Which) -> DigitSplit:
        images, labels = self.read(root, self.splits[:1] if which == "train" else self.splits[1:])
        return DigitSplit(images[:, 0], labels)


class SVHNSource(DigitSource):
    """SVHN's cropped digits in color: `SVHN/train_32x32.mat` and `test_32x32.mat`, in which label 10 means 0."""

    downloads: ClassVar = tuple(Download("SVHN", "SVHN", {"split": which}) for which in WHICH)
    by_hand: ClassVar = (
        "get train_32x32.mat (182 MB) and test_32x32.mat (64 MB) from http://ufldl.stanford.edu/housenumbers and put "
        "them there"
    )
    needs: ClassVar = {
        "SVHN/train_32x32.mat": Expected("e26dedcc434d2e4c54c9b2d4a06d8373"),
        "SVHN/test_32x32.mat": Expected("eb5a983be6a315427106f1b164d9cef3"),
    }

    def split(self, root: Path, which: Which) -> DigitSplit:
        from scipy.io import loadmat

        path = root / "SVHN" / f"{which}_32x32.mat"
        with file_errors(f"Cannot read {path}"):
            arrays = loadmat(path)
            images = np.asarray(arrays["X"]).transpose(3, 0, 1, 2)
            labels = np.asarray(arrays["y"]).reshape(-1).astype(np.int64)
        return _checked(path, images, np.where(labels == 10, 0, labels), (SIDE, SIDE, 3))


class USPSSource(DigitSource):
    """USPS, gray, 16x16: `USPS/usps.bz2` and `usps.t.bz2` as torchvision fetches them, or `USPS/usps.h5` (h5py).

    Gray levels are rounded to whole numbers from 0 to 255 in both forms.
    """

    downloads: ClassVar = tuple(Download("USPS", "USPS", {"train": train}) for train in (True, False))
    by_hand: ClassVar = (
        "get usps.bz2 (6.6 MB) and usps.t.bz2 (1.8 MB) from "
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html and put them there"
    )
    needs: ClassVar = {
        "USPS/usps.bz2": Expected("ec16c51db3855ca6c91edd34d0e9b197"),
        "USPS/usps.t.bz2": Expected("8ea070ee2aca1ac39742fdd1ef5ed118"),
    }

    def parts(self, root: Path) -> Mapping[Path, Expected]:
        """Two text files, or the HDF5 file where a text file is missing."""
        texts, hdf = super().parts(root), root / "USPS" / "usps.h5"
        return {hdf: Expected()} if hdf.is_file() and not all(path.is_file() for path in texts) else texts

    def missing(self, root: Path) -> list[str]:
        """Missing files of both forms."""
        texts = " and ".join(map(str, self.parts(root)))
        return [f"{texts} (or {root / 'USPS' / 'usps.h5'})"] if super().missing(root) else []

    def split(self, root: Path, which: Which) -> DigitSplit:
        paths = list(self.parts(root))
        path = paths[0 if which == "train" else -1]
        if len(paths) > 1:
            from sklearn.datasets import load_svmlight_file

            with file_errors(f"Cannot read {path}"):  # gray levels from -1 to 1, labels from 1 to 10
                features, names = load_svmlight_file(str(path), n_features=256, zero_based=False)
                levels, labels = (features.toarray() + 1) / 2, names.astype(np.int64) - 1
        else:
            levels, labels = _hdf(path, which)
        if levels.size and not (levels.min() >= 0 and levels.max() <= 1):
            raise PflbenchError(f"{path} has gray levels outside its range: it is not what its name says.")
        return _checked(path, (levels * 255).round().astype(np.uint8).reshape(-1, 16, 16), labels, (16, 16))


class MNISTMSource(DigitSource):
    """MNIST-M as its authors distribute it: PNG files in `mnist_m`, listed with their labels in two text files."""

    by_hand: ClassVar = "unpack mnist_m.tar.gz from http://yaroslav.ganin.net there"

    needs: ClassVar = dict.fromkeys(
        (f"mnist_m/mnist_m_{name}" for name in ("train_labels.txt", "test_labels.txt", "train", "test")), Expected()
    )

    def split(self, root: Path, which: Which) -> DigitSplit:
        path = root / "mnist_m" / f"mnist_m_{which}_labels.txt"
        with file_errors(f"{path} is no list of files and labels"):
            lines = [line.split() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
            images = [path.parent / f"mnist_m_{which}" / name for name, _ in lines]
            labels = np.array([int(label) for _, label in lines], dtype=np.int64)
        check_labels(path, labels, 10)
        return DigitSplit(images, labels)


class SyntheticSource(DigitSource):
    """Synthetic digits on photos (Roy et al., 2018): `synthetic_digits/imgs_{train,valid}/<digit>/*.jpg`."""

    by_hand: ClassVar = "unpack https://www.kaggle.com/datasets/prasunroy/synthetic-digits there"  # asks for an account

    needs: ClassVar = dict.fromkeys(("synthetic_digits/imgs_train", "synthetic_digits/imgs_valid"), Expected())

    def split(self, root: Path, which: Which) -> DigitSplit:
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


@dataclass(frozen=True)
class DigitFive(SeveralSources[DigitSource]):
    """92,291 + 31,007 color digits from five sources, 32x32: MNIST, SVHN, USPS, MNIST-M, Synthetic Digits.

    Attributes:
        sources: The sources to use, separated by commas; None: all five.
    """

    sources: str | None = None

    seeded: ClassVar[bool] = False
    shape: ClassVar = (3, SIDE, SIDE)
    classes: ClassVar = 10
    known: ClassVar = SOURCES
    usual: ClassVar = tuple(SOURCES)
    command: ClassVar = "digit-five"

    def __post_init__(self) -> None:
        _ = self.chosen  # checks the option

    @property
    def examples(self) -> int:
        """Size of the training split if the files are those that were published."""
        return sum(min(PUBLISHED[name], MOST["train"]) for name in self.chosen)

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: the training rows of all sources, then their test rows.

        `kind` is 10 * source + digit, sources numbered in the order above, whichever are chosen. `hash` covers
        images and kinds. Warns once with `UnofficialFile` where files are not the official ones.

        Raises:
            DataMissing: Files of a source are not there.
            PflbenchError: A file is damaged, or what reads it is not installed.
        """
        if missing := self.missing(root):
            raise DataMissing(
                f"Digit-Five lacks {_listed(missing)}. Run `pflbench data fetch digit-five`, which says how to get "
                "them, or choose among the others with the option sources."
            )
        parts = [_part(root, name, source, which) for which in WHICH for name, source in self.chosen.items()]
        warn_unofficial({path: known for source in self.chosen.values() for path, known in source.parts(root).items()})
        images, kind = (np.concatenate(some) for some in zip(*parts, strict=True))
        test = sum(len(kind) for _, kind in parts[len(self.chosen) :])
        return Source.of(images, kind % 10, self.classes, kind, hashed=kind, test=test, normalization=NORMALIZATION)

    def status(self, root: Path) -> str:
        """One line, from the presence of the files."""
        if missing := self.missing(root):
            return f"missing: {_listed(missing)}"
        return f"ready: {', '.join(self.chosen)} in {root}"

    def lacking(self, root: Path, missing: Mapping[str, Sequence[str]], failed: Mapping[str, str]) -> DataMissing:
        """See `SeveralSources`."""
        ways = {name: SOURCES[name].by_hand for name in missing}
        return DataMissing(f"Digit-Five lacks {_listed(missing, ways | dict(failed))}.")


def _part(
    root: Path, name: str, source: DigitSource, which: Which
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images that are taken of one split of one source, uint8 ["images", 3, 32, 32], and their kinds."""
    split = source.split(root, which)
    if not len(split.labels):
        raise PflbenchError(f"Digit-Five: the {which} split of {name} is empty.")
    rows = stream(0, "digit-five", name, which).permutation(len(split.labels))[: MOST[which]]
    images = decode_all([Picture("", split.images[row]) for row in rows], (3, SIDE, SIDE))
    return images, 10 * list(SOURCES).index(name) + split.labels[rows]


def _listed(missing: Mapping[str, Sequence[str]], reasons: Mapping[str, str] | None = None) -> str:
    """`mnist (FILE, FILE), usps (FILE; why)`."""
    why = {name: f"; {reason}" for name, reason in (reasons or {}).items()}
    return ", ".join(f"{name} ({', '.join(files)}{why.get(name, '')})" for name, files in missing.items())


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
    with file_errors(f"Cannot read {path}"), h5py.File(path, "r") as held:
        levels, labels = np.asarray(held[which]["data"]), np.asarray(held[which]["target"])
        return levels.reshape(len(labels), 256), labels.astype(np.int64)
