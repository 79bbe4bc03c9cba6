"""scikit-learn's bundled 8x8 digits, plain and rotated: real datasets that need no files, for smoke runs and tests."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.mnist import rotated
from pflbench.data.prepared import prepared
from pflbench.data.source import Source, content_hash
from pflbench.errors import UsageError
from pflbench.hyper import hyper
from pflbench.rng import stream

_COUNT = 1797


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

    Test rows, sources and writers are the same for every seed. Of `coarse`, `sources` and `writers`, which define the
    kinds, a dataset has one.
    """

    channels: int = hyper(1, "Copies of the gray channel.", least=1)
    size: int = hyper(28, "Height and width, in pixels.", least=1)
    test: int | None = hyper(None, "Images of the test split.", least=1, below=1797)
    coarse: bool | None = hyper(
        None, "Labels are five pairs of digits, kinds the digits: in place of CIFAR-100 and SUN397."
    )
    sources: int | None = hyper(
        None, "Sources with random images, kinds 10 * source + digit: in place of Digit-Five.", least=1, most=1797
    )
    writers: int | None = hyper(
        None, "Writers with unequal numbers of random images, as kinds: in place of FEMNIST.", least=1, most=1797
    )

    def __post_init__(self) -> None:
        if sum([bool(self.coarse), self.sources is not None, self.writers is not None]) > 1:
            raise UsageError("Digits: coarse, sources and writers exclude each other: set one of them.")

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
        hash = content_hash(original, digits)
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
            hash,
            test=self.test or 0,
        )


def _files() -> list[Path]:
    """scikit-learn's file of the digits, found without importing it (seconds); none if it lies elsewhere."""
    spec = find_spec("sklearn")
    path = Path(spec.origin or "").parent / "datasets" / "data" / "digits.csv.gz" if spec else Path()
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

    size: int = hyper(28, "Height and width, in pixels.", least=1)
    rotations: int = hyper(10, "Rotation groups.", least=1)
    degrees: float = hyper(20.0, "Angle between two groups, counter-clockwise.")

    seeded: ClassVar[bool] = True
    examples: ClassVar = Digits().examples

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return 1, self.size, self.size

    def load(self, root: Path, seed: int) -> Source:
        """The digits, turned; `kind` is the rotation group, which depends on the seed. Raises `UsageError`."""
        return rotated(Digits(size=self.size).load(root, seed), self.rotations, self.degrees, seed, _files())
