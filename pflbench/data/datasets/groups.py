"""Datasets whose images are changed by group: turned (CAFeMe's RMNIST), or noisy (noise skew)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pflbench import names, rng
from pflbench.data.partition import Rows, shuffled
from pflbench.data.prepared import prepared
from pflbench.data.source import Dataset, Source
from pflbench.errors import UsageError, unknown

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

_ROWS = 1000
"""Images that get their noise at a time."""


@dataclass(frozen=True)
class NoiseGroups:
    """Another dataset's images in equal groups, of which each has more Gaussian noise than the one before.

    For the partition "kinds", which gives each client rows of one group. NIID-Bench's noise skew
    (arXiv:2102.02079): group i of n, from 1 on, gets Gau(sigma * i / n), there a group for each client. The paper calls
    that number the variance; here it is the standard deviation, as in its code, for gray levels in [0, 1]. Levels are
    rounded and cut off at black and white, so images stay bytes. The test split has groups and noise, too.

    Attributes:
        base: The name of a dataset that comes with pflbench and has no kinds: "cifar10".
        groups: Number of groups, n; `kind` is the group, from 0 on.
        sigma: Standard deviation of the noise of the last group.
        test: The option `test` of the base, where it has one.
    """

    base: str
    groups: int = 10
    sigma: float = 0.1
    test: bool | int | None = None

    seeded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        known = [name for name in names.BUILT_IN["datasets"] if name != "noise-groups"]
        if self.base not in known:
            raise unknown("base of noise-groups", self.base, known)
        if self.groups < 1:
            raise UsageError(f"noise-groups: groups must be at least 1, not {self.groups}.")
        if not (self.sigma > 0 and math.isfinite(self.sigma)):
            raise UsageError(f"noise-groups: sigma must be positive and finite, not {self.sigma}.")

    @cached_property
    def clean(self) -> Dataset:
        """The base. Raises `UsageError` if it needs options, or lacks the option test that is set."""
        reference = names.locate("datasets", self.base)
        options: dict[str, Any] = {} if self.test is None else {"test": self.test}
        made: Any = names.load(reference)
        known = [field.name for field in fields(made)]
        if hasattr(made, "files") or not options.keys() <= set(known):
            lacks = "reads a user's files" if hasattr(made, "files") else "has no option test"
            raise UsageError(f"noise-groups: the dataset {self.base!r} {lacks}.")
        dataset: Dataset = names.make("datasets", reference, options)
        return dataset

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the base's images."""
        return self.clean.shape

    @property
    def classes(self) -> int:
        """Number of the base's classes."""
        return self.clean.classes

    @property
    def examples(self) -> int:
        """Number of the base's training images."""
        return self.clean.examples

    def load(self, root: Path, seed: int) -> Source:
        """The base with noise from the streams `(seed, "noise-groups", …)`. Raises as the base, and `UsageError`."""
        import torch

        source = self.clean.load(root, seed)
        if source.kind is not None:
            raise UsageError(f"noise-groups needs a dataset without kinds, and the images of {self.base!r} have some.")
        parts = [self._dealt(rows, seed, split) for split, rows in self._splits(source).items()]
        kind = np.concatenate(parts)
        images = source.images.numpy().copy()
        for group in range(self.groups):
            random = rng.stream(seed, "noise-groups", "noise", group)
            deviation = np.float32(255 * self.sigma * (group + 1) / self.groups)
            rows = np.flatnonzero(kind == group)
            for some in np.split(rows, range(_ROWS, len(rows), _ROWS)):
                noise = random.standard_normal(images[some].shape, dtype=np.float32) * deviation
                images[some] = np.clip(np.rint(images[some] + noise), 0, 255).astype(np.uint8)
        return replace(source, images=torch.from_numpy(images), kind=kind)

    def fetch(self, root: Path) -> None:
        """Fetch the base."""
        self.clean.fetch(root)

    def status(self, root: Path) -> str:
        """Status of the base."""
        return self.clean.status(root)

    def _splits(self, source: Source) -> dict[str, int]:
        """Number of rows of each split."""
        training = len(source.labels) - source.test
        return {"train": training} | ({"test": source.test} if source.test else {})

    def _dealt(self, rows: int, seed: int, split: str) -> Rows:
        """The group of each row of a split, int64: groups of equal sizes, the first ones larger by one if need be."""
        if rows < self.groups:
            raise UsageError(f"noise-groups: {rows} {split} images cannot be in {self.groups} groups.")
        group = np.empty(rows, dtype=np.int64)
        order = rng.stream(seed, "noise-groups", "groups", split).permutation(rows)
        for number, some in enumerate(np.array_split(order, self.groups)):
            group[some] = number
        return group


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
