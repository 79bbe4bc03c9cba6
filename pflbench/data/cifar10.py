"""CIFAR-10's training split, from the official python or binary form, whichever the data root holds."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.source import Source, check_labels, content_hash, read_bytes, warn_unofficial
from pflbench.errors import DataMissing, PflbenchError

RECORDS = 10_000
"""Images per file."""
PIXELS = 3 * 32 * 32
PICKLES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
}
"""The python form's files in `cifar-10-batches-py`, with the MD5 torchvision gives for them."""
BINARIES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
}
"""The binary form's files in `cifar-10-batches-bin`, with their official MD5."""

Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class CIFAR10:
    """50,000 color images of 10 kinds of objects, 32x32: CIFAR-10's training split."""

    seeded: ClassVar[bool] = False

    @property
    def examples(self) -> int:
        """Size of the pool."""
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

        files = _files(root)
        if files is None:
            raise DataMissing(f"CIFAR-10 is not there. Run `pflbench data fetch cifar10`, or {_by_hand(root)}.")
        batches = [read_binary(p, RECORDS) if p.suffix == ".bin" else read_pickle(p, RECORDS) for p in files]
        for path, (_, labels) in zip(files, batches, strict=True):
            check_labels(path, labels, self.classes)
        warn_unofficial(files)
        images = np.concatenate([images for images, _ in batches])
        labels = np.concatenate([labels for _, labels in batches])
        return Source(torch.from_numpy(images), labels, None, self.classes, content_hash(images, labels))

    def fetch(self, root: Path) -> None:
        """Download the python form with torchvision. Raises `DataMissing` if the download fails."""
        if _files(root) is not None:
            return
        from torchvision.datasets import CIFAR10 as Download

        try:
            Download(root, download=True)
        except Exception as error:  # torchvision lets through what urllib, tarfile and pickle raise
            raise DataMissing(f"Downloading CIFAR-10 failed ({error}). To go on, {_by_hand(root)}.") from error

    def status(self, root: Path) -> str:
        """One line, from the presence of the files and, for the binary form, their size."""
        files = _files(root)
        if files is None:
            return f"missing: {_wanted(root)}"
        for path in files:
            if path.suffix == ".bin" and path.stat().st_size != RECORDS * (1 + PIXELS):
                return f"missing: {path} is damaged (wrong size)"
        return f"ready: {len(files) * RECORDS:,} images in {next(iter(files)).parent}"


def read_binary(path: Path, records: int) -> Batch:
    """A file of the binary form: per image one label byte, then the red, green and blue planes, row by row.

    Args:
        path: The file.
        records: How many images it must hold.

    Returns:
        Images uint8 ["records", 3, 32, 32] and labels int64 ["records"].

    Raises:
        PflbenchError: The file is unreadable or has another size.
    """
    rows = read_bytes(path, records * (1 + PIXELS)).reshape(records, 1 + PIXELS)
    return rows[:, 1:].reshape(records, 3, 32, 32), rows[:, 0].astype(np.int64)


def read_pickle(path: Path, records: int) -> Batch:
    """A file of the python form: a pickled dict with `data`, uint8 ["records", 3072], and a list `labels`.

    Only what an array needs is unpickled, so that a file from elsewhere cannot run code. Arguments and results are
    those of `read_binary`.

    Raises:
        PflbenchError: The file is unreadable, no such pickle, or holds another number of images.
    """
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy on the Python 2 dtypes in the official files
            batch = _ArrayUnpickler(file, encoding="latin1").load()
        images, labels = np.asarray(batch["data"]), np.asarray(batch["labels"], dtype=np.int64)
    except Exception as error:  # a damaged pickle raises anything
        raise PflbenchError(f"{path} is not a CIFAR-10 batch ({type(error).__name__}: {error}).") from error
    if images.dtype != np.uint8 or images.shape != (records, PIXELS) or labels.shape != (records,):
        raise PflbenchError(f"{path} does not hold {records:,} images of 3x32x32 bytes with labels: fetch it again.")
    return images.reshape(records, 3, 32, 32), labels


class _ArrayUnpickler(pickle.Unpickler):
    allowed = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def _files(root: Path) -> dict[Path, str] | None:
    """The training files of the first form that is complete, with their official MD5; None if none is."""
    for folder, sums in (("cifar-10-batches-py", PICKLES), ("cifar-10-batches-bin", BINARIES)):
        files = {root / folder / name: md5 for name, md5 in sums.items()}
        if all(path.is_file() for path in files):
            return files
    return None


def _wanted(root: Path) -> str:
    python, binary = root / "cifar-10-batches-py", root / "cifar-10-batches-bin"
    return f"{python}/data_batch_1 … _5, or {binary}/data_batch_1.bin … _5.bin"


def _by_hand(root: Path) -> str:
    return f"unpack either official archive so that these files exist: {_wanted(root)}"
