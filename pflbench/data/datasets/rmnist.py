"""MNIST's training split, rotated as in CAFeMe's code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pflbench.data.datasets.mnist import MNIST
from pflbench.data.datasets.rotation import rotated
from pflbench.data.source import Source


@dataclass(frozen=True)
class RMNIST(MNIST):
    """MNIST's training split in equal rotation groups: group g is turned by g * degrees."""

    rotations: int = 10
    degrees: float = 20.0

    seeded: ClassVar[bool] = True

    def load(self, root: Path, seed: int) -> Source:
        """MNIST, turned; `kind` is the rotation group, which depends on the seed. Raises as `MNIST.load`."""
        return rotated(super().load(root, seed), self.rotations, self.degrees, seed)
