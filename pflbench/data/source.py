"""Datasets: options that load into a `Source`, and the checks that dataset files share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pflbench.errors import PflbenchError, UsageError

if TYPE_CHECKING:
    import torch


class UnofficialFile(UserWarning):
    """A dataset file differs from the one that its publisher distributes; it is read all the same."""


class Normalization(NamedTuple):
    """Normalization of images in [0, 1], per channel: subtract `mean`, divide by `std`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


HALF = Normalization((0.5,), (0.5,))
"""Values from -1 to 1, of images with any number of channels."""


@dataclass(frozen=True, eq=False)
class Source:
    """Pool of examples that a dataset loads, not yet divided among clients.

    Attributes:
        images: uint8 ["pool", "channels", "height", "width"], on the CPU.
        labels: int64 ["pool"], in [0, classes).
        kind: int64 ["pool"], a group the label does not tell (rotation group, CIFAR-100's fine class), or None.
        classes: number of classes.
        hash: `content_hash` of the data before any seed-dependent transformation: equal for all seeds.
        test: Number of rows at the pool's end that are the dataset's test split; 0: none.
        normalization: What is done to the images at use; None: nothing.
    """

    images: torch.Tensor
    labels: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64] | None
    classes: int
    hash: str
    test: int = 0
    normalization: Normalization | None = None

    @classmethod
    def of(
        cls,
        images: npt.NDArray[np.uint8],
        labels: npt.NDArray[np.int64],
        classes: int,
        kind: npt.NDArray[np.int64] | None = None,
        *,
        hashed: npt.NDArray[np.int64] | None = None,
        test: int = 0,
        normalization: Normalization | None = None,
    ) -> Source:
        """A pool from arrays alone, whose hash is that of the images and of `hashed` (default: the labels)."""
        import torch

        hash = content_hash(images, labels if hashed is None else hashed)
        return cls(torch.from_numpy(images), labels, kind, classes, hash, test, normalization)

    @property
    def training(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
        """Labels and kinds of the rows before the test split, which are what a partition divides."""
        rows = len(self.labels) - self.test
        return self.labels[:rows], None if self.kind is None else self.kind[:rows]


class Dataset(Protocol):
    """A frozen dataclass whose fields are its options; the first line of its docstring is its description."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image, known without loading."""

    @property
    def classes(self) -> int:
        """Number of classes, known without loading."""

    @property
    def examples(self) -> int:
        """Number of examples, known without loading; `pflbench plan` asks for it, and does without."""

    @property
    def seeded(self) -> bool:
        """True if the pool depends on the seed; the default for a class without it."""

    def load(self, root: Path, seed: int) -> Source:
        """The pool for this seed, from files under `root`; never touches the network.

        Raises:
            DataMissing: Files are not there; the message names them.
            PflbenchError: A file is there but damaged; the message names it.
        """

    def fetch(self, root: Path) -> None:
        """Download what `load` needs into `root`; nothing happens if it is there.

        Raises:
            DataMissing: The download failed; the message names the files to put there by hand.
        """

    def status(self, root: Path) -> str:
        """One line, starting with "ready" or "missing:". Looks at names and sizes only."""

    def files(self, root: Path) -> Iterable[Path]:
        """The files or folders that `load` reads, for whatever seed; a user's class may have it.

        What they hold is then part of a run's identity. Without it, what `load` returns for the run's seed is.
        """


def content_hash(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> str:
    """16 hex digits of the SHA-256 of the images' bytes followed by the labels' (little-endian int64)."""
    digest = hashlib.sha256(np.ascontiguousarray(images).data)
    digest.update(np.ascontiguousarray(labels, dtype="<i8").data)
    return digest.hexdigest()[:16]


def read_bytes(path: Path, size: int) -> npt.NDArray[np.uint8]:
    """A file as a writable uint8 ["size"] array. Raises `PflbenchError` if it cannot be read or has another size."""
    try:
        data = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise PflbenchError(f"Cannot read {path}: {error.strerror or error}.") from error
    if len(data) != size:
        raise PflbenchError(f"{path} has {len(data):,} bytes instead of {size:,}: delete it and fetch it again.")
    return data


def check_labels(path: Path, labels: npt.NDArray[np.int64], classes: int) -> None:
    """Raise `PflbenchError` naming `path` unless all labels lie in [0, classes)."""
    if len(labels) and not (0 <= labels.min() and labels.max() < classes):
        raise PflbenchError(f"{path} holds labels outside 0..{classes - 1}: it is not what its name says.")


def check_source(source: Source, dataset: Dataset, name: str) -> None:
    """Raise `UsageError` unless what a user's dataset loaded is what `Source` and the dataset itself say."""
    for right, problem in _looked_at(source, dataset):
        if not right:
            raise UsageError(f"load() of the dataset {name} must return {problem}.")


def _looked_at(source: Source, dataset: Dataset) -> Iterator[tuple[bool, str]]:
    """Each thing that must hold, whether it does, and what to say if not; later ones need the earlier ones."""
    yield isinstance(source, Source), f"a pflbench.data.source.Source, not {type(source).__name__}"
    images, labels, shape = source.images, source.labels, tuple(dataset.shape)
    plain = str(getattr(images, "dtype", "no tensor")) == "torch.uint8"
    yield plain, f"images as a uint8 tensor of values from 0 to 255, not {_kind(images)}"
    yield tuple(images.shape[1:]) == shape, f"images of its `shape` {shape}, not {tuple(images.shape[1:])}"
    for what, values in {"labels": labels, "kind": source.kind}.items():
        if values is not None or what == "labels":
            right = isinstance(values, np.ndarray) and values.dtype == np.int64 and values.shape == (len(images),)
            yield right, f"{what} as an int64 numpy array, one for each of {len(images)} images, not {_kind(values)}"
    classes = dataset.classes
    yield source.classes == classes, f"its `classes`, {classes}, not {source.classes}"
    inside = not len(labels) or (labels.min() >= 0 and labels.max() < classes)
    yield bool(inside), f"labels from 0 to {classes - 1}, not from {min(labels, default=0)} to {max(labels, default=0)}"
    yield 0 <= source.test <= len(images), f"`test` as a number of its {len(images)} rows, not {source.test}"


def _kind(value: object) -> str:
    """Description of an array in a few words."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    return f"{type(value).__name__} of {dtype}, {tuple(shape)}" if shape is not None else type(value).__name__
