"""The MNIST family (MNIST, Fashion-MNIST, EMNIST): idx files of bytes in torchvision's layout `<name>/raw`."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.groups import rotated
from pflbench.data.prepared import prepared
from pflbench.data.published import Download, Downloaded, Expected, file_errors, warn_unofficial
from pflbench.data.source import HALF, Normalization, Source, check_labels, read_bytes
from pflbench.errors import PflbenchError, unknown


class IdxSplit(NamedTuple):
    """One split of 28x28 gray images: beginning of its files' names, number of rows, their files' official MD5."""

    name: str
    rows: int
    images_md5: str = ""
    labels_md5: str = ""

    def parts(self, folder: Path) -> dict[Path, Expected]:
        """Files of images and of labels, each gzipped where it is not there uncompressed."""
        found: dict[Path, Expected] = {}
        pixels = Expected(self.images_md5, 16 + self.rows * 28 * 28, self.rows)
        for what, known in (("images-idx3", pixels), ("labels-idx1", Expected(self.labels_md5, 8 + self.rows))):
            plain = folder / f"{self.name}-{what}-ubyte"
            gzipped = plain.with_name(f"{plain.name}.gz")
            packed = gzipped.is_file() and not plain.is_file()
            found |= {gzipped: Expected(images=known.images)} if packed else {plain: known}
        return found

    def read(self, folder: Path, classes: int = 10, least: int = 0) -> Split:
        """Images and labels; the files number classes from `least`. Raises `PflbenchError`."""
        images, labels = self.parts(folder)
        numbers = read_idx(labels, (self.rows,)).astype(np.int64) - least
        check_labels(labels, numbers, classes)
        return read_idx(images, (self.rows, 28, 28))[:, None], numbers


Split = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Images uint8 ["images", 1, 28, 28] and labels int64 ["images"]."""
TRAIN = IdxSplit("train", 60_000, "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624")
TEST = IdxSplit("t10k", 10_000, "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637")


class IdxImages(Downloaded):
    """Base of the family."""

    normalization: ClassVar[Normalization | None] = None
    merged: bool | None = None
    seeded: ClassVar[bool] = False
    shape: ClassVar = (1, 28, 28)

    @property
    def splits(self) -> Sequence[IdxSplit]:
        """Training split first; the others are the test split."""
        raise NotImplementedError

    @property
    def classes(self) -> int:
        """Number of classes."""
        raise NotImplementedError

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, training rows first. Raises `DataMissing`, or `PflbenchError` if damaged.

        Warns once with `UnofficialFile` where files are not the official ones.
        """
        self.require(root)
        parts = self.parts(root)
        images, labels = prepared(f"{self.recipe}: 2", list(parts), lambda: self.read(root, self.splits))
        warn_unofficial(parts)
        test = 0 if self.merged else sum(split.rows for split in self.splits[1:])
        return Source.of(images, labels, self.classes, test=test, normalization=self.normalization)

    @property
    def examples(self) -> int:
        """Images that are dealt to clients: those of the training split, or of both."""
        return sum(split.rows for split in (self.splits if self.merged else self.splits[:1]))

    @property
    def recipe(self) -> str:
        """Name of what `read` makes of the files."""
        return self.name

    def read(self, root: Path, splits: Sequence[IdxSplit]) -> Split:
        """Images and labels of some splits, one after another. Raises `PflbenchError`."""
        read = [split.read(self.folder(root), self.classes) for split in splits]
        return np.concatenate([images for images, _ in read]), np.concatenate([labels for _, labels in read])

    def folder(self, root: Path) -> Path:
        """Folder of the files."""
        return root / self.name / "raw"

    def parts(self, root: Path) -> dict[Path, Expected]:
        """Two files for each split."""
        return {path: known for split in self.splits for path, known in split.parts(self.folder(root)).items()}


@dataclass(frozen=True)
class MNIST(IdxImages):
    """60,000 handwritten digits, 28x28 gray: MNIST's training split."""

    name: ClassVar = "MNIST"
    downloads: ClassVar = (Download("MNIST"),)
    command: ClassVar = "mnist"
    by_hand: ClassVar = "put them there, as they are (.gz) or uncompressed"
    splits: ClassVar[Sequence[IdxSplit]] = (TRAIN,)
    classes: ClassVar = 10


@dataclass(frozen=True)
class RMNIST(MNIST):
    """MNIST's training split in equal rotation groups: group g is turned by g * degrees."""

    rotations: int = 10
    degrees: float = 20.0

    seeded: ClassVar[bool] = True

    def load(self, root: Path, seed: int) -> Source:
        """MNIST, turned; `kind` is the rotation group, which depends on the seed. Raises as `MNIST.load`."""
        return rotated(super().load(root, seed), self.rotations, self.degrees, seed, list(self.parts(root)))


@dataclass(frozen=True)
class FashionMNIST(MNIST):
    """60,000 + 10,000 gray images of ten kinds of clothing, 28x28: Fashion-MNIST with its test split.

    Attributes:
        merged: Whether the test split's images are dealt like the others, so that there is no test split.
        normalize: None: the training split's mean and deviation; "half": values from -1 to 1, as PFLlib's.
    """

    merged: bool | None = None
    normalize: Literal["half"] | None = None

    name: ClassVar = "FashionMNIST"
    downloads: ClassVar = (Download("FashionMNIST"),)
    command: ClassVar = "fashion-mnist"
    splits: ClassVar = (
        IdxSplit("train", 60_000, "f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9"),
        IdxSplit("t10k", 10_000, "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
    )
    normalization: ClassVar = Normalization((0.2860,), (0.3530,))
    """The mean and deviation of the training split; the paper (pFedVEM, Table 1) names none."""

    def __post_init__(self) -> None:
        if self.normalize not in (None, "half"):
            raise unknown("value of FashionMNIST.normalize", str(self.normalize), ["half"])

    def load(self, root: Path, seed: int) -> Source:
        """See `IdxImages`."""
        source = super().load(root, seed)
        return replace(source, normalization=HALF) if self.normalize else source


class EmnistSplit(NamedTuple):
    """Training and test images of a split, and its classes."""

    train: int
    test: int
    classes: int


EMNIST_SPLITS = {
    "byclass": EmnistSplit(697_932, 116_323, 62),
    "bymerge": EmnistSplit(697_932, 116_323, 47),
    "balanced": EmnistSplit(112_800, 18_800, 47),
    "letters": EmnistSplit(124_800, 20_800, 26),
    "digits": EmnistSplit(240_000, 40_000, 10),
    "mnist": EmnistSplit(60_000, 10_000, 10),
}


@dataclass(frozen=True)
class EMNIST(IdxImages):
    """Handwritten digits and letters, 28x28, light on black: a split of EMNIST with its test part (arXiv:1702.05373).

    Labels are those of the files, but for "letters", where they are one less: a is 0. Images, which lie transposed in
    the files, are upright.

    Attributes:
        split: "byclass": 62 classes, digits, capitals, small letters. "bymerge": 47, as small letters that look like
            their capitals are one class with them. "balanced": these 47, equally many of each. "letters": 26, capitals
            and small letters together. "digits" and "mnist": 10.
        merged: Whether the test part's images are dealt like the others, so that there is no test split.
    """

    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "balanced"
    merged: bool | None = None

    name: ClassVar = "EMNIST"
    command: ClassVar = "emnist"
    by_hand: ClassVar = (
        "unpack https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip (562 MB) and put these files of it there, as they "
        "are (.gz) or uncompressed"
    )

    def __post_init__(self) -> None:
        if self.split not in EMNIST_SPLITS:
            raise unknown("split of emnist", self.split, EMNIST_SPLITS)

    @property
    def classes(self) -> int:
        """Number of the split's classes."""
        return EMNIST_SPLITS[self.split].classes

    @property
    def splits(self) -> Sequence[IdxSplit]:
        """Both parts of the split."""
        counts = EMNIST_SPLITS[self.split]
        return IdxSplit(f"emnist-{self.split}-train", counts.train), IdxSplit(f"emnist-{self.split}-test", counts.test)

    @property
    def recipe(self) -> str:
        """See `IdxImages`."""
        return repr(self)

    @property
    def downloads(self) -> Sequence[Download]:
        """The archive, which has all splits."""
        return (Download("EMNIST", options={"split": self.split}),)

    def read(self, root: Path, splits: Sequence[IdxSplit]) -> Split:
        """See `IdxImages`; upright, and letters from 0 on."""
        least = 1 if self.split == "letters" else 0
        read = [split.read(self.folder(root), self.classes, least) for split in splits]
        images, labels = (np.concatenate(parts) for parts in zip(*read, strict=True))
        return images.transpose(0, 1, 3, 2), labels


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """A whole idx file of unsigned bytes, the format of MNIST's publisher, gzipped if its name ends with .gz.

    Raises:
        PflbenchError: The file is unreadable, has another size, or its header says another type or shape.
    """
    header = b"\x00\x00\x08" + bytes([len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    size = len(header) + int(np.prod(shape))
    if path.suffix == ".gz":
        with file_errors(f"Cannot read {path}"), gzip.open(path) as file:
            data = np.frombuffer(bytearray(file.read(size + 1)), dtype=np.uint8)
        if len(data) != size:
            held = f"more than {size:,} bytes" if len(data) > size else f"{len(data):,} bytes instead of {size:,}"
            raise PflbenchError(f"{path} unpacks to {held}: delete it and fetch it again.")
    else:
        data = read_bytes(path, size)
    if data[: len(header)].tobytes() != header:
        raise PflbenchError(
            f"{path} is not an idx file of unsigned bytes of shape {shape}: delete it and fetch it again."
        )
    return data[len(header) :].reshape(shape)
