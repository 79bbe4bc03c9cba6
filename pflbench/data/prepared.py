"""Cache of slowly read dataset files: made once, kept on this machine, and shared by its processes.

A file of the cache, in `cache_folder() / "prepared"`, is: 64 hexadecimal digits, the SHA-256 of the rest; the arrays'
types and shapes as a line of JSON; the arrays one after another. Every part begins at a multiple of 64 bytes. Any file
may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pflbench.data.root import cache_folder, clear_halves
from pflbench.errors import DataMissing
from pflbench.output import whole

Arrays = tuple[npt.NDArray[Any], ...]

SETTLED = 2 * 10**9
"""Nanoseconds after which a further change of a file shows in its time, whatever the file system."""
_ALIGNED = 64
"""Bytes. A SHA-256 in hexadecimal has as many."""

_checked: dict[Path, tuple[int, int]] = {}
"""Files of the cache whose checksum this process has computed: their size, and the time of their last change."""


def prepared(recipe: str, files: Sequence[Path], make: Callable[[], Arrays]) -> Arrays:
    """The arrays that `make` returns for these files: made once, from then on mapped into memory.

    Processes that map the same arrays share one copy. Writing into one is possible, but changes neither the file nor
    what others see. They are made anew where a file has another `stamp` or lies elsewhere, and where what was kept is
    damaged. Files changed less than two seconds ago may change again without
    showing, so nothing is kept of them. Nor is it where the cache cannot be written to; that costs time alone.

    Args:
        recipe: What `make` does, with everything but the files that its result depends on. It is to change whenever
            `make` does.
        files: All that `make` reads, in its order; folders are not looked into.
        make: Takes no arguments; returns arrays of numbers or of characters. What it raises is let through.

    Raises:
        DataMissing: A file is not there.
    """
    key = _key(recipe, files)
    path = cache_folder() / "prepared" / f"{key}.bin"
    if (kept := _kept(path)) is not None:
        return kept
    made = make()
    if _settled(files) and _key(recipe, files) == key:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            clear_halves(path.parent)
            _keep(path, made)
    return _kept(path) or made


def stamp(status: os.stat_result) -> tuple[int, int, int]:
    """By what a change of a file is seen: its size, and the times of the last change of its bytes and of its status.

    Programs that replace a file may set the former time back, but not the latter.
    """
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _key(recipe: str, files: Sequence[Path]) -> str:
    digest = hashlib.sha256(recipe.encode())
    for file in files:
        try:
            status = file.stat()
        except OSError as error:
            raise DataMissing(f"There is no file {str(file)!r} ({error.strerror}).") from error
        known = " ".join(map(str, stamp(status)))
        digest.update(f"\0{file.absolute()}\0{known}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


def _settled(files: Sequence[Path]) -> bool:
    with contextlib.suppress(OSError):
        return time.time_ns() - max((file.stat().st_mtime_ns for file in files), default=0) > SETTLED
    return False


def _keep(path: Path, arrays: Arrays) -> None:
    """Write a file of the cache. Raises `OSError`, and leaves nothing behind, if that is not possible."""
    plain = [np.asarray(array, order="C") for array in arrays]
    head = json.dumps([[array.dtype.str, array.shape] for array in plain]).encode() + b"\n"
    parts: list[bytes | memoryview] = [head, *(array.reshape(-1).view(np.uint8).data for array in plain)]
    digest = hashlib.sha256()
    for block in _padded(parts):
        digest.update(block)
    with whole(path) as file:
        file.write(digest.hexdigest().encode())
        for block in _padded(parts):
            file.write(block)


def _padded(parts: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    for part in parts:
        yield part
        yield bytes(-len(part) % _ALIGNED)


def _kept(path: Path) -> Arrays | None:
    """The arrays of a file of the cache, mapped; None if it is not there or damaged."""
    try:
        status = path.stat()
        held = np.memmap(path, dtype=np.uint8, mode="c").view(np.ndarray)
        stamp = (status.st_size, status.st_mtime_ns)
        if _checked.get(path) != stamp:
            if hashlib.sha256(held[_ALIGNED:].data).hexdigest().encode() != held[:_ALIGNED].tobytes():
                return None
            _checked[path] = stamp
        with path.open("rb") as file:
            file.seek(_ALIGNED)
            head = file.readline()
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None
    arrays, start = [], _ALIGNED + len(head)
    for dtype, shape in json.loads(head):
        start += -start % _ALIGNED
        end = start + np.dtype(dtype).itemsize * math.prod(shape)
        arrays.append(held[start:end].view(dtype).reshape(shape))
        start = end
    return tuple(arrays)
