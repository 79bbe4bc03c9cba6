"""Files that say which rows each client holds: what forms they have, how they are read, and how they are written.

A row's number is its place in the pool: training rows first, then the dataset's test split, each from 0 on in the
order in which the dataset has them. As JSON, such a file is one of

- a list of row numbers for each client: `[[0, 5], [2, 3, 9]]`;
- what each client trains and is tested on: `[{"train": [0, 5], "test": [7]}, {"train": [2, 3], "test": [9]}]`;
- the client of each row, in the order of the rows, null for a row that is nobody's: `["ann", "bob", null, "ann"]`.
  Clients are numbers from 0 on or texts, and are taken in ascending order.

As .npz, it is one of

- `train`, `train_offsets` and, where the file says what clients are tested on, `test`, `test_offsets`: `train` has the
  rows of all clients one after the other, and those of client c are `train[train_offsets[c]:train_offsets[c + 1]]`. So
  `train_offsets` has one number more than there are clients, the first is 0, the last is how long `train` is;
- `client`: the client of each row as above, where nobody is -1 or the empty text.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pflbench.data.numpy_files import array_headers, read_npz
from pflbench.data.partition import Hand, Rows
from pflbench.errors import DataMissing, PflbenchError
from pflbench.output import requested

FORMATS = ("json", "npz")
_FORMS = (
    'write a list of row numbers for each client, or {"train": [...], "test": [...]} for each client, or the client '
    "of each row"
)
_ROOM = 2**63
"""Row numbers and clients are below it."""


@dataclass(frozen=True, eq=False)
class Split:
    """Content of a file.

    Attributes:
        train: Row numbers of each client, int64.
        test: Rows that each client is tested on; None where the file does not say, or gives a client for each row.
        rows: For how many rows the file gives a client; None where it lists the rows of each client.
    """

    train: tuple[Rows, ...]
    test: tuple[Rows, ...] | None = None
    rows: int | None = None


def read_split(path: Path) -> Split:
    """Content of a file for any pool.

    Raises:
        DataMissing: There is no such file.
        PflbenchError: It cannot be read, or is in none of the forms; the message says what is wrong with it.
    """
    if not path.is_file():
        raise DataMissing(f"There is no file {path}: it says which rows each client holds.")
    if path.suffix.lower() == ".npz":
        return _of_arrays(path, {name: read_npz(path, name) for name in array_headers(path)})
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = json.loads(text, object_pairs_hook=unique_keys)
    except (OSError, ValueError, RecursionError) as error:
        raise PflbenchError(f"{path} is not readable JSON ({type(error).__name__}: {error}).") from error
    return _of_json(path, found)


def write_split(path: Path, hands: Sequence[Hand]) -> None:
    """Write support and query rows of each client, as .json or .npz, such that `read_split` gives them back.

    Raises `StoreError` if it cannot be written.
    """
    with requested(path) as file:
        if path.suffix.lower() == ".npz":
            arrays: dict[str, Any] = {}
            for name, parts in zip(("train", "test"), zip(*hands, strict=True), strict=True):
                arrays[name] = np.concatenate(parts)
                arrays[f"{name}_offsets"] = np.cumsum([0, *map(len, parts)], dtype=np.int64)
            np.savez_compressed(file, **arrays)
        else:
            clients = [{"train": train.tolist(), "test": test.tolist()} for train, test in hands]
            lines = ",\n".join(map(json.dumps, clients))
            file.write(f"[\n{lines}\n]\n".encode())


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON object whose keys are there once: of two equal ones, json would take the last. Raises `ValueError`."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _of_json(path: Path, found: Any) -> Split:
    if not isinstance(found, list):
        raise PflbenchError(f"{path} holds {_kind(found)}, no list: {_FORMS}.")
    if not found:
        raise PflbenchError(f"{path} is an empty list: {_FORMS}.")
    if all(isinstance(one, list) for one in found):
        return Split(tuple(_rows(path, client, "", rows) for client, rows in enumerate(found)))
    if all(isinstance(one, dict) for one in found):
        return _of_objects(path, found)
    if any(isinstance(one, list | dict) for one in found):
        first = next(i for i, one in enumerate(found) if type(one) is not type(found[0]))
        raise PflbenchError(
            f"{path} begins with {_kind(found[0])} and has {_kind(found[first])} as entry {first}: {_FORMS}."
        )
    return _of_clients(path, found)


def _of_objects(path: Path, found: list[dict[str, Any]]) -> Split:
    for client, one in enumerate(found):
        if not {"train"} <= one.keys() <= {"train", "test"}:
            keys = ", ".join(map(_shown, one)) or "no keys"
            raise PflbenchError(f'{path}: client {client} has {keys}; it must have "train" and may have "test".')
    train = tuple(_rows(path, client, "train", one["train"]) for client, one in enumerate(found))
    test = tuple(_rows(path, client, "test", one.get("test", [])) for client, one in enumerate(found))
    return _with_test(path, train, test)


def _with_test(path: Path, train: tuple[Rows, ...], test: tuple[Rows, ...]) -> Split:
    lacking = [client for client, rows in enumerate(test) if not len(rows)]
    if len(lacking) == len(test):
        return Split(train)
    if lacking:
        raise PflbenchError(f"{path}: client {lacking[0]} has no test rows and others have: give all some, or none.")
    return Split(train, test)


def _of_clients(path: Path, every: Sequence[Any]) -> Split:
    """From the client of each row, None where a row is nobody's."""
    names = [one for one in every if one is not None]
    if not names:
        raise PflbenchError(f"{path} gives no row to a client.")
    for one in names:
        if type(one) not in (int, str):
            raise PflbenchError(f"{path} names a client {_shown(one)}: clients are whole numbers or texts.")
        nobody = "-1" if path.suffix.lower() == ".npz" else "null"
        if one == "":
            raise PflbenchError(f"{path} names a client with an empty text: nobody is {nobody}.")
        if isinstance(one, int) and not 0 <= one < _ROOM:
            raise PflbenchError(
                f"{path} names a client {_shown(one)}: numbers of clients begin at 0, and nobody is {nobody}."
            )
    if len({type(name) for name in names}) > 1:
        raise PflbenchError(f"{path} names clients by numbers and by texts: use one of them.")
    held: dict[Any, list[int]] = {name: [] for name in sorted(set(names))}
    for row, name in enumerate(every):
        if name in held:
            held[name].append(row)
    return Split(tuple(np.array(rows, dtype=np.int64) for rows in held.values()), rows=len(every))


def _rows(path: Path, client: int, part: str, rows: Any) -> Rows:
    what = f"client {client}'s {f'{part} ' if part else ''}rows"
    if not isinstance(rows, list):
        raise PflbenchError(f"{path}: {what} are {_kind(rows)}, no list of row numbers.")
    for row in rows:
        if type(row) is not int:
            raise PflbenchError(f"{path}: {what} hold {_shown(row)}, which is no row number.")
        if not 0 <= row < _ROOM:
            raise PflbenchError(f"{path}: {what} hold {_shown(row)}, which is outside of every dataset.")
    return np.array(rows, dtype=np.int64)


def _of_arrays(path: Path, arrays: dict[str, Any]) -> Split:
    for name, array in arrays.items():
        _check_array(path, name, array)
    if arrays.keys() == {"client"}:
        return _of_clients(path, [None if one in (-1, "") else one for one in arrays["client"].tolist()])
    wanted = {"train", "train_offsets"}
    if arrays.keys() not in (wanted, wanted | {"test", "test_offsets"}):
        there = ", ".join(sorted(arrays)) or "nothing"
        raise PflbenchError(
            f"{path} holds {there}; it must hold train and train_offsets, and may hold test and test_offsets, or "
            "client alone."
        )
    train = _cut(path, arrays, "train")
    if "test" not in arrays:
        return Split(train)
    test = _cut(path, arrays, "test")
    if len(train) != len(test):
        raise PflbenchError(f"{path} has train rows of {len(train)} clients and test rows of {len(test)}.")
    return _with_test(path, train, test)


def _check_array(path: Path, name: str, array: npt.NDArray[Any]) -> None:
    if array.ndim != 1 or array.dtype.kind not in ("iuU" if name == "client" else "iu"):
        raise PflbenchError(f"{path}: {name} is {array.dtype} {array.shape}; it must be a plain list of integers.")
    if array.dtype.kind == "u" and array.size and int(array.max()) >= _ROOM:
        raise PflbenchError(f"{path}: {name} holds {array.max()}, which is outside of every dataset.")


def _cut(path: Path, arrays: dict[str, Any], name: str) -> tuple[Rows, ...]:
    rows, offsets = (arrays[key].astype(np.int64) for key in (name, f"{name}_offsets"))
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(rows) or np.any(np.diff(offsets) < 0):
        raise PflbenchError(
            f"{path}: {name}_offsets must ascend from 0 to {len(rows)}, the length of {name}, one more than clients."
        )
    if len(rows) and rows.min() < 0:
        raise PflbenchError(f"{path}: {name} holds {rows.min()}, which is no row number.")
    return tuple(rows[a:b] for a, b in itertools.pairwise(offsets.tolist()))


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _shown(value: Any) -> str:
    """A value from a file, cut where it is long."""
    text = "a huge number" if isinstance(value, int) and abs(value) >= _ROOM else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
