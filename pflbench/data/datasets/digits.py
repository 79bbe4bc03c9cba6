"""scikit-learn's bundled 8x8 digits, plain and rotated: real datasets that need no files, for smoke runs and tests."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.groups import rotated
from pflbench.data.prepared import prepared
from pflbench.data.source import Source, content_hash
from pflbench.errors import UsageError
from pflbench.rng import stream

_COUNT = 1797
FEWEST = 174
"""Images of the rarest digit."""


class Bundled:
    """Base of a dataset of the bundled digits."""

    @property
    def classes(self) -> int:
        """Ten digits."""
        return 10

    def fetch(self, root: Path) -> None:
        """Nothing to fetch."""

    def status(self, root: Path) -> str:
        """Always ready."""
        return "ready: 1,797 images, bundled with scikit-learn"


@dataclass(frozen=True)
class Digits(Bundled):
    """1,797 handwritten 8x8 digits, resized; bundled with scikit-learn, needs no files.

    Attributes:
        channels: How often the gray channel is repeated.
        size: Height and width, in pixels.
        test: So many images become the test split, the same for every seed; None: there is none.
        coarse: Whether labels are pairs of digits: five superclasses, `kind` being the digit. Stands in for CIFAR-100
            and SUN397.
        sources: Into how many sources the images are dealt at random, the same for every seed; `kind` is
            10 * source + digit. Stands in for Digit-Five.
        writers: To how many writers the images are dealt at random, to some more than to others, the same for every
            seed; `kind` is the writer. Stands in for FEMNIST.
    """

    channels: int = 1
    size: int = 28
    test: int | None = None
    coarse: bool | None = None
    sources: int | None = None
    writers: int | None = None

    def __post_init__(self) -> None:
        if self.channels < 1 or self.size < 1:
            raise UsageError(f"Digits: channels = {self.channels} and size = {self.size} must be positive.")
        if self.test is not None and not 0 < self.test < _COUNT:
            raise UsageError(f"Digits: test = {self.test} must lie in 1..{_COUNT - 1}.")
        if self.sources is not None and not 0 < self.sources <= _COUNT:
            raise UsageError(f"Digits: sources = {self.sources} must lie in 1..{_COUNT}.")
        if self.writers is not None and not 0 < self.writers <= _COUNT:
            raise UsageError(f"Digits: writers = {self.writers} must lie in 1..{_COUNT}.")
        says = {"coarse": self.coarse, "sources": self.sources is not None, "writers": self.writers is not None}
        if len(both := [name for name, chosen in says.items() if chosen]) > 1:
            raise UsageError(f"Digits: {' and '.join(both)} exclude each other, as each says what a kind is.")

    seeded: ClassVar[bool] = False

    @property
    def examples(self) -> int:
        """Size of the training split."""
        return _COUNT - (self.test or 0)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.channels, self.size, self.size

    @property
    def classes(self) -> int:
        """Ten digits, or five pairs of them."""
        return 5 if self.coarse else 10

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every root and seed; `hash` is that of the 8x8 originals, whatever the options."""
        import torch
        from torch.nn.functional import interpolate

        original, digits = _bundled()
        found = content_hash(original, digits)
        if self.test is not None:
            order = stream(0, "digits", "test").permutation(_COUNT)
            original, digits = original[order], digits[order]
        kind = None
        if self.coarse:
            kind = digits
        elif self.sources is not None:
            kind = 10 * (stream(0, "digits", "sources").permutation(_COUNT) % self.sources) + digits
        elif self.writers is not None:
            kind = _written(self.writers)
        pixels = torch.from_numpy(original).float() * (255 / 16)
        images = interpolate(pixels, size=(self.size, self.size), mode="bilinear", align_corners=False)
        return Source(
            images.round().clamp(0, 255).to(torch.uint8).repeat(1, self.channels, 1, 1),
            digits // 2 if self.coarse else digits,
            kind,
            self.classes,
            found,
            test=self.test or 0,
        )


def _files() -> list[Path]:
    """scikit-learn's file of the digits, found without importing it (seconds); none if it lies elsewhere."""
    found = find_spec("sklearn")
    path = Path(found.origin or "").parent / "datasets" / "data" / "digits.csv.gz" if found else Path()
    return [path] if path.is_file() else []


def _bundled() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The images, uint8 [1797, 1, 8, 8] with levels 0 to 16, and their digits [1797]."""

    def read() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        from sklearn.datasets import load_digits

        levels, target = load_digits(return_X_y=True)
        return levels.reshape(-1, 1, 8, 8).astype(np.uint8), target.astype(np.int64)

    files = _files()
    images, digits = prepared(f"digits of scikit-learn {version('scikit-learn')}: 1", files, read) if files else read()
    return images, digits


def _written(writers: int) -> npt.NDArray[np.int64]:
    """The writer of each image, each of at least one; sizes are about log-normal."""
    draws = stream(0, "digits", "writers")
    shares = draws.lognormal(0, 0.4, writers)
    others = draws.choice(writers, _COUNT - writers, p=shares / shares.sum())
    return draws.permutation(np.concatenate([np.arange(writers), others]))


@dataclass(frozen=True)
class RotatedDigits(Bundled):
    """The bundled digits in rotation groups, as RMNIST has them: group g is turned by g * degrees."""

    size: int = 28
    rotations: int = 10
    degrees: float = 20.0

    seeded: ClassVar[bool] = True
    examples: ClassVar = Digits().examples

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return 1, self.size, self.size

    def load(self, root: Path, seed: int) -> Source:
        """The digits, turned; `kind` is the rotation group, which depends on the seed. Raises `UsageError`."""
        return rotated(Digits(size=self.size).load(root, seed), self.rotations, self.degrees, seed, _files())
