"""What CIFAR-10 and CIFAR-100 share: their official python and binary forms, whichever the data root holds."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pflbench.data.source import check_labels, read_bytes, warn_unofficial
from pflbench.errors import DataMissing, PflbenchError

PIXELS = 3 * 32 * 32

Forms = Mapping[str, Mapping[str, str]]
"""Folder of a form → its files, in the order of the pool, with their official MD5."""
Labels = Mapping[str, int]
"""Key in the python form → number of classes, in the order of the binary form's label bytes."""
Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Images uint8 ["records", 3, 32, 32] and labels int64 ["records", "labels"]."""


@dataclass(frozen=True)
class Archives:
    """A dataset's official forms, of which the data root needs one.

    Attributes:
        name: What it is called in messages: CIFAR-10.
        forms: Their files.
        listed: The files of each form in words, for messages.
        records: How many images each file of a form holds.
        labels: The labels of an image.
    """

    name: str
    forms: Forms
    listed: Sequence[str]
    records: Sequence[int]
    labels: Labels

    def files(self, root: Path) -> dict[Path, str] | None:
        """The files of the first form that is complete, with their official MD5; None if none is."""
        for folder, sums in self.forms.items():
            files = {root / folder / name: md5 for name, md5 in sums.items()}
            if all(path.is_file() for path in files):
                return files
        return None

    def read(self, root: Path) -> Batch:
        """All files one after the other. Warns once with `UnofficialFile` where files are not the official ones.

        Raises:
            DataMissing: No form is there.
            PflbenchError: A file is damaged; the message names it.
        """
        files = self.files(root)
        if files is None:
            command = self.name.lower().replace("-", "")
            raise DataMissing(
                f"{self.name} is not there. Run `pflbench data fetch {command}`, or {self._by_hand(root)}."
            )
        batches = []
        for path, count in zip(files, self.records, strict=True):
            if path.suffix == ".bin":
                batch = read_binary(path, count, len(self.labels))
            else:
                batch = read_pickle(path, count, tuple(self.labels))
            for column, classes in zip(batch[1].T, self.labels.values(), strict=True):
                check_labels(path, column, classes)
            batches.append(batch)
        warn_unofficial(files)
        return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])

    def fetch(self, root: Path) -> None:
        """Download the python form with torchvision, unless a form is there. Raises `DataMissing` if that fails."""
        if self.files(root) is not None:
            return
        from torchvision import datasets

        try:
            getattr(datasets, self.name.replace("-", ""))(root, download=True)
        except Exception as error:  # torchvision lets through what urllib, tarfile and pickle raise
            raise DataMissing(f"Downloading {self.name} failed ({error}). To go on, {self._by_hand(root)}.") from error

    def status(self, root: Path) -> str:
        """One line, from the presence of the files and, for the binary form, their size."""
        files = self.files(root)
        if files is None:
            return f"missing: {self._wanted(root)}"
        for path, count in zip(files, self.records, strict=True):
            if path.suffix == ".bin" and path.stat().st_size != count * (len(self.labels) + PIXELS):
                return f"missing: {path} is damaged (wrong size)"
        return f"ready: {sum(self.records):,} images in {next(iter(files)).parent}"

    def _wanted(self, root: Path) -> str:
        return ", or ".join(
            files.replace("FOLDER", str(root / f)) for f, files in zip(self.forms, self.listed, strict=True)
        )

    def _by_hand(self, root: Path) -> str:
        return f"unpack either official archive so that these files exist: {self._wanted(root)}"


def read_binary(path: Path, records: int, labels: int) -> Batch:
    """A file of the binary form: per image the label bytes, then the red, green and blue planes, row by row.

    Args:
        path: The file.
        records: How many images it must hold.
        labels: How many label bytes an image has.

    Raises:
        PflbenchError: The file is unreadable or has another size.
    """
    rows = read_bytes(path, records * (labels + PIXELS)).reshape(records, labels + PIXELS)
    return rows[:, labels:].reshape(records, 3, 32, 32), rows[:, :labels].astype(np.int64)


def read_pickle(path: Path, records: int, keys: Sequence[str]) -> Batch:
    """A file of the python form: a pickled dict with `data`, uint8 ["records", 3072], and a list for each of `keys`.

    Only what an array needs is unpickled, so that a file from elsewhere cannot run code.

    Raises:
        PflbenchError: The file is unreadable, no such pickle, or holds another number of images.
    """
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy on the Python 2 dtypes in the official files
            batch = _ArrayUnpickler(file, encoding="latin1").load()
        images = np.asarray(batch["data"])
        labels = np.stack([np.asarray(batch[key], dtype=np.int64) for key in keys], axis=-1)
    except Exception as error:  # a damaged pickle raises anything
        raise PflbenchError(f"{path} is not a CIFAR batch ({type(error).__name__}: {error}).") from error
    if images.dtype != np.uint8 or images.shape != (records, PIXELS) or labels.shape != (records, len(keys)):
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
