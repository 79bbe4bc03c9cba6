"""CIFAR-100 by superclass (pFedVEM, Table 1) or by fine class (FedEC), from the official python or binary form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pflbench.data.formats.cifar import Archives
from pflbench.data.source import Normalization, Source, content_hash
from pflbench.errors import unknown

ARCHIVES = Archives(
    "CIFAR-100",
    {
        "cifar-100-python": {
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
        "cifar-100-binary": {
            "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
            "test.bin": "4499cfba6c016c1be1438163640a0898",
        },
    },
    listed=("FOLDER/train and FOLDER/test", "FOLDER/train.bin and FOLDER/test.bin"),
    records=(50_000, 10_000),
    labels={"coarse_labels": 20, "fine_labels": 100},
)
NORMALIZATION = Normalization((0.5074, 0.4867, 0.4411), (0.2011, 0.1987, 0.2025))
"""Those of pFedVEM's code."""
FEDREP = Normalization((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
"""Those of FedRep's code."""


@dataclass(frozen=True)
class CIFAR100:
    """50,000 + 10,000 color images, 32x32, in 20 superclasses of 5 classes: CIFAR-100 with its test split.

    Attributes:
        fine: Whether labels are the 100 classes instead of the superclasses; then there are no kinds.
        normalize: None: pFedVEM's mean and deviation of each channel; "fedrep": FedRep's, as FedEC.
    """

    fine: bool | None = None
    normalize: Literal["fedrep"] | None = None

    seeded: ClassVar[bool] = False
    examples: ClassVar = 50_000
    shape: ClassVar = (3, 32, 32)

    def __post_init__(self) -> None:
        if self.normalize not in (None, "fedrep"):
            raise unknown("value of CIFAR100.normalize", str(self.normalize), ["fedrep"])

    @property
    def classes(self) -> int:
        """Twenty superclasses, or a hundred classes."""
        return 100 if self.fine else 20

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed and either form; `kind` is the fine class, unless labels are.

        `hash` covers the images, the superclasses and the fine classes, whatever the options. Warns once with
        `UnofficialFile` where files are not the official ones.

        Raises:
            DataMissing: Neither form is there.
            PflbenchError: A file is damaged.
        """
        import torch

        images, labels = ARCHIVES.read(root)
        return Source(
            torch.from_numpy(images),
            labels[:, 1 if self.fine else 0].copy(),
            None if self.fine else labels[:, 1].copy(),
            self.classes,
            content_hash(images, labels),
            test=ARCHIVES.records[1],
            normalization=FEDREP if self.normalize else NORMALIZATION,
        )

    def fetch(self, root: Path) -> None:
        """Download the python form with torchvision. Raises `DataMissing` if the download fails."""
        ARCHIVES.fetch(root)

    def status(self, root: Path) -> str:
        """One line, from the presence of the files and, for the binary form, their size."""
        return ARCHIVES.status(root)
