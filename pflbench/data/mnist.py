"""MNIST's training split, upright and rotated (CAFeMe sheet §1.2), from torchvision's layout `MNIST/raw`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pflbench.data.idx import IdxFiles, Split
from pflbench.data.rotation import rotate_by_group, rotation_groups
from pflbench.data.source import Source, content_hash, warn_unofficial

TRAIN = Split("train", 60_000, "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624")
TEST = Split("t10k", 10_000, "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637")
FILES = IdxFiles("MNIST", "mnist", (TRAIN,))


@dataclass(frozen=True)
class MNIST:
    """60,000 handwritten digits, 28x28 gray: MNIST's training split."""

    seeded: ClassVar[bool] = False

    @property
    def examples(self) -> int:
        """Size of the pool."""
        return 60_000

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return 1, 28, 28

    @property
    def classes(self) -> int:
        """Ten digits."""
        return 10

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed. Raises `DataMissing`, or `PflbenchError` for a damaged file."""
        import torch

        images, labels = FILES.read(root)
        warn_unofficial(FILES.sums(root))
        pool = torch.from_numpy(images).unsqueeze(1)
        return Source(pool, labels, None, self.classes, content_hash(images, labels))

    def fetch(self, root: Path) -> None:
        """Download all four MNIST files with torchvision. Raises `DataMissing` if its mirrors fail."""
        FILES.fetch(root)

    def status(self, root: Path) -> str:
        """One line, from the presence and size of the two files."""
        return FILES.status(root)


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
