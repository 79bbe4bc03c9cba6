"""MNIST's training split, rotated as in CAFeMe's code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pflbench.data.datasets.mnist import MNIST
from pflbench.data.datasets.rotation import rotate_by_group, rotation_groups
from pflbench.data.source import Source


@dataclass(frozen=True)
class RMNIST:
    """MNIST's training split in equal rotation groups: group g is turned by g * degrees."""

    rotations: int = 10
    degrees: float = 20.0

    seeded: ClassVar[bool] = True

    @property
    def examples(self) -> int:
        """Size of the pool."""
        return 60_000

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return MNIST().shape

    @property
    def classes(self) -> int:
        """Ten digits."""
        return MNIST().classes

    def load(self, root: Path, seed: int) -> Source:
        """MNIST, turned; `kind` is the rotation group, which depends on the seed. Raises as `MNIST.load`."""
        upright = MNIST().load(root, seed)
        kind = rotation_groups(len(upright.labels), self.rotations, seed)
        return replace(upright, images=rotate_by_group(upright.images, kind, self.degrees), kind=kind)

    def fetch(self, root: Path) -> None:
        """As `MNIST.fetch`."""
        MNIST().fetch(root)

    def status(self, root: Path) -> str:
        """As `MNIST.status`."""
        return MNIST().status(root)
