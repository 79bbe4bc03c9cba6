"""Hash of the content that a user-supplied dataset or partition reads or makes, or a built-in one reads of user files.

The path on this machine is no part of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pflbench.data.partition import Dealer, Partition, Rows
from pflbench.data.prepared import prepared
from pflbench.data.source import Dataset, Source
from pflbench.errors import DataMissing, PflbenchError
from pflbench.spec import Named


def has_content(made: object, named: Named) -> bool:
    """True if a dataset's or partition's content is part of a run's identity: a user's class, or one with `files`."""
    return named.version is not None or hasattr(made, "files")


def of_dataset(dataset: Dataset, root: Path, seed: int, source: Source | None = None) -> str | None:
    """16 hex digits for what a user's dataset reads, or, where its class has no `files`, for the pool that it loads.

    `source`: the pool of this seed, if it is loaded already. None for one that declares that it reads nothing.

    Raises:
        DataMissing: A file is not there.
    """
    if (declared := getattr(dataset, "files", None)) is not None:
        return _of_files(declared, root.absolute())
    source = source or pool(dataset, root, seed)
    plain = [source.classes, source.test, source.normalization, list(source.images.shape)]
    types = [_ints(types) for types in (source.labels, source.kind) if types is not None]
    return _digest([json.dumps(plain).encode(), np.ascontiguousarray(source.images.numpy()).data, *types])


def of_partition(
    partition: Partition | Dealer, root: Path, source: Callable[[], Source], clients: int, seed: int
) -> str | None:
    """The same for a user's partition: what it reads or, where its class has no `files`, the rows that it deals.

    `source` loads the pool that it divides. Raises `UsageError`, too, where no such partition exists.
    """
    if (declared := getattr(partition, "files", None)) is not None:
        return _of_files(declared, root.absolute())
    whole = source()
    if isinstance(partition, Dealer):
        hands = partition.deal(whole.labels, whole.kind, whole.test, clients, seed)
        dealt = [rows for hand in hands for rows in hand]
    else:
        dealt = partition(*whole.training, clients, seed)
    return _digest(part for rows in dealt for part in (f"{len(rows)} ".encode(), _ints(rows)))


def check_files(reader: Dataset | Partition | Dealer, root: Path) -> None:
    """See whether the files are there that a user's dataset or partition says it reads, if it says so.

    Raises:
        DataMissing: One is not, or `files` cannot say which.
    """
    if (declared := getattr(reader, "files", None)) is None:
        return
    try:
        _named_files(declared, root.absolute())
    except PflbenchError as error:
        raise DataMissing(str(error)) from error
    except (Exception, SystemExit) as error:  # user-supplied code
        raise DataMissing(f"Its `files` fails: {type(error).__name__}: {error}") from error


def pool(dataset: Dataset, root: Path, seed: int) -> Source:
    """Source that a dataset loads for a seed; the same for all seeds where its class says so."""
    return dataset.load(root, seed if getattr(dataset, "seeded", True) else 0)


def _ints(rows: Rows) -> memoryview:
    return np.ascontiguousarray(rows, dtype="<i8").data


def _digest(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def _of_files(declared: Callable[[Path], Iterable[str | Path]], root: Path) -> str | None:
    """16 hex digits for the names and bytes of files; None if there are none. They are `prepared`."""
    files = sorted(_named_files(declared, root))

    def hashed() -> tuple[npt.NDArray[np.str_]]:
        return (np.array(_digest(f"{name}\0{_sha256(path)}\n".encode() for name, path in files)),)

    names = " ".join(json.dumps(name) for name, _ in files)
    return str(*prepared(f"content of files: 1 {names}", [path for _, path in files], hashed)) if files else None


def _named_files(declared: Callable[[Path], Iterable[str | Path]], root: Path) -> set[tuple[str, Path]]:
    """Files that `files` declares, folders with all their files, and their names relative to one of three folders.

    It is the folder that an option names, or that holds the file that it names; else the data root; else the declared
    folder, or the one that holds the file. Names count because some datasets have labels in them.
    """
    reader = getattr(declared, "__self__", None)
    options = [getattr(reader, one.name) for one in fields(reader)] if is_dataclass(reader) else []
    named = [path if path.is_dir() else path.parent for path in options if isinstance(path, Path)]
    files: set[tuple[str, Path]] = set()
    for path in (root / path for path in declared(root)):
        several = files_below(path) if path.is_dir() else [path]
        if not all(file.is_file() for file in several or [path]):
            raise DataMissing(f"{str(path)!r} is missing.")
        above = [*named, root, path if path.is_dir() else path.parent]
        base = next(folder for folder in above if path.is_relative_to(folder))
        files.update((file.relative_to(base).as_posix(), file) for file in several)
    return files


def files_below(folder: Path) -> list[Path]:
    """Files below a folder but hidden ones, also behind links to other folders; links that lead back up are ignored."""
    files = []
    above = {folder: {folder.resolve()}}
    for name, folders, names in os.walk(folder, followlinks=True):
        parent = Path(name)
        passed = above.pop(parent)
        deeper = {name: (parent / name).resolve() for name in folders if not name.startswith(".")}
        folders[:] = [name for name, real in deeper.items() if real not in passed]
        above.update({parent / name: passed | {deeper[name]} for name in folders})
        files += [parent / name for name in names if not name.startswith(".")]
    return files


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
