"""Datasets: options that load into a `Source`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pflbench.errors import UsageError

if TYPE_CHECKING:
    import torch


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


def check_source(source: Source, dataset: Dataset, name: str) -> None:
    """Raise `UsageError` unless what a user's dataset loaded is what `Source` and the dataset itself say."""
    if not isinstance(source, Source):
        raise UsageError(f"load() of the dataset {name} must return a pflbench.data.source.Source, not {source!r:.80}.")
    images, labels, shape, classes = source.images, source.labels, tuple(dataset.shape), dataset.classes
    rows = tuple(getattr(images, "shape", ()))[:1]
    kinds = [labels] if source.kind is None else [labels, source.kind]
    rules = {
        f"images as a uint8 tensor [rows, *{shape}]": str(getattr(images, "dtype", "")) == "torch.uint8"
        and images.shape[1:] == shape,
        f"labels and kind as int64 numpy arrays of shape {rows}": all(
            isinstance(one, np.ndarray) and one.dtype == np.int64 and one.shape == rows for one in kinds
        ),
    }
    if all(rules.values()):
        rules[f"its {classes} classes, and labels from 0 to {classes - 1}"] = (
            source.classes == classes and 0 <= labels.min(initial=0) and labels.max(initial=0) < classes
        )
        rules[f"`test` as a number of its {len(images)} rows"] = 0 <= source.test <= len(images)
    if wrong := [rule for rule, holds in rules.items() if not holds]:
        raise UsageError(f"load() of the dataset {name} must return {wrong[0]}.")
