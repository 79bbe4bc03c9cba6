"""scikit-learn's bundled 8x8 digits: a real dataset that needs no files, for smoke runs and tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pflbench.data.rotation import rotate_by_group, rotation_groups
from pflbench.data.source import Source, content_hash
from pflbench.errors import UsageError

if TYPE_CHECKING:
    import torch

_READY = "ready: 1,797 images, bundled with scikit-learn"


@dataclass(frozen=True)
class Digits:
    """1,797 handwritten 8x8 digits, resized; bundled with scikit-learn, needs no files."""

    channels: int = 1
    size: int = 28

    def __post_init__(self) -> None:
        if self.channels < 1 or self.size < 1:
            raise UsageError(f"Digits: channels = {self.channels} and size = {self.size} must be positive.")

    seeded: ClassVar[bool] = False

    @property
    def examples(self) -> int:
        """Size of the pool."""
        return 1797

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.channels, self.size, self.size

    @property
    def classes(self) -> int:
        """Ten digits."""
        return 10

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every root and seed; `hash` is that of the 8x8 originals."""
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        original = pixels.reshape(-1, 1, 8, 8).astype(np.uint8)
        labels = labels.astype(np.int64)
        images = _resize(original, self.size).repeat(1, self.channels, 1, 1)
        return Source(images, labels, None, self.classes, content_hash(original, labels))

    def fetch(self, root: Path) -> None:
        """Nothing to fetch."""

    def status(self, root: Path) -> str:
        """Always ready."""
        return _READY


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
        return 1797

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
        """Always ready."""
        return _READY


def _resize(images: np.ndarray, size: int) -> torch.Tensor:
    """0..16 at 8x8 → 0..255 at size x size, bilinear; uint8 ["pool", 1, "size", "size"]."""
    import torch
    from torch.nn.functional import interpolate

    pixels = torch.from_numpy(images).float() * (255 / 16)
    resized = interpolate(pixels, size=(size, size), mode="bilinear", align_corners=False)
    return resized.round().clamp(0, 255).to(torch.uint8)
