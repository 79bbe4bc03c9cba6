"""Rotation groups of images (CAFeMe's RMNIST)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pflbench.data.partition import Rows, shuffled
from pflbench.data.prepared import prepared
from pflbench.data.source import Source
from pflbench.errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch


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
