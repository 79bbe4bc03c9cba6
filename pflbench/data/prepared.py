"""Cache of slowly read dataset files: arrays made once, stored as .npy files, mapped by the processes of this machine.

The arrays of a key lie in `cache_folder() / "prepared" / KEY / N.npy`. Any folder may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pflbench.data.root import cache_folder, clear_halves
from pflbench.errors import DataMissing

Arrays = tuple[npt.NDArray[Any], ...]

SETTLED = 2 * 10**9
"""Nanoseconds after which a further change of a file shows in its time, whatever the file system."""


def prepared(recipe: str, files: Sequence[Path], make: Callable[[], Arrays]) -> Arrays:
    """The arrays that `make` returns for these files: made once, from then on mapped into memory.

    Processes that map the same arrays share one copy. Writing into one changes neither the file nor other processes'
    arrays. A file with another path, size or time leads to new arrays, as does a damaged cache. Files changed less than
    two seconds ago may change again without showing, so their arrays are not stored; nor are any where the cache cannot
    be written.

    Args:
        recipe: Description of `make`, with everything but the files that its result depends on. It is to change
            whenever `make` does.
        files: All that `make` reads, in its order; folders are not looked into.
        make: Takes no arguments; returns arrays of numbers or of characters. Its errors pass through.

    Raises:
        DataMissing: A file is missing.
    """
    key = _key(recipe, files)
    folder = cache_folder() / "prepared" / key
    if stored := _stored(folder):
        return stored
    made = make()
    if _settled(files) and _key(recipe, files) == key:
        with contextlib.suppress(OSError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            clear_halves(folder.parent)
            _store(folder, made)
    return _stored(folder) or made


def _key(recipe: str, files: Sequence[Path]) -> str:
    digest = hashlib.sha256(recipe.encode())
    for file in files:
        try:
            status = file.stat()
        except OSError as error:
            raise DataMissing(f"{str(file)!r} is missing or cannot be read ({error.strerror}).") from error
        # Programs that replace a file may set the time of its bytes back, but not that of its status.
        stamp = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        digest.update(f"\0{file.absolute()}\0{stamp}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


def _settled(files: Sequence[Path]) -> bool:
    with contextlib.suppress(OSError):
        return time.time_ns() - max((file.stat().st_mtime_ns for file in files), default=0) > SETTLED
    return False


def _store(folder: Path, arrays: Arrays) -> None:
    """Write the arrays of a key, all or none. Raises `OSError`."""
    half = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    try:
        for number, array in enumerate(arrays):
            np.save(half / f"{number}.npy", array, allow_pickle=False)
        if folder.exists():  # damaged
            shutil.rmtree(folder)
        half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _stored(folder: Path) -> Arrays:
    """The arrays of a key, mapped; empty if there are none, or a file is damaged."""
    try:
        paths = [folder / f"{number}.npy" for number in range(len(list(folder.iterdir())))]
        return tuple(np.load(path, mmap_mode="c", allow_pickle=False).view(np.ndarray) for path in paths)
    except (OSError, ValueError, EOFError):
        return ()
