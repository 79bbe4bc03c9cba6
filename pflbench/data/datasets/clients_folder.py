"""A user's own images that are divided among clients already."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.client_files import Part, Share, files_of_clients, shares
from pflbench.data.labels import Labels, numbered
from pflbench.data.own import OwnArrays
from pflbench.data.pixels import Pixels, Shape, as_pixels, resized
from pflbench.data.prepared import prepared
from pflbench.data.published import reading
from pflbench.data.source import Source
from pflbench.errors import PflbenchError, UsageError


class _Pool(NamedTuple):
    """All clients' training rows, client by client, then their test rows."""

    images: Pixels
    labels: npt.NDArray[Any]
    clients: npt.NDArray[np.int64]
    test: int


@dataclass(frozen=True, kw_only=True)
class ClientsFolder(OwnArrays):
    """Your own images from a folder with a .npz or .json file for each client, each with its training and test part.

    `client.npz` or `client.json` with `images` and `labels` (or `x` and `y`), and `test_images` and `test_labels` if it
    has a test part; or `train/client.npz` and `test/client.npz` with `images` and `labels` each. So PFLlib's files are
    read (`range = "-1,1"` suits most of them), LEAF's JSON, which has many clients in a file, and FL-bench's
    `data.npy`, `targets.npy` and `partition.pkl` (its validation rows are not used). Of a pickle nothing but arrays is
    read. Whole numbers in JSON are bytes, from 0 to 255.

    `kind` is the client, so the partition natural gives each one its own rows, and with `query = "partition"` its own
    test part. Clients are numbered in the order of their names, or as numbers if all names are numbers.

    Attributes:
        root: The folder.
        pixels: What images that are flat lists are: height x width, or height x width x channels, "32x32x3"; None: gray
            and as high as wide.
    """

    root: Path
    pixels: str | None = None

    name: ClassVar = "clients-folder"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pixels is not None:
            self._sides(self.pixels)

    @property
    def place(self) -> Path:
        """The folder."""
        return self.root

    @property
    def original(self) -> Shape:
        """Shape of the images, resized already."""
        channels, height, width = self._pool.images.shape[1:]
        return channels, height, width

    @cached_property
    def labels(self) -> Labels:
        """The labels of all clients."""
        labels = self._pool.labels
        return numbered(str(self.root), labels[: self.examples], labels[self.examples :], self.known_classes)

    @property
    def examples(self) -> int:
        """Number of all clients' training images."""
        return len(self._pool.labels) - self._pool.test

    def files(self, root: Path) -> list[Path]:
        """The files of the clients."""
        return list(self._files)

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: all training rows, client by client, then all test rows likewise.

        Raises:
            DataMissing: The folder is not there.
            PflbenchError: It has no such files, or one is damaged or holds something else.
        """
        return self.source(self._pool.images, self._pool.test, self._pool.clients)

    @cached_property
    def _files(self) -> dict[Path, Part]:
        self.require()
        with reading(f"Cannot read {self.root}"):
            found = files_of_clients(self.root)
        if not found:
            raise PflbenchError(
                f"{self.root} has no file of a client (.npz or .json), neither itself nor in a folder train."
            )
        return found

    @cached_property
    def _pool(self) -> _Pool:
        recipe = f"clients-folder 1 {self.layout} {self.range} {self.pixels} {self.size}"
        images, labels, clients, test = prepared(recipe, list(self._files), self._read)
        return _Pool(images, labels, clients, int(test))

    def _read(self) -> tuple[npt.NDArray[Any], ...]:
        """The pool as arrays: images, labels, clients, and the number of test rows."""
        found = list(shares(self._files))
        names = {name: number for number, name in enumerate(_in_order({share.client for share in found}))}
        found.sort(key=lambda share: (share.test, names[share.client]))
        if not found or found[0].test:
            raise PflbenchError(f"{self.root} holds no training image.")
        if len({share.labels.dtype.kind in "US" for share in found}) > 1:
            raise PflbenchError(f"{self.root} has labels that are text for some clients and numbers for others.")
        images = [self._pixels(share) for share in found]
        first = images[0].shape[1:]
        for share, some in zip(found, images, strict=True):
            if some.shape[1:] != first:
                raise PflbenchError(
                    f"{share.where} has images of {some.shape[1:]}, {found[0].where} of {first} (channels, height, "
                    "width): say one size for all, if that is all they differ in."
                )
        clients = np.repeat([names[share.client] for share in found], [len(share.labels) for share in found])
        labels = np.concatenate([share.labels for share in found])
        test = sum(len(share.labels) for share in found if share.test)
        return np.concatenate(images), labels, clients.astype(np.int64), np.array(test)

    def _pixels(self, share: Share) -> Pixels:
        where, images = f"{share.where}: images", share.images
        if images.ndim == 2:
            side = math.isqrt(images.shape[1])
            height, width, channels = self._sides(self.pixels) if self.pixels is not None else (side, side, 1)
            if images.shape[1] != height * width * channels or not images.size:
                said = f"not {self.pixels}" if self.pixels else 'say what they are, as in pixels = "32x32x3"'
                raise PflbenchError(f"{where} are flat, {images.shape[1]} values each: {said}.")
            images = images.reshape(-1, height, width, channels)
            pixels = as_pixels(where, images, "channels-last", self.levels())
        else:
            pixels = as_pixels(where, images, self.layout, self.levels())
        return pixels if self.size is None else resized(pixels, self.size)

    def _sides(self, text: str) -> tuple[int, int, int]:
        parts = text.split("x")
        if len(parts) not in (2, 3) or not all(part.isdecimal() and int(part) for part in parts):
            raise UsageError(f'{self.name}: pixels = {text!r} must be height x width [x channels], as "28x28".')
        height, width, channels = [*map(int, parts), 1][:3]
        return height, width, channels


def _in_order(names: set[str]) -> list[str]:
    return sorted(names, key=(lambda name: (int(name), name)) if all(map(str.isdecimal, names)) else None)
