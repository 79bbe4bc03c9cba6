"""User images that are divided among clients already, as PFLlib's generators write them: two .npz files a client."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.numpy_files import array_headers, read_npz, read_objects
from pflbench.data.pixels import as_pixels, files_in, resized
from pflbench.data.prepared import prepared
from pflbench.data.published import file_errors
from pflbench.data.source import Source
from pflbench.data.user_images import FORMS, Labels, ResizedImages, UserArrays, as_labels, one_each
from pflbench.errors import PflbenchError


@dataclass(frozen=True, kw_only=True)
class ClientsFolder(UserArrays):
    """Your own images of each client from `train/CLIENT.npz` and `test/CLIENT.npz`, as PFLlib writes them.

    A file has the arrays `x` (images) and `y` (labels), or one array `data`, a dictionary of both; of its pickle
    nothing but arrays is read. `range = "-1,1"` suits most of PFLlib's folders. Without `test` there is no test split.

    `kind` is the client, so the partition natural gives each one its rows, and with `query = "partition"` its
    test part. Clients are numbered in the order of their names, or as numbers if all names are numbers.

    Attributes:
        root: The folder.
    """

    root: Path

    name: ClassVar = "clients-folder"

    @cached_property
    def labels(self) -> Labels:
        """The labels of all clients."""
        labels = self.pool.labels
        return as_labels(str(self.root), labels[: self.examples], labels[self.examples :], self.known_classes)

    def files(self, root: Path) -> list[Path]:
        """The files of the clients."""
        return [path for parts in self._clients.values() for path in parts]

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: all training rows, client by client, then all test rows likewise.

        Raises:
            DataMissing: The folder is missing.
            PflbenchError: It has no such files, or one is damaged or has something else.
        """
        return self.source(self.pool.images, self.pool.test, self.pool.clients)

    @cached_property
    def _clients(self) -> dict[str, list[Path]]:
        """Training file and test file, if there is one, of each client, in the order of clients."""
        self.require_folder()
        train, test = (
            {path.stem: path for path in files_in(self.root / part) if path.suffix == ".npz"}
            for part in ("train", "test")
        )
        if not train:
            raise PflbenchError(f"{self.root} has no file train/CLIENT.npz. {FORMS}")
        if new := [path for name, path in test.items() if name not in train]:
            raise PflbenchError(
                f"{self.root} has {len(new)} clients with a test file and no training file, such as {new[0]}: such "
                "clients are not supported, as nothing of them is personalized. Split each client's images in two."
            )
        order = sorted(train, key=(lambda name: (int(name), name)) if all(map(str.isdecimal, train)) else None)
        return {name: [parts[name] for parts in (train, test) if name in parts] for name in order}

    @cached_property
    def pool(self) -> ResizedImages:
        """All clients' training rows, client by client, then their test rows."""
        recipe = f"clients-folder 2 {self.layout} {self.range} {self.size}"
        images, labels, clients, test = prepared(recipe, self.files(self.root), self._read)
        return ResizedImages(images, labels, clients, int(test))

    def _read(self) -> tuple[npt.NDArray[Any], ...]:
        """The pool as arrays: images, labels, clients, and the number of test rows."""
        images, labels, clients, test = [], [], [], 0
        for part in (0, 1):
            for number, paths in enumerate(self._clients.values()):
                x, y = _arrays(paths[part]) if part < len(paths) else (np.empty(0), np.empty(0))
                if not len(y):
                    continue
                images.append(resized(as_pixels(f"{paths[part]}: x", x, self.layout, self.levels()), self.size))
                labels.append(y)
                clients.append(np.full(len(y), number, dtype=np.int64))
                test += part * len(y)
                if images[-1].shape[1:] != images[0].shape[1:]:
                    raise PflbenchError(
                        f"{paths[part]} has images of {images[-1].shape[1:]}, other files of {images[0].shape[1:]} "
                        "(channels, height, width): set a size for all, as in size = 32."
                    )
                if (y.dtype.kind in "US") != (labels[0].dtype.kind in "US"):
                    raise PflbenchError(f"{paths[part]}: y has type {y.dtype}, and other files have {labels[0].dtype}.")
        if not labels or test == sum(map(len, labels)):
            raise PflbenchError(f"{self.root} has no training image. {FORMS}")
        return np.concatenate(images), np.concatenate(labels), np.concatenate(clients), np.array(test)


def _arrays(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Images and labels of a file. Raises `DataMissing` or `PflbenchError`."""
    headers = array_headers(path)
    if headers.keys() == {"data"} and headers["data"].dtype.hasobject:
        arrays = read_objects(path, "data")
    else:
        arrays = {name: read_npz(path, name) for name in headers}
    if not isinstance(arrays, dict) or arrays.keys() != {"x", "y"}:
        raise PflbenchError(f"{path} does not have the arrays x and y alone. {FORMS}")
    with file_errors(f"Cannot read x and y of {path}"):
        x, y = (_plain(np.asarray(arrays[name])) for name in ("x", "y"))
    y = one_each(f"{path}: y", y)
    if y.dtype.kind not in "biufUS":
        raise PflbenchError(f"{path}: y has type {y.dtype} instead of whole numbers or text.")
    if x.shape[:1] != y.shape:
        raise PflbenchError(f"{path}: x has shape {x.shape}, and y {y.shape}: a label for each image.")
    return x, y


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array of the numbers that an array of objects holds."""
    return np.array(array.tolist()) if array.dtype.hasobject else array
