"""The MNIST family: idx files of unsigned bytes in torchvision's layout `<name>/raw`."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pflbench.data.source import check_labels, read_bytes
from pflbench.errors import DataMissing, PflbenchError


@dataclass(frozen=True)
class IdxSplit:
    """One split: how its files' names begin, how many images they hold, and the files' official MD5."""

    name: str
    count: int
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


@dataclass(frozen=True)
class IdxFiles:
    """The splits of a dataset of 28x28 gray images of ten kinds.

    Attributes:
        name: The folder below the data root, and torchvision's class.
        command: The name under which `pflbench data fetch` knows the dataset.
        splits: In the order in which they are read.
    """

    name: str
    command: str
    splits: tuple[IdxSplit, ...]

    def folder(self, root: Path) -> Path:
        """Where the files lie."""
        return root / self.name / "raw"

    def missing(self, root: Path) -> list[Path]:
        """The files that are not there."""
        paths = [self.folder(root) / name for split in self.splits for name in (split.images, split.labels)]
        return [path for path in paths if not path.is_file()]

    def sums(self, root: Path) -> dict[Path, str]:
        """Every file with its official MD5."""
        folder, sums = self.folder(root), {}
        for split in self.splits:
            sums[folder / split.images] = split.images_md5
            sums[folder / split.labels] = split.labels_md5
        return sums

    def read(self, root: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """All splits one after the other: images uint8 ["pool", 28, 28] and labels int64 ["pool"].

        Raises:
            DataMissing: Files are not there.
            PflbenchError: A file is damaged.
        """
        if missing := self.missing(root):
            hint = f"Run `pflbench data fetch {self.command}`, or {_by_hand(missing)}."
            raise DataMissing(f"{self.name} is not there. {hint}")
        images, labels = [], []
        for split in self.splits:
            images.append(read_idx(self.folder(root) / split.images, (split.count, 28, 28)))
            path = self.folder(root) / split.labels
            labels.append(read_idx(path, (split.count,)).astype(np.int64))
            check_labels(path, labels[-1], 10)
        return np.concatenate(images), np.concatenate(labels)

    def fetch(self, root: Path) -> None:
        """Download all files with torchvision, unless they are there. Raises `DataMissing` if its mirrors fail."""
        if not (missing := self.missing(root)):
            return
        from torchvision import datasets

        try:
            getattr(datasets, self.name)(root, download=True)
        except Exception as error:  # torchvision lets through what urllib and gzip raise
            raise DataMissing(f"Downloading {self.name} failed ({error}). To go on, {_by_hand(missing)}.") from error

    def status(self, root: Path) -> str:
        """One line, from the presence and size of the files."""
        if missing := self.missing(root):
            return f"missing: {', '.join(map(str, missing))}"
        for split in self.splits:
            for name, header, size in ((split.images, 16, 28 * 28), (split.labels, 8, 1)):
                path = self.folder(root) / name
                if path.stat().st_size != header + split.count * size:
                    return f"missing: {path} is damaged (wrong size)"
        return f"ready: {sum(split.count for split in self.splits):,} images in {self.folder(root)}"


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """A whole idx file of unsigned bytes, the format of MNIST's publisher.

    Args:
        path: The file, gzipped if its name ends with .gz.
        shape: The shape it must have.

    Raises:
        PflbenchError: The file is unreadable, has another size, or its header says another type or shape.
    """
    header = b"\x00\x00\x08" + bytes([len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    size = len(header) + int(np.prod(shape))
    data = _gunzipped(path, size) if path.suffix == ".gz" else read_bytes(path, size)
    if data[: len(header)].tobytes() != header:
        raise PflbenchError(
            f"{path} is not an idx file of unsigned bytes of shape {shape}: delete it and fetch it again."
        )
    return data[len(header) :].reshape(shape)


def _gunzipped(path: Path, size: int) -> npt.NDArray[np.uint8]:
    try:
        with gzip.open(path) as file:
            data = bytearray(file.read())
    except (OSError, EOFError, zlib.error) as error:
        raise PflbenchError(f"Cannot read {path} ({type(error).__name__}: {error}).") from error
    if len(data) != size:
        raise PflbenchError(f"{path} unpacks to {len(data):,} bytes instead of {size:,}: delete it and fetch it again.")
    return np.frombuffer(data, dtype=np.uint8)


def _by_hand(missing: list[Path]) -> str:
    return f"put there, uncompressed: {', '.join(map(str, missing))}"
