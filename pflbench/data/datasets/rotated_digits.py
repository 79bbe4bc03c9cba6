"""scikit-learn's bundled digits, rotated as RMNIST is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pflbench.data.datasets.digits import Digits
from pflbench.data.datasets.rotation import rotated
from pflbench.data.source import Source


@dataclass(frozen=True)
class RotatedDigits:
    """The bundled digits in rotation groups, as RMNIST has them: group g is turned by g * degrees."""

    size: int = 28
    rotations: int = 10
    degrees: float = 20.0

    seeded: ClassVar[bool] = True
    examples: ClassVar = Digits().examples
    classes: ClassVar = Digits().classes

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return 1, self.size, self.size

    def load(self, root: Path, seed: int) -> Source:
        """The digits, turned; `kind` is the rotation group, which depends on the seed. Raises `UsageError`."""
        return rotated(Digits(size=self.size).load(root, seed), self.rotations, self.degrees, seed)

    def fetch(self, root: Path) -> None:
        """Nothing to fetch."""

    def status(self, root: Path) -> str:
        """As `Digits.status`."""
        return Digits().status(root)
