"""Files that hold the images of one client or of many: a user's own, LEAF's, PFLlib's and FL-bench's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data import npz
from pflbench.data.labels import flat
from pflbench.data.pickled import read_arrays
from pflbench.data.published import reading
from pflbench.errors import PflbenchError

Part = Literal["train", "test", "both", "all"]
"""What a file has: training or test part of a client or of many, both of one client, or FL-bench's of all."""

NAMES = {
    "train": (("images", "labels"), ("train_images", "train_labels"), ("x", "y"), ("x_train", "y_train")),
    "test": (("test_images", "test_labels"), ("x_test", "y_test")),
}
"""What a client's file may call its images and labels."""
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
    """What the files hold, one after the other. Raises `DataMissing` or `PflbenchError`."""
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
                yield share._replace(labels=flat(f"{share.where}: labels", share.labels))


def _of_npz(path: Path, part: Part) -> Iterator[Share]:
    headers = npz.headers(path)
    if headers.keys() == {"data"} and headers["data"].dtype.hasobject:  # PFLlib's
        arrays = npz.read_pickled(path, "data")
        if not isinstance(arrays, dict) or not all(isinstance(one, np.ndarray) for one in arrays.values()):
            raise PflbenchError(f"{path}: data is no dictionary of arrays, x and y.")
        return _named(path, path.stem, part, arrays)
    return _named(path, path.stem, part, {name: npz.read(path, name) for name in headers})


def _of_json(path: Path, part: Part) -> Iterator[Share]:
    with reading(f"{path} is not readable JSON"):
        held = json.loads(path.read_bytes(), object_pairs_hook=_once)
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
    where, used = f"{path}", set()
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
            used |= {images, labels}
            yield Share(where, client, which == "test", arrays[images], arrays[labels])
    if other := sorted(arrays.keys() - used):
        raise PflbenchError(
            f"{where} has {other[0]!r}, which means nothing here: name it images and labels, or x and y."
        )
    if not used:
        raise PflbenchError(f"{where} has no images and labels.")


def _of_fl_bench(data: Path, targets: Path, partition: Path) -> Iterator[Share]:
    images, labels = npz.read_npy(data), npz.read_npy(targets)
    with reading(f"Cannot read {partition}"):
        parts = read_arrays(partition)["data_indices"]
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
            yield Share(where, client, part == "test", images[rows], flat(str(targets), labels)[rows])
        every = [row for rows in mine.values() for row in rows.tolist()]
        if len(set(every)) < len(every):
            raise PflbenchError(f"{partition}: client {client} has a row twice, in one part or in both.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, each key of which is there once: of equal ones json would take the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found
