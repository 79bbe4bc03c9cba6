"""A dataset that needs no files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pflbench.data.source import Source, content_hash


@dataclass(frozen=True)
class Stripes:
    """8x8 images with one bright column, which is the class."""

    rows: int = 400

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, 8, 8

    @property
    def classes(self) -> int:
        return 8

    def load(self, root: Path, seed: int) -> Source:
        import torch

        random = np.random.RandomState(0)
        labels = random.randint(self.classes, size=self.rows)
        images = random.randint(100, size=(self.rows, *self.shape)).astype(np.uint8)
        images[np.arange(self.rows), 0, :, labels] = 255
        return Source(torch.from_numpy(images), labels, None, self.classes, content_hash(images, labels))

    def fetch(self, root: Path) -> None:
        pass

    def status(self, root: Path) -> str:
        return "ready: generated"
