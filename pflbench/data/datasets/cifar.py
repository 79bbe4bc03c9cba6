"""CIFAR-10, and CIFAR-100 by superclass (pFedVEM, Table 1) or by fine class (FedEC).

Both come in an official python and an official binary form; either is read, whichever the data root holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pflbench.data.numpy_files import read_arrays
from pflbench.data.prepared import prepared
from pflbench.data.published import Download, Downloaded, Expected, file_errors, warn_unofficial
from pflbench.data.source import HALF, Normalization, Source, check_labels, read_bytes
from pflbench.errors import PflbenchError, UsageError, unknown

PIXELS = 3 * 32 * 32
RECORDS = 10_000
"""Images per file of CIFAR-10."""
PFEDVEM = Normalization((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
"""Mean and deviation of pFedVEM's code for CIFAR-10."""
IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""ImageNet's, which FedRep's code takes for CIFAR-10."""
PFEDVEM_100 = Normalization((0.5074, 0.4867, 0.4411), (0.2011, 0.1987, 0.2025))
"""Mean and deviation of pFedVEM's code for CIFAR-100."""
FEDREP_100 = Normalization((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
"""Mean and deviation of FedRep's code for CIFAR-100."""
NORMALIZATIONS_100: dict[str | None, Normalization] = {None: PFEDVEM_100, "fedrep": FEDREP_100, "half": HALF}
"""Those of CIFAR-100, by its option."""

Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Images uint8 ["records", 3, 32, 32] and labels int64 ["records", "labels"]."""


class Archives(Downloaded):
    """Base of a dataset with two official forms, of which the data root needs one."""

    by_hand: ClassVar = "unpack either official archive so that these files exist"
    merged: bool | None = None
    forms: ClassVar[Mapping[str, Mapping[str, str]]]
    """Folder of a form → its files, in the order of the pool, with their official MD5."""
    labels: ClassVar[Mapping[str, int]]
    """Key in the python form → number of classes, in the order of the binary form's label bytes."""

    @property
    def records(self) -> Sequence[int]:
        """Number of images in each file of a form that is read."""
        raise NotImplementedError

    @property
    def examples(self) -> int:
        """Images that are dealt to clients: those of the training split, or of both."""
        return sum(self.records) if self.merged else 50_000

    @property
    def listed(self) -> str:
        """These files in words, where {folder} and {bin} are a form's."""
        raise NotImplementedError

    def parts(self, root: Path) -> dict[Path, Expected]:
        """The files of the first form that is complete; none if neither is."""
        for folder, sums in self.forms.items():
            parts = {}
            for (name, md5), records in zip(sums.items(), self.records, strict=False):
                size = records * (len(self.labels) + PIXELS) if name.endswith(".bin") else None
                parts[root / folder / name] = Expected(md5, size, records)
            if all(path.is_file() for path in parts):
                return parts
        return {}

    def missing(self, root: Path) -> list[str]:
        """The files of both forms, unless one is complete."""
        if self.parts(root):
            return []
        suffixes = {folder: Path(next(iter(sums))).suffix for folder, sums in self.forms.items()}
        return [", or ".join(self.listed.format(folder=root / folder, bin=bin) for folder, bin in suffixes.items())]

    def read(self, root: Path, test: int, normalization: Normalization | None, fine: bool | None = None) -> Source:
        """The pool, whose last `test` rows are the test split unless it is `merged`; `hash` covers images and labels.

        `fine`: labels are the last column; else the first, and the last one is the kinds if there
        are two. Warns once with `UnofficialFile` where files are not the official ones.

        Raises:
            DataMissing: No form is there.
            PflbenchError: A file is damaged; the message names it.
        """
        self.require(root)
        parts = self.parts(root)
        images, labels = prepared(f"{self.name}: 1", list(parts), lambda: self.batches(parts))
        warn_unofficial(parts)
        kind = None if fine or len(self.labels) == 1 else labels[:, -1].copy()
        label, classes = labels[:, -1 if fine else 0].copy(), list(self.labels.values())[-1 if fine else 0]
        return Source.of(
            images, label, classes, kind, hashed=labels, test=0 if self.merged else test, normalization=normalization
        )

    def batches(self, parts: Mapping[Path, Expected]) -> Batch:
        """The files of a form one after another. Raises `PflbenchError` naming a damaged one."""
        batches = [self.batch(path, known.images) for path, known in parts.items()]
        return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])

    def batch(self, path: Path, records: int) -> Batch:
        """A file of either form; of the binary one: per image the label bytes, then red, green and blue, row by row."""
        if path.suffix:
            n = len(self.labels)
            rows = read_bytes(path, records * (n + PIXELS)).reshape(records, n + PIXELS)
            images, labels = rows[:, n:].reshape(records, 3, 32, 32), rows[:, :n].astype(np.int64)
        else:
            images, labels = read_pickle(path, records, tuple(self.labels))
        for column, classes in zip(labels.T, self.labels.values(), strict=True):
            check_labels(path, column, classes)
        return images, labels


@dataclass(frozen=True)
class CIFAR10(Archives):
    """50,000 color images of 10 kinds of objects, 32x32: CIFAR-10, with its test split on request.

    Attributes:
        test: Whether the pool ends with the 10,000 images of the test split.
        normalize: Whether images are normalized with pFedVEM's mean and deviation of each channel; "imagenet": with
            ImageNet's, as FedEC and FedRep; "half": to values from -1 to 1, as PFLlib.
        merged: Whether the test split's images are dealt like the others, so that there is no test split.
    """

    test: bool | None = None
    normalize: bool | Literal["imagenet", "half"] | None = None
    merged: bool | None = None

    seeded: ClassVar[bool] = False
    shape: ClassVar = (3, 32, 32)
    classes: ClassVar = 10

    name: ClassVar = "CIFAR-10"
    downloads: ClassVar = (Download("CIFAR10"),)
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
    labels: ClassVar = {"labels": 10}

    def __post_init__(self) -> None:
        if isinstance(self.normalize, str) and self.normalize not in ("imagenet", "half"):
            raise UsageError(f'CIFAR10: normalize = {self.normalize!r} must be true, false, "imagenet" or "half".')

    @property
    def records(self) -> Sequence[int]:
        """Images of five files, and of the test split's on request."""
        return (RECORDS,) * (6 if self.test or self.merged else 5)

    @property
    def listed(self) -> str:
        """These files in words."""
        return "{folder}/data_batch_1{bin} … _5{bin}" + (" and test_batch{bin}" if self.test or self.merged else "")

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed and either form. Warns and raises as `read`."""
        named = {"imagenet": IMAGENET, "half": HALF}
        normalization = named.get(str(self.normalize), PFEDVEM if self.normalize else None)
        return self.read(root, RECORDS if self.test else 0, normalization)


@dataclass(frozen=True)
class CIFAR100(Archives):
    """50,000 + 10,000 color images, 32x32, in 20 superclasses of 5 classes: CIFAR-100 with its test split.

    Attributes:
        fine: Whether labels are the 100 classes instead of the superclasses; then there are no kinds.
        normalize: None: pFedVEM's mean and deviation of each channel; "fedrep": FedRep's, as FedEC; "half": values from
            -1 to 1, as PFLlib's.
        merged: Whether the test split's images are dealt like the others, so that there is no test split.
    """

    fine: bool | None = None
    normalize: Literal["fedrep", "half"] | None = None
    merged: bool | None = None

    seeded: ClassVar[bool] = False
    shape: ClassVar = (3, 32, 32)

    name: ClassVar = "CIFAR-100"
    downloads: ClassVar = (Download("CIFAR100"),)
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
        if self.normalize not in NORMALIZATIONS_100:
            raise unknown(
                "value of CIFAR100.normalize", str(self.normalize), [name for name in NORMALIZATIONS_100 if name]
            )

    @property
    def classes(self) -> int:
        """Twenty superclasses, or a hundred classes."""
        return 100 if self.fine else 20

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed and either form; `kind` is the fine class, unless labels are.

        Warns and raises as `read`.
        """
        return self.read(root, self.records[1], NORMALIZATIONS_100[self.normalize], self.fine)


def read_pickle(path: Path, records: int, keys: Sequence[str]) -> Batch:
    """A file of the python form: a pickled dict with `data`, uint8 ["records", 3072], and a list for each of `keys`.

    Raises:
        PflbenchError: The file is unreadable, no such pickle, or holds another number of images.
    """
    with file_errors(f"{path} is not a CIFAR batch"):
        batch = read_arrays(path)
        images = np.asarray(batch["data"])
        labels = np.stack([np.asarray(batch[key], dtype=np.int64) for key in keys], axis=-1)
    if images.dtype != np.uint8 or images.shape != (records, PIXELS) or labels.shape != (records, len(keys)):
        raise PflbenchError(f"{path} does not hold {records:,} images of 3x32x32 bytes with labels: fetch it again.")
    return images.reshape(records, 3, 32, 32), labels
