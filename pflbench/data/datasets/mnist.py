"""The MNIST family: idx files of unsigned bytes in torchvision's layout `<name>/raw`."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.rotation import rotated
from pflbench.data.prepared import prepared
from pflbench.data.published import Downloaded, Known, reading, warn_unofficial
from pflbench.data.source import Normalization, Source, check_labels, read_bytes
from pflbench.errors import PflbenchError


class IdxSplit(NamedTuple):
    """One split of 28x28 gray images: how its files' names begin, how many rows it has, their files' official MD5."""

    name: str
    rows: int
    images_md5: str
    labels_md5: str

    @property
    def images(self) -> str:
        """The images' file."""
        return f"{self.name}-images-idx3-ubyte"

    @property
    def labels(self) -> str:
        """The labels' file."""
        return f"{self.name}-labels-idx1-ubyte"

    def read(self, folder: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Images uint8 ["images", 28, 28] and labels int64 ["images"], of ten kinds. Raises `PflbenchError`."""
        images = read_idx(folder / self.images, (self.rows, 28, 28))
        labels = read_idx(folder / self.labels, (self.rows,)).astype(np.int64)
        check_labels(folder / self.labels, labels, 10)
        return images, labels


TRAIN = IdxSplit("train", 60_000, "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624")
TEST = IdxSplit("t10k", 10_000, "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637")


@dataclass(frozen=True)
class MNIST(Downloaded):
    """60,000 handwritten digits, 28x28 gray: MNIST's training split."""

    name: ClassVar = "MNIST"
    command: ClassVar = "mnist"
    by_hand: ClassVar = "put there, uncompressed"
    splits: ClassVar[tuple[IdxSplit, ...]] = (TRAIN,)
    normalization: ClassVar[Normalization | None] = None

    seeded: ClassVar[bool] = False
    examples: ClassVar = 60_000
    shape: ClassVar = (1, 28, 28)
    classes: ClassVar = 10

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, training rows first. Raises `DataMissing`, or `PflbenchError` if damaged.

        Warns once with `UnofficialFile` where files are not the official ones.
        """
        self.require(root)
        parts = self.parts(root)
        images, labels = prepared(f"{self.name}: 1", list(parts), lambda: self._read(root))
        warn_unofficial(parts)
        test = sum(split.rows for split in self.splits[1:])
        return Source.of(images[:, None], labels, self.classes, test=test, normalization=self.normalization)

    def _read(self, root: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        read = [split.read(self.folder(root)) for split in self.splits]
        return np.concatenate([images for images, _ in read]), np.concatenate([labels for _, labels in read])

    def folder(self, root: Path) -> Path:
        """Where the files lie."""
        return root / self.name / "raw"

    def parts(self, root: Path) -> dict[Path, Known]:
        """Two files for each split."""
        parts = {}
        for split in self.splits:
            parts[self.folder(root) / split.images] = Known(split.images_md5, 16 + split.rows * 28 * 28, split.rows)
            parts[self.folder(root) / split.labels] = Known(split.labels_md5, 8 + split.rows)
        return parts


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
    """60,000 + 10,000 gray images of ten kinds of clothing, 28x28: Fashion-MNIST with its test split."""

    name: ClassVar = "FashionMNIST"
    command: ClassVar = "fashion-mnist"
    splits: ClassVar = (
        IdxSplit("train", 60_000, "f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9"),
        IdxSplit("t10k", 10_000, "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
    )
    normalization: ClassVar = Normalization((0.2860,), (0.3530,))
    """The mean and deviation of the training split; the paper (pFedVEM, Table 1) names none."""


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """A whole idx file of unsigned bytes, the format of MNIST's publisher, gzipped if its name ends with .gz.

    Raises:
        PflbenchError: The file is unreadable, has another size, or its header says another type or shape.
    """
    header = b"\x00\x00\x08" + bytes([len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    size = len(header) + int(np.prod(shape))
    if path.suffix == ".gz":
        with reading(f"Cannot read {path}"), gzip.open(path) as file:
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
