"""CIFAR-10, and CIFAR-100 by superclass (pFedVEM, Table 1) or by fine class (FedEC)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pflbench.data.formats.cifar import Archives
from pflbench.data.source import Normalization, Source, content_hash
from pflbench.errors import UsageError, unknown

PFEDVEM = Normalization((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
"""Those of pFedVEM's code for CIFAR-10."""
IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""ImageNet's, which FedRep's code takes for CIFAR-10."""
PFEDVEM_100 = Normalization((0.5074, 0.4867, 0.4411), (0.2011, 0.1987, 0.2025))
"""Those of pFedVEM's code for CIFAR-100."""
FEDREP_100 = Normalization((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
"""Those of FedRep's code for CIFAR-100."""


@dataclass(frozen=True)
class CIFAR10(Archives):
    """50,000 color images of 10 kinds of objects, 32x32: CIFAR-10, with its test split on request.

    Attributes:
        test: Whether the pool ends with the 10,000 images of the test split.
        normalize: Whether images are normalized with pFedVEM's mean and deviation of each channel, or "imagenet": with
            ImageNet's, as FedEC and FedRep.
    """

    test: bool | None = None
    normalize: bool | Literal["imagenet"] | None = None

    seeded: ClassVar[bool] = False
    examples: ClassVar = 50_000
    shape: ClassVar = (3, 32, 32)
    classes: ClassVar = 10

    name: ClassVar = "CIFAR-10"
    command: ClassVar = "cifar10"
    forms: ClassVar = {
        "cifar-10-batches-py": {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
        "cifar-10-batches-bin": {
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        },
    }
    records: ClassVar = (10_000,) * 6
    labels: ClassVar = {"labels": 10}

    def __post_init__(self) -> None:
        if isinstance(self.normalize, str) and self.normalize != "imagenet":
            raise UsageError(f'CIFAR10: normalize = {self.normalize!r} must be true, false or "imagenet".')

    @property
    def used(self) -> int:
        """Five files, and that of the test split on request."""
        return 6 if self.test else 5

    @property
    def listed(self) -> str:
        """These files in words."""
        return "{folder}/data_batch_1{bin} … _5{bin}" + (" and test_batch{bin}" if self.test else "")

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed and either form. Raises `DataMissing`, or `PflbenchError` for a damaged file.

        Warns once with `UnofficialFile` where files are not the official ones.
        """
        import torch

        images, labels = self.read(root)
        return Source(
            torch.from_numpy(images),
            labels[:, 0],
            None,
            self.classes,
            content_hash(images, labels),
            test=self.records[-1] if self.test else 0,
            normalization=IMAGENET if self.normalize == "imagenet" else PFEDVEM if self.normalize else None,
        )


@dataclass(frozen=True)
class CIFAR100(Archives):
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

    name: ClassVar = "CIFAR-100"
    command: ClassVar = "cifar100"
    forms: ClassVar = {
        "cifar-100-python": {
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
        "cifar-100-binary": {
            "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
            "test.bin": "4499cfba6c016c1be1438163640a0898",
        },
    }
    listed: ClassVar = "{folder}/train{bin} and {folder}/test{bin}"
    records: ClassVar = (50_000, 10_000)
    labels: ClassVar = {"coarse_labels": 20, "fine_labels": 100}

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

        images, labels = self.read(root)
        return Source(
            torch.from_numpy(images),
            labels[:, 1 if self.fine else 0].copy(),
            None if self.fine else labels[:, 1].copy(),
            self.classes,
            content_hash(images, labels),
            test=self.records[1],
            normalization=FEDREP_100 if self.normalize else PFEDVEM_100,
        )
