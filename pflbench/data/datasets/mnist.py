"""The MNIST family (MNIST, Fashion-MNIST, EMNIST), read by torchvision, and rotation groups (CAFeMe's RMNIST)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pflbench.data.partition import Rows, shuffled
from pflbench.data.prepared import prepared
from pflbench.data.published import Torchvision
from pflbench.data.source import HALF, Normalization, Source
from pflbench.errors import UsageError
from pflbench.hyper import hyper

if TYPE_CHECKING:
    import torch


def _calls(name: str, **options: Any) -> tuple[tuple[str, str, Mapping[str, Any]], ...]:
    return tuple((name, "", {**options, "train": train}) for train in (True, False))


def _files(name: str) -> tuple[str, ...]:
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(f"{name}/raw/{part}-ubyte" for part in parts)


@dataclass(frozen=True)
class MNIST(Torchvision):
    """60,000 handwritten digits, 28x28 gray: MNIST's training split."""

    name: ClassVar = "mnist"
    needs: ClassVar[Sequence[str]] = _files("MNIST")
    downloads: ClassVar = _calls("MNIST")
    shape: ClassVar = (1, 28, 28)
    classes: ClassVar = 10
    examples: ClassVar = 60_000

    def read(self, root: Path, seed: int) -> Source:
        """The same pool for every seed."""
        images, labels, _ = self.pool(root, "train")
        return Source.of(images, labels, self.classes)


@dataclass(frozen=True)
class RMNIST(MNIST):
    """MNIST's training split in equal rotation groups: group g is turned by g * degrees."""

    rotations: int = hyper(10, "Rotation groups.", least=1)
    degrees: float = hyper(20.0, "Angle between two groups, counter-clockwise.")

    seeded: ClassVar = True

    def read(self, root: Path, seed: int) -> Source:
        """MNIST, turned; `kind` is the rotation group, which depends on the seed."""
        return rotated(super().read(root, seed), self.rotations, self.degrees, seed, self.parts(root))


def rotated(upright: Source, rotations: int, degrees: float, seed: int, files: Sequence[Path] = ()) -> Source:
    """A pool whose images are turned by their rotation group, which becomes their `kind`. Raises `UsageError`.

    `files`: the files of the pool. Where there are some, the turned images of each seed are `prepared`.
    """
    import torch

    kind = rotation_groups(len(upright.labels), rotations, seed)

    def turned() -> tuple[npt.NDArray[np.uint8]]:
        return (rotate_by_group(upright.images, kind, degrees).numpy(),)

    turner = f"torch {torch.__version__}, torchvision {version('torchvision')}"
    recipe = f"rotated by {rotations} x {degrees!r} degrees, seed {seed}, {turner}: 1"
    (images,) = prepared(recipe, files, turned) if files else turned()
    return replace(upright, images=torch.from_numpy(images), kind=kind)


def rotation_groups(n: int, groups: int, seed: int) -> Rows:
    """The group of each of `n` samples, int64 ["pool"]: `shuffled(n, seed)` cut into consecutive chunks.

    Where the number of groups does not divide `n`, the first chunks hold one sample more. Raises `UsageError` unless it
    is in [1, n].
    """
    if not 1 <= groups <= n:
        raise UsageError(f"Cannot cut {n} samples into {groups} rotation groups.")
    group = np.empty(n, dtype=np.int64)
    for g, rows in enumerate(np.array_split(shuffled(n, seed), groups)):
        group[rows] = g
    return group


def rotate_by_group(images: torch.Tensor, groups: Rows, degrees: float) -> torch.Tensor:
    """Each image, uint8 ["pool", "channels", "height", "width"], turned counter-clockwise by `degrees` times its group.

    torchvision's tensor path with its defaults: nearest neighbor, same canvas, about the center, zeros outside. Nearest
    neighbor only copies pixels, so turning uint8 equals turning the [0, 1] floats that CAFeMe's code turns.
    """
    import torch
    from torchvision.transforms.functional import rotate

    turned = images.clone()
    for g in np.unique(groups):
        rows = torch.from_numpy(np.flatnonzero(groups == g))
        turned[rows] = rotate(images[rows], degrees * int(g))
    return turned


@dataclass(frozen=True)
class FashionMNIST(Torchvision):
    """60,000 + 10,000 gray images of ten kinds of clothing, 28x28: Fashion-MNIST with its test split."""

    merged: bool | None = hyper(None, "Deal the test split's images like the others; then there is no test split.")
    normalize: Literal["half"] | None = hyper(
        None, "none: the training split's mean and deviation; half: values from -1 to 1, as PFLlib's."
    )

    name: ClassVar = "fashion-mnist"
    needs: ClassVar = _files("FashionMNIST")
    downloads: ClassVar = _calls("FashionMNIST")
    shape: ClassVar = (1, 28, 28)
    classes: ClassVar = 10

    @property
    def examples(self) -> int:
        """Images that are dealt to clients."""
        return 70_000 if self.merged else 60_000

    def read(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, training rows first."""
        images, labels, rows = self.pool(root, "train", "test")
        # Of the training split; the paper (pFedVEM, Table 1) names none.
        normalization = HALF if self.normalize else Normalization((0.2860,), (0.3530,))
        test = 0 if self.merged else int(rows[1])
        return Source.of(images, labels, self.classes, test=test, normalization=normalization)


EMNIST_SPLITS: Mapping[str, tuple[int, int, int]] = {
    "byclass": (697_932, 116_323, 62),
    "bymerge": (697_932, 116_323, 47),
    "balanced": (112_800, 18_800, 47),
    "letters": (124_800, 20_800, 26),
    "digits": (240_000, 40_000, 10),
    "mnist": (60_000, 10_000, 10),
}
"""Training images, test images and classes of each split."""


@dataclass(frozen=True)
class EMNIST(Torchvision):
    """Handwritten digits and letters, 28x28, light on black: a split of EMNIST with its test part (arXiv:1702.05373).

    Labels are those of the files, but for "letters", where they are one less: a is 0. Images, which lie transposed in
    the files, are upright. Split "byclass": 62 classes, digits, capitals, small letters. "bymerge": 47, as small
    letters that look like their capitals are one class with them. "balanced": these 47, equally many of each.
    "letters": 26, capitals and small letters together. "digits" and "mnist": 10.
    """

    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = hyper(
        "balanced", "Part of EMNIST."
    )
    merged: bool | None = hyper(None, "Deal the test part's images like the others; then there is no test split.")

    name: ClassVar = "emnist"
    shape: ClassVar = (1, 28, 28)

    @property
    def npz(self) -> str:
        """Name of the .npz file."""
        return f"emnist-{self.split}.npz"

    @property
    def downloads(self) -> Sequence[tuple[str, str, Mapping[str, Any]]]:  # type: ignore[override]
        """Calls of torchvision."""
        return _calls("EMNIST", split=self.split)

    @property
    def needs(self) -> Sequence[str]:  # type: ignore[override]
        """Files of the split."""
        parts = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
        return [f"EMNIST/raw/emnist-{self.split}-{part}-ubyte" for part in parts]

    @property
    def classes(self) -> int:
        """Number of the split's classes."""
        return EMNIST_SPLITS[self.split][2]

    @property
    def examples(self) -> int:
        """Images that are dealt to clients."""
        train, test, _ = EMNIST_SPLITS[self.split]
        return train + test if self.merged else train

    def read(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, training rows first."""
        images, labels, rows = self.pool(root, "train", "test")
        test = 0 if self.merged else int(rows[1])
        first = 1 if self.split == "letters" else 0
        return Source.of(images.transpose(0, 1, 3, 2).copy(), labels - first, self.classes, test=test)
