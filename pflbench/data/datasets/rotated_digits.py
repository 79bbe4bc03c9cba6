"""scikit-learn's bundled digits, rotated as RMNIST is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pflbench.data.datasets.digits import Digits
from pflbench.data.datasets.rotation import rotate_by_group, rotation_groups
from pflbench.data.source import Source


@dataclass(frozen=True)
class RotatedDigits:
    """The bundled digits in rotation groups, as RMNIST has them: group g is turned by g * degrees."""

    size: int = 28
    rotations: int = 10
    degrees: float = 20.0

    seeded: ClassVar[bool] = True

    @property
    def examples(self) -> int:
        """Size of the pool."""
        return Digits().examples

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return 1, self.size, self.size

    @property
    def classes(self) -> int:
        """Ten digits."""
        return 10

    def load(self, root: Path, seed: int) -> Source:
        """The digits, turned; `kind` is the rotation group, which depends on the seed. Raises `UsageError`."""
        upright = Digits(size=self.size).load(root, seed)
        kind = rotation_groups(len(upright.labels), self.rotations, seed)
        return replace(upright, images=rotate_by_group(upright.images, kind, self.degrees), kind=kind)

    def fetch(self, root: Path) -> None:
        """Nothing to fetch."""

    def status(self, root: Path) -> str:
        """As `Digits.status`."""
        return Digits().status(root)
