"""CIFAR-10, from the official python or binary form, whichever the data root holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pflbench.data.formats.cifar import Archives
from pflbench.data.source import Normalization, Source, content_hash
from pflbench.errors import UsageError

RECORDS = 10_000
"""Images per file."""
PICKLES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
}
"""The python form's training files in `cifar-10-batches-py`, with the MD5 torchvision gives for them."""
BINARIES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
}
"""The binary form's training files in `cifar-10-batches-bin`, with their official MD5."""
TEST_PICKLE = {"test_batch": "40351d587109b95175f43aff81a1287e"}
TEST_BINARY = {"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"}
NORMALIZATION = Normalization((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
"""Those of pFedVEM's code."""
IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""ImageNet's, which FedRep's code takes for CIFAR-10."""


@dataclass(frozen=True)
class CIFAR10:
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

    def __post_init__(self) -> None:
        if isinstance(self.normalize, str) and self.normalize != "imagenet":
            raise UsageError(f'CIFAR10: normalize = {self.normalize!r} must be true, false or "imagenet".')

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed and either form. Raises `DataMissing`, or `PflbenchError` for a damaged file.

        Warns once with `UnofficialFile` where files are not the official ones.
        """
        import torch

        images, labels = self._archives.read(root)
        labels = labels[:, 0]
        test, normalization = RECORDS if self.test else 0, self._normalization
        hash = content_hash(images, labels)
        return Source(torch.from_numpy(images), labels, None, self.classes, hash, test, normalization)

    def fetch(self, root: Path) -> None:
        """Download the python form with torchvision. Raises `DataMissing` if the download fails."""
        self._archives.fetch(root)

    def status(self, root: Path) -> str:
        """One line, from the presence of the files and, for the binary form, their size."""
        return self._archives.status(root)

    @property
    def _normalization(self) -> Normalization | None:
        if self.normalize == "imagenet":
            return IMAGENET
        return NORMALIZATION if self.normalize else None

    @property
    def _archives(self) -> Archives:
        tests = (TEST_PICKLE, TEST_BINARY) if self.test else ({}, {})
        forms = {"cifar-10-batches-py": PICKLES | tests[0], "cifar-10-batches-bin": BINARIES | tests[1]}
        names = ("FOLDER/data_batch_1 … _5", "FOLDER/data_batch_1.bin … _5.bin")
        listed = [f"{name} and {next(iter(test))}" if test else name for name, test in zip(names, tests, strict=True)]
        return Archives("CIFAR-10", forms, listed, [RECORDS] * (6 if self.test else 5), {"labels": 10})
