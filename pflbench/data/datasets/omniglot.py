"""Omniglot in torchvision's layout, as a dataset of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pflbench.data.datasets.image_sources import Characters
from pflbench.data.source import Source
from pflbench.errors import DataMissing, UsageError


@dataclass(frozen=True)
class Omniglot:
    """32,460 gray handwritten characters, black on white: 1,623 classes of 50 alphabets, 20 images each.

    Attributes:
        size: Height and width, in pixels; the files have 105.
    """

    size: int = 28

    seeded: ClassVar[bool] = False
    examples: ClassVar = 1623 * 20
    classes: ClassVar = Characters.classes

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"Omniglot: size = {self.size} must be positive.")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return 1, self.size, self.size

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed; `kind` is the alphabet.

        The 30 alphabets of the background set come first, then the other 20, in either case by name, as their
        characters.

        Raises:
            DataMissing: A folder is not there.
            PflbenchError: A file is damaged, or a character is not there.
        """
        import torch

        source = Characters(self.size)
        images, counts, hash = source.load(root)
        alphabets = [character.parent.name for character in source.characters(root)]
        order = list(dict.fromkeys(alphabets))
        kind = np.repeat(np.array([order.index(name) for name in alphabets], dtype=np.int64), counts)
        labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        return Source(torch.from_numpy(images), labels, kind, self.classes, hash)

    def fetch(self, root: Path) -> None:
        """Download it with torchvision, unless it is there. Raises `DataMissing` if the download fails."""
        source = Characters()
        if source.missing(root):
            try:
                source.fetch(root)
            except Exception as error:  # torchvision lets through what urllib and zipfile raise
                raise DataMissing(f"Downloading Omniglot failed ({error}). {source.how(root)}") from error

    def status(self, root: Path) -> str:
        """One line, from the presence of the two folders."""
        if missing := Characters().missing(root):
            return f"missing: {', '.join(missing)}"
        return f"ready: {self.examples:,} images in {root / 'omniglot-py'}"
