"""What a user's dataset or partition reads or makes, as a hash. Where it lies on this machine is no part of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pflbench.data.partition import Dealer, Partition, Rows
from pflbench.data.root import cache_folder, read_json, write_json
from pflbench.data.source import Dataset, Source
from pflbench.errors import DataMissing

_Stamp = tuple[str, int, int]
"""Path, size and time of a file's last change, in nanoseconds."""

_SETTLED = 2 * 10**9
"""Nanoseconds after which a further change of a file shows in its time, whatever the file system."""
_LARGE = 1 << 20
"""Bytes from which a file's hash is remembered from one process to the next."""


def of_dataset(dataset: Dataset, root: Path, seed: int, source: Source | None = None) -> str | None:
    """16 hex digits for what a dataset reads, or, where its class has no `files`, for the pool that it loads.

    Args:
        dataset: A user's.
        root: The data root.
        seed: The run's.
        source: The pool of this seed, if it is loaded already.

    Returns:
        None for one that declares that it reads nothing.

    Raises:
        DataMissing: A file is not there.
    """
    declared = getattr(dataset, "files", None)
    if declared is not None:
        return _of_files(declared, root.absolute())
    return _of_source(source if source is not None else pool(dataset, root, seed))


def of_partition(
    partition: Partition | Dealer, root: Path, source: Callable[[], Source], clients: int, seed: int
) -> str | None:
    """16 hex digits for what a partition reads, or, where its class has no `files`, for the rows that it deals.

    Args:
        partition: A user's.
        root: The data root.
        source: Loads the pool that it divides.
        clients: Number of clients.
        seed: The run's.

    Returns:
        None for one that declares that it reads nothing.

    Raises:
        DataMissing: A file is not there.
        UsageError: No such partition exists.
    """
    declared = getattr(partition, "files", None)
    if declared is not None:
        return _of_files(declared, root.absolute())
    digest = hashlib.sha256()
    for rows in _dealt(partition, source(), clients, seed):
        digest.update(f"{len(rows)} ".encode())
        digest.update(np.ascontiguousarray(rows, dtype="<i8").data)
    return digest.hexdigest()[:16]


def check_files(reader: Dataset | Partition | Dealer, root: Path) -> None:
    """See whether the files are there that a user's dataset or partition says it reads, if it says so.

    Raises:
        DataMissing: One is not, or the user's `files` cannot say which.
    """
    declared = getattr(reader, "files", None)
    if declared is None:
        return
    root = root.absolute()
    try:
        for path in declared(root):
            for _ in _named(root / path, root):
                pass
    except DataMissing:
        raise
    except (Exception, SystemExit) as error:  # a user's own code
        raise DataMissing(f"Its `files` fails: {type(error).__name__}: {error}") from error


def pool(dataset: Dataset, root: Path, seed: int) -> Source:
    """What a dataset loads for a seed: the same for all, where its class says so."""
    return dataset.load(root, seed if getattr(dataset, "seeded", True) else 0)


def _dealt(partition: Partition | Dealer, source: Source, clients: int, seed: int) -> Iterator[Rows]:
    if isinstance(partition, Dealer):
        for hand in partition.deal(source.labels, source.kind, source.test, clients, seed):
            yield from hand
        return
    own = len(source.labels) - source.test
    yield from partition(source.labels[:own], None if source.kind is None else source.kind[:own], clients, seed)


def _of_source(source: Source) -> str:
    plain = [source.classes, source.test, source.normalization, list(source.images.shape)]
    digest = hashlib.sha256(json.dumps(plain).encode())
    digest.update(np.ascontiguousarray(source.images.numpy()).data)
    for types in (source.labels, source.kind):
        if types is not None:
            digest.update(np.ascontiguousarray(types, dtype="<i8").data)
    return digest.hexdigest()[:16]


def _of_files(declared: Callable[[Path], Iterable[str | Path]], root: Path) -> str | None:
    files = sorted({named for path in declared(root) for named in _named(root / path, root)})
    if not files:
        return None
    lines = "".join(f"{name}\0{_of_file(path)}\n" for name, path in files)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _named(path: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """A file, or all those in a folder, each with its name: below the data root, else below what was declared.

    Names count because some datasets keep labels in them.
    """
    folder = path if path.is_dir() else path.parent
    files = list(_below(path)) if path.is_dir() else [path]
    if not all(file.is_file() for file in files or [path]):
        raise DataMissing(f"There is no file {str(path)!r}, or none in it.")
    for file in files:
        yield file.relative_to(root if path.is_relative_to(root) else folder).as_posix(), file


def _below(folder: Path) -> Iterator[Path]:
    """Every file below a folder, also behind links to other folders, each folder once on the way down to a file."""
    seen: set[Path] = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        real = Path(here).resolve()
        if real in seen:  # a link that leads back up, or twice to the same place
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(here) / name for name in names)


_known: dict[_Stamp, str] = {}


def _of_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, computed once for each path, size and time of the last change."""
    status = path.stat()
    stamp = str(path.absolute()), status.st_size, status.st_mtime_ns
    large = status.st_size >= _LARGE
    if large and stamp not in _known:
        _known.update(_remembered())
    if stamp in _known:
        return _known[stamp]
    with path.open("rb") as file:
        hash = _sha256(file)
    if time.time_ns() - status.st_mtime_ns > _SETTLED:  # else it could still change without showing
        _known[stamp] = hash
        if large:
            _remember(stamp, hash)
    return hash


def _sha256(file: Any) -> str:
    digest = hashlib.sha256()
    while block := file.read(_LARGE):
        digest.update(block)
    return digest.hexdigest()


def _cache() -> Path:
    return cache_folder() / "hashes.json"


def _remembered() -> dict[_Stamp, str]:
    try:
        return {(path, size, mtime): hash for path, (size, mtime, hash) in (read_json(_cache()) or {}).items()}
    except (ValueError, AttributeError, TypeError):  # somebody wrote into it
        return {}


def _remember(stamp: _Stamp, hash: str) -> None:
    """Keep a hash for other processes; of a path only the last. Without a place for it, do without."""
    kept = {path: (size, mtime, known) for (path, size, mtime), known in (_remembered() | {stamp: hash}).items()}
    with contextlib.suppress(OSError):
        write_json(_cache(), kept)
