"""Rotated images: which sample turns by how much, and the turning (as CAFeMe's code does)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pflbench.data.partition import shuffled
from pflbench.data.source import Source
from pflbench.errors import UsageError

if TYPE_CHECKING:
    import torch


def rotated(upright: Source, rotations: int, degrees: float, seed: int) -> Source:
    """A pool whose images are turned by their rotation group, which becomes their `kind`. Raises `UsageError`."""
    kind = rotation_groups(len(upright.labels), rotations, seed)
    return replace(upright, images=rotate_by_group(upright.images, kind, degrees), kind=kind)


def rotation_groups(n: int, groups: int, seed: int) -> npt.NDArray[np.int64]:
    """The group of each of `n` samples: `shuffled(n, seed)` cut into `groups` (nearly) equal consecutive chunks.

    Args:
        n: Number of samples.
        groups: Number of groups; where it does not divide `n`, the first chunks hold one sample more.
        seed: The run's seed.

    Returns:
        int64 ["pool"], values in [0, groups).

    Raises:
        UsageError: `groups` is not in [1, n].
    """
    if not 1 <= groups <= n:
        raise UsageError(f"Cannot cut {n} samples into {groups} rotation groups.")
    group = np.empty(n, dtype=np.int64)
    for g, rows in enumerate(np.array_split(shuffled(n, seed), groups)):
        group[rows] = g
    return group


def rotate_by_group(images: torch.Tensor, groups: npt.NDArray[np.int64], degrees: float) -> torch.Tensor:
    """Turn each image counter-clockwise by `degrees` times its group.

    torchvision's tensor path with its defaults: nearest neighbor, same canvas, about the center, zeros outside. Nearest
    neighbor only copies pixels, so turning uint8 equals turning the [0, 1] floats that CAFeMe's code turns.

    Args:
        images: uint8 ["pool", "channels", "height", "width"]; left as it is.
        groups: int64 ["pool"].
        degrees: Angle between one group and the next, in degrees.

    Returns:
        uint8, the shape of `images`.
    """
    import torch
    from torchvision.transforms.functional import rotate

    turned = images.clone()
    for g in np.unique(groups):
        rows = torch.from_numpy(np.flatnonzero(groups == g))
        turned[rows] = rotate(images[rows], degrees * int(g))
    return turned
