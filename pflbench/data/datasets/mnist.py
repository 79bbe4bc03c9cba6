"""MNIST's training split, from torchvision's layout `MNIST/raw`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pflbench.data.formats.idx import IdxFiles, IdxSplit
from pflbench.data.source import Source, content_hash, warn_unofficial

TRAIN = IdxSplit("train", 60_000, "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624")
TEST = IdxSplit("t10k", 10_000, "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637")
FILES = IdxFiles("MNIST", "mnist", (TRAIN,))


@dataclass(frozen=True)
class MNIST:
    """60,000 handwritten digits, 28x28 gray: MNIST's training split."""

    seeded: ClassVar[bool] = False
    examples: ClassVar = 60_000
    shape: ClassVar = (1, 28, 28)
    classes: ClassVar = 10

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
