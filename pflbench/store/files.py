"""Files that appear whole or not at all, and warnings about those that cannot be read."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pflbench.errors import StoreError
from pflbench.store.header import Unfit

Identity = tuple[int, int, int]
FREE_IT = " Free it, or choose another folder with --results."
_HOUR = 3600.0


class CorruptFile(UserWarning):
    """A file among the results could not be read, or a part of it; the message names it and says why."""


@contextlib.contextmanager
def failing(text: str, advice: str = "") -> Iterator[None]:
    """Errors of the system in here become `StoreError` with this text and advice."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{text}: {error_text(error)}.{advice}") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """An open temporary file in the folder of `path`, removed at the end unless the caller moved it.

    Raises `StoreError`.
    """
    # Not `*.parquet`: a glob over the results must never meet a half-written file.
    temporary = path.parent / f".{path.stem}.{uuid.uuid4().hex}.tmp"
    with failing(f"Cannot write results to {str(path.parent)!r}", FREE_IT):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                yield file, temporary
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
            _clean(path.parent)


def _clean(folder: Path) -> None:
    """Remove temporary files that killed processes wrote: those that are untouched for an hour."""
    with contextlib.suppress(OSError):
        for path in folder.glob(".*.tmp"):
            if time.time() - path.lstat().st_mtime > _HOUR:
                path.unlink(missing_ok=True)


def sync(file: IO[bytes]) -> None:
    """Have the disk keep what was written so far."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the disk keep the names in a folder, or a file's content, where the system can do that."""
    with contextlib.suppress(OSError):  # some network file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def identity(status: os.stat_result) -> Identity:
    """Identity of a file, which changes with its content, and when another file takes the name."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def unlink(path: Path) -> None:
    """Remove a file if there is one. Raises `StoreError`."""
    with failing(f"Cannot remove {str(path)!r}"):
        path.unlink(missing_ok=True)


def fresh(folder: Path) -> None:
    """Have a network's file system list a folder again: what it remembers may be old."""
    with contextlib.suppress(OSError), os.scandir(folder):
        pass


def parquet_files(folder: Path) -> list[Path]:
    """Paths of the folder's Parquet files by name; none if there is no folder. Raises `StoreError`."""
    with failing(f"Cannot read {str(folder)!r}"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(path for path in folder.iterdir() if path.suffix == ".parquet")
    return []


def warn(path: Path, reason: Unfit) -> None:
    """Name a file that is not read, or not all of it, and say why; it stays as it is."""
    what = "pack" if path.parent.name == "packs" else "run"
    warnings.warn(f"{str(path)!r} is not a readable {what}: {reason} (left as it is).", CorruptFile, stacklevel=4)


def error_text(error: Exception) -> str:
    """The system's words of an `OSError`, without number and path; of another error the first line."""
    text = getattr(error, "strerror", None) or str(error)
    return (text.splitlines() or [type(error).__name__])[0].rstrip(".")
