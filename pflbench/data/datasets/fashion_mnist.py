"""Fashion-MNIST with its test split (pFedVEM, Table 1), from torchvision's layout `FashionMNIST/raw`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pflbench.data.formats.idx import IdxFiles, IdxSplit
from pflbench.data.source import Normalization, Source, content_hash, warn_unofficial

TRAIN = IdxSplit("train", 60_000, "f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9")
TEST = IdxSplit("t10k", 10_000, "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965")
FILES = IdxFiles("FashionMNIST", "fashion-mnist", (TRAIN, TEST))
NORMALIZATION = Normalization((0.2860,), (0.3530,))
"""The mean and deviation of the training split; the paper names none."""


@dataclass(frozen=True)
class FashionMNIST:
    """60,000 + 10,000 gray images of ten kinds of clothing, 28x28: Fashion-MNIST with its test split."""

    seeded: ClassVar[bool] = False
    examples: ClassVar = 60_000
    shape: ClassVar = (1, 28, 28)
    classes: ClassVar = 10

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, training rows first. Raises `DataMissing`, or `PflbenchError` if damaged.

        Warns once with `UnofficialFile` where files are not the official ones.
        """
        import torch

        images, labels = FILES.read(root)
        warn_unofficial(FILES.sums(root))
        return Source(
            torch.from_numpy(images).unsqueeze(1),
            labels,
            None,
            self.classes,
            content_hash(images, labels),
            test=FILES.splits[-1].count,
            normalization=NORMALIZATION,
        )

    def fetch(self, root: Path) -> None:
        """Download all four files with torchvision. Raises `DataMissing` if its mirrors fail."""
        FILES.fetch(root)

    def status(self, root: Path) -> str:
        """One line, from the presence and size of the four files."""
        return FILES.status(root)
