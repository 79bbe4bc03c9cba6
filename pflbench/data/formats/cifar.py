"""What CIFAR-10 and CIFAR-100 share: their official python and binary forms, whichever the data root holds."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.formats.published import Downloaded, Known, reading, warn_unofficial
from pflbench.data.source import check_labels, read_bytes
from pflbench.errors import PflbenchError

PIXELS = 3 * 32 * 32

Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Images uint8 ["records", 3, 32, 32] and labels int64 ["records", "labels"]."""


class Archives(Downloaded):
    """Base of a dataset with two official forms, of which the data root needs one."""

    by_hand: ClassVar = "unpack either official archive so that these files exist"
    forms: ClassVar[Mapping[str, Mapping[str, str]]]
    """Folder of a form → its files, in the order of the pool, with their official MD5."""
    records: ClassVar[Sequence[int]]
    """How many images each file of a form holds."""
    labels: ClassVar[Mapping[str, int]]
    """Key in the python form → number of classes, in the order of the binary form's label bytes."""

    @property
    def used(self) -> int:
        """How many files of a form are used."""
        return len(self.records)

    @property
    def listed(self) -> str:
        """These files in words, where {folder} and {bin} are a form's."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Number of images."""
        return sum(self.records[: self.used])

    def parts(self, root: Path) -> dict[Path, Known]:
        """The files of the first form that is complete; none if neither is."""
        for folder, sums in self.forms.items():
            files = [(root / folder / name, md5) for name, md5 in sums.items()][: self.used]
            if all(path.is_file() for path, _ in files):
                sizes = [records * (len(self.labels) + PIXELS) for records in self.records]
                return {
                    path: Known(md5, size if path.suffix else None)
                    for (path, md5), size in zip(files, sizes, strict=False)
                }
        return {}

    def missing(self, root: Path) -> list[str]:
        """The files of both forms, unless one is complete."""
        if self.parts(root):
            return []
        suffixes = {folder: Path(next(iter(sums))).suffix for folder, sums in self.forms.items()}
        return [", or ".join(self.listed.format(folder=root / folder, bin=bin) for folder, bin in suffixes.items())]

    def read(self, root: Path) -> Batch:
        """All files one after the other. Warns once with `UnofficialFile` where files are not the official ones.

        Raises:
            DataMissing: No form is there.
            PflbenchError: A file is damaged; the message names it.
        """
        self.require(root)
        parts = self.parts(root)
        batches = [self._batch(path, records) for path, records in zip(parts, self.records, strict=False)]
        warn_unofficial(parts)
        return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])

    def _batch(self, path: Path, records: int) -> Batch:
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


def read_pickle(path: Path, records: int, keys: Sequence[str]) -> Batch:
    """A file of the python form: a pickled dict with `data`, uint8 ["records", 3072], and a list for each of `keys`.

    Only what an array needs is unpickled, so that a file from elsewhere cannot run code.

    Raises:
        PflbenchError: The file is unreadable, no such pickle, or holds another number of images.
    """
    with reading(f"{path} is not a CIFAR batch"), path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy on the Python 2 dtypes in the official files
        batch = _ArrayUnpickler(file, encoding="latin1").load()
        images = np.asarray(batch["data"])
        labels = np.stack([np.asarray(batch[key], dtype=np.int64) for key in keys], axis=-1)
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
