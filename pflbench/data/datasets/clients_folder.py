"""User images that are divided among clients already: a folder with files of one client or of many.

Files are in pflbench's form, LEAF's, PFLlib's or FL-bench's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data import numpy_files
from pflbench.data.pixels import Pixels, as_pixels, resized
from pflbench.data.prepared import prepared
from pflbench.data.published import file_errors
from pflbench.data.source import Source
from pflbench.data.splits import unique_keys
from pflbench.data.user_images import Labels, ResizedImages, UserArrays, as_labels, one_each
from pflbench.errors import PflbenchError, UsageError

Part = Literal["train", "test", "both", "all"]
"""Content of a file: training or test part of a client or of many, both of one client, or FL-bench's of all."""

NAMES = {
    "train": (("images", "labels"), ("train_images", "train_labels"), ("x", "y"), ("x_train", "y_train")),
    "test": (("test_images", "test_labels"), ("x_test", "y_test")),
}
"""Names that a client's file may have for images and labels."""
FL_BENCH = ("data.npy", "targets.npy", "partition.pkl")
"""FL-bench's files: images and labels of all clients, and the rows of each one's parts."""
SUFFIXES = (".npz", ".json")


class Share(NamedTuple):
    """Training or test part of a client; `where` names its file in messages."""

    where: str
    client: str
    test: bool
    images: npt.NDArray[Any]
    labels: npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ClientsFolder(UserArrays):
    """Your own images from a folder with a .npz or .json file for each client, each with its training and test part.

    `client.npz` or `client.json` with `images` and `labels` (or `x` and `y`), and `test_images` and `test_labels` if it
    has a test part; or `train/client.npz` and `test/client.npz` with `images` and `labels` each. So PFLlib's files are
    read (`range = "-1,1"` suits most of them), LEAF's JSON, which has many clients in a file, and FL-bench's
    `data.npy`, `targets.npy` and `partition.pkl` (its validation rows are not used). Of a pickle nothing but arrays is
    read. Whole numbers in JSON are bytes, from 0 to 255.

    `kind` is the client, so the partition natural gives each one its rows, and with `query = "partition"` its
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

    @cached_property
    def labels(self) -> Labels:
        """The labels of all clients."""
        labels = self.pool.labels
        return as_labels(str(self.root), labels[: self.examples], labels[self.examples :], self.known_classes)

    def files(self, root: Path) -> list[Path]:
        """The files of the clients."""
        return list(self._files)

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: all training rows, client by client, then all test rows likewise.

        Raises:
            DataMissing: The folder is not there.
            PflbenchError: It has no such files, or one is damaged or holds something else.
        """
        return self.source(self.pool.images, self.pool.test, self.pool.clients)

    @cached_property
    def _files(self) -> dict[Path, Part]:
        self.require()
        with file_errors(f"Cannot read {self.root}"):
            found = files_of_clients(self.root)
        if not found:
            raise PflbenchError(
                f"{self.root} has no file of a client (.npz or .json), neither itself nor in a folder train."
            )
        return found

    @cached_property
    def pool(self) -> ResizedImages:
        """All clients' training rows, client by client, then their test rows."""
        recipe = f"clients-folder 1 {self.layout} {self.range} {self.pixels} {self.size}"
        images, labels, clients, test = prepared(recipe, list(self._files), self._read)
        return ResizedImages(images, labels, clients, int(test))

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
                hint = f"not {self.pixels}" if self.pixels else 'say what they are, as in pixels = "32x32x3"'
                raise PflbenchError(f"{where} are flat, {images.shape[1]} values each: {hint}.")
            images = images.reshape(-1, height, width, channels)
        layout = "channels-last" if share.images.ndim == 2 else self.layout
        return resized(as_pixels(where, images, layout, self.levels()), self.size)

    def _sides(self, text: str) -> tuple[int, int, int]:
        parts = text.split("x")
        if len(parts) not in (2, 3) or not all(part.isdecimal() and int(part) for part in parts):
            raise UsageError(f'{self.name}: pixels = {text!r} must be height x width [x channels], as "28x28".')
        height, width, channels = [*map(int, parts), 1][:3]
        return height, width, channels


def _in_order(names: set[str]) -> list[str]:
    return sorted(names, key=(lambda name: (int(name), name)) if all(map(str.isdecimal, names)) else None)


def files_of_clients(root: Path) -> dict[Path, Part]:
    """The files of a folder that hold images; none if it has no such ones. Raises `OSError` or `PflbenchError`."""
    *arrays, partition = (root / name for name in FL_BENCH)
    if partition.exists():
        if not all(path.exists() for path in arrays):
            raise PflbenchError(
                f"{partition} divides images that lie elsewhere, as {' and '.join(FL_BENCH[:2])} are not beside it: "
                "take FL-bench's dataset here, too, and the partition given."
            )
        return dict.fromkeys((*arrays, partition), "all")
    folders: dict[Part, Path] = {"train": root / "train", "test": root / "test"}
    if not _clients(folders["train"]):
        folders = {"both": root}
    return {path: part for part, folder in folders.items() for path in _clients(folder)}


def _clients(folder: Path) -> list[Path]:
    """The .npz files in a folder, else its .json files, by name."""
    inside = sorted(folder.iterdir(), key=lambda path: path.name) if folder.is_dir() else []
    plain = [path for path in inside if not path.name.startswith(".")]
    kinds = ([path for path in plain if path.suffix == suffix] for suffix in SUFFIXES)
    return next(filter(None, kinds), [])


def shares(files: Mapping[Path, Part]) -> Iterator[Share]:
    """Parts of clients in the files, one after the other. Raises `DataMissing` or `PflbenchError`."""
    if "all" in files.values():
        yield from _of_fl_bench(*files)
        return
    for path, part in files.items():
        found = _of_npz(path, part) if path.suffix == ".npz" else _of_json(path, part)
        for share in found:
            if len(share.images) != len(share.labels):
                raise PflbenchError(f"{share.where} has {len(share.images)} images and {len(share.labels)} labels.")
            if share.labels.dtype.kind not in "biufUS":
                raise PflbenchError(f"{share.where} has labels that are neither numbers nor text.")
            if len(share.labels):
                yield share._replace(labels=one_each(f"{share.where}: labels", share.labels))


def _of_npz(path: Path, part: Part) -> Iterator[Share]:
    headers = numpy_files.array_headers(path)
    if headers.keys() == {"data"} and headers["data"].dtype.hasobject:  # PFLlib's
        arrays = numpy_files.read_pickled(path, "data")
        if not isinstance(arrays, dict) or not all(isinstance(one, np.ndarray) for one in arrays.values()):
            raise PflbenchError(f"{path}: data is no dictionary of arrays, x and y.")
        return _named(path, path.stem, part, arrays)
    return _named(path, path.stem, part, {name: numpy_files.read_npz(path, name) for name in headers})


def _of_json(path: Path, part: Part) -> Iterator[Share]:
    with file_errors(f"{path} is not readable JSON"):
        held = json.loads(path.read_bytes(), object_pairs_hook=unique_keys)
    if not isinstance(held, dict):
        raise PflbenchError(f"{path} holds no images and labels: it must be an object, {{...}}.")
    if "user_data" not in held:
        return _named(path, path.stem, part, _arrays(path, held))
    return _of_leaf(path, "train" if part == "both" else part, held)


def _of_leaf(path: Path, part: Part, held: Mapping[str, Any]) -> Iterator[Share]:
    users, data = held.get("users"), held["user_data"]
    if not (isinstance(data, dict) and isinstance(users, list) and sorted(map(str, users)) == sorted(data)):
        raise PflbenchError(f"{path}: users and user_data do not name the same users.")
    for user in map(str, users):
        if not isinstance(data[user], dict):
            raise PflbenchError(f"{path}: the user {user} has no x and y.")
        yield from _named(path, user, part, _arrays(path, data[user]))


def _arrays(path: Path, held: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """The lists of a JSON object. Whole numbers in 0..255 are bytes where they are images."""
    found = {}
    for name, values in held.items():
        if not isinstance(values, list):
            continue
        try:
            found[name] = np.array(values)
        except ValueError as error:
            raise PflbenchError(f"{path}: {name} has rows of several lengths.") from error
        array = found[name]
        if array.ndim > 1 and array.dtype.kind == "i" and array.size and 0 <= array.min() and array.max() <= 255:
            found[name] = array.astype(np.uint8)
    return found


def _named(path: Path, client: str, part: Part, arrays: Mapping[str, npt.NDArray[Any]]) -> Iterator[Share]:
    """The parts of a client that these arrays are, by their names."""
    where, read = f"{path}", set()
    looked = {"train": NAMES["train"]} if part == "train" else NAMES
    if part == "test":
        looked = {"test": (*NAMES["test"], *NAMES["train"])}
    for which, pairs in looked.items():
        several = [pair for pair in pairs if pair[0] in arrays or pair[1] in arrays]
        if len(several) > 1:
            raise PflbenchError(f"{where} has both {several[0][0]} and {several[1][0]}: leave one out.")
        for images, labels in several:
            if lacking := [name for name in (images, labels) if name not in arrays]:
                raise PflbenchError(f"{where} has no {lacking[0]}.")
            read |= {images, labels}
            yield Share(where, client, which == "test", arrays[images], arrays[labels])
    if other := sorted(arrays.keys() - read):
        raise PflbenchError(
            f"{where} has {other[0]!r}, which means nothing here: name it images and labels, or x and y."
        )
    if not read:
        raise PflbenchError(f"{where} has no images and labels.")


def _of_fl_bench(data: Path, targets: Path, partition: Path) -> Iterator[Share]:
    images, labels = numpy_files.read_npy(data), numpy_files.read_npy(targets)
    with file_errors(f"Cannot read {partition}"):
        parts = numpy_files.read_arrays(partition)["data_indices"]
        clients = parts.items() if isinstance(parts, dict) else enumerate(parts)
        held = [(str(client), {part: np.array(rows[part]) for part in ("train", "test")}) for client, rows in clients]
    if len(images.shape) < 2 or images.shape[:1] != labels.shape[:1]:
        raise PflbenchError(f"{data} has shape {images.shape}, {targets} {labels.shape}: a row for each image.")
    for client, mine in held:
        for part, rows in mine.items():
            if not rows.size:
                continue
            if rows.dtype.kind not in "iu" or rows.ndim != 1 or not 0 <= rows.min() <= rows.max() < len(images):
                raise PflbenchError(f"{partition}: client {client} has rows that {data.name} does not have.")
            where = f"{data} (client {client})"
            yield Share(where, client, part == "test", images[rows], one_each(str(targets), labels)[rows])
        every = [row for rows in mine.values() for row in rows.tolist()]
        if len(set(every)) < len(every):
            raise PflbenchError(f"{partition}: client {client} has a row twice, in one part or in both.")
