"""CIFAR-10, from the official python or binary form, whichever the data root holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pflbench.data.formats import cifar
from pflbench.data.source import Normalization, Source, content_hash, warn_unofficial
from pflbench.errors import DataMissing, UsageError

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
LABELS = {"labels": 10}


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

    def __post_init__(self) -> None:
        if isinstance(self.normalize, str) and self.normalize != "imagenet":
            raise UsageError(f'CIFAR10: normalize = {self.normalize!r} must be true, false or "imagenet".')

    @property
    def examples(self) -> int:
        """Size of the training split."""
        return 50_000

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return 3, 32, 32

    @property
    def classes(self) -> int:
        """Ten kinds of objects."""
        return 10

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed and either form. Raises `DataMissing`, or `PflbenchError` for a damaged file.

        Warns once with `UnofficialFile` where files are not the official ones.
        """
        import torch

        files = self._files(root)
        if files is None:
            raise DataMissing(f"CIFAR-10 is not there. Run `pflbench data fetch cifar10`, or {self._by_hand(root)}.")
        images, labels = cifar.read_files(files, [RECORDS] * len(files), LABELS)
        labels = labels[:, 0]
        warn_unofficial(files)
        return Source(
            torch.from_numpy(images),
            labels,
            None,
            self.classes,
            content_hash(images, labels),
            test=RECORDS if self.test else 0,
            normalization=self._normalization,
        )

    def fetch(self, root: Path) -> None:
        """Download the python form with torchvision. Raises `DataMissing` if the download fails."""
        if self._files(root) is not None:
            return
        from torchvision.datasets import CIFAR10 as Download

        try:
            Download(root, download=True)
        except Exception as error:  # torchvision lets through what urllib, tarfile and pickle raise
            raise DataMissing(f"Downloading CIFAR-10 failed ({error}). To go on, {self._by_hand(root)}.") from error

    def status(self, root: Path) -> str:
        """One line, from the presence of the files and, for the binary form, their size."""
        files = self._files(root)
        if files is None:
            return f"missing: {self._wanted(root)}"
        if path := cifar.damaged(files, [RECORDS] * len(files), LABELS):
            return f"missing: {path} is damaged (wrong size)"
        return f"ready: {len(files) * RECORDS:,} images in {next(iter(files)).parent}"

    @property
    def _normalization(self) -> Normalization | None:
        if self.normalize == "imagenet":
            return IMAGENET
        return NORMALIZATION if self.normalize else None

    def _files(self, root: Path) -> dict[Path, str] | None:
        python = PICKLES | TEST_PICKLE if self.test else PICKLES
        binary = BINARIES | TEST_BINARY if self.test else BINARIES
        return cifar.find_files(root, {"cifar-10-batches-py": python, "cifar-10-batches-bin": binary})

    def _wanted(self, root: Path) -> str:
        python, binary = root / "cifar-10-batches-py", root / "cifar-10-batches-bin"
        tests = (" and test_batch", " and test_batch.bin") if self.test else ("", "")
        return f"{python}/data_batch_1 … _5{tests[0]}, or {binary}/data_batch_1.bin … _5.bin{tests[1]}"

    def _by_hand(self, root: Path) -> str:
        return f"unpack either official archive so that these files exist: {self._wanted(root)}"
