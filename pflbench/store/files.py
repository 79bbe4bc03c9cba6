"""Files that appear whole or not at all, and warnings about those that cannot be read."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pflbench.errors import StoreError
from pflbench.store.header import Foreign, Unfit

Identity = tuple[int, int, int]
_DAY = 24 * 3600.0
_TEMPORARY = re.compile(r"\..+\.(?P<host>[A-Za-z0-9-]*)\.(?P<pid>\d+)\.[0-9a-f]+\.tmp")


def host_name() -> str:
    """Name of this machine in file names, in letters, digits and hyphens; containers of one name differ."""
    space = ""
    with contextlib.suppress(OSError):
        space = re.sub(r"[^0-9]", "", str(Path("/proc/self/ns/pid").readlink()))
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) + (f"-{space}" if space else "")


_HOST = host_name()


class CorruptFile(UserWarning):
    """A file among the results could not be read, or a part of it; the message names it and says why."""


class ForeignFile(UserWarning):
    """A file among the results is whole, but none that this version reads; the message names it and says why."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """An open temporary file in the folder of `path`, removed at the end unless the caller moved it.

    Raises `StoreError`.
    """
    # The process is in the name so that leftovers of a killed one differ from a neighbor's work; the
    # token keeps threads apart. Not `*.parquet`: a glob over the results must never meet a half-written file.
    temporary = path.parent / f".{path.stem}.{_HOST}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                yield file, temporary
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise StoreError(
            f"Cannot write results to {str(path.parent)!r}: {error_text(error)}. "
            "Free it, or choose another folder with --results."
        ) from error


def sync(file: IO[bytes]) -> None:
    """Have the disk keep what was written so far."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the disk keep the names in a folder, where the system can do that. Raises `StoreError`."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise StoreError(f"Cannot write to {str(folder)!r}: {error_text(error)}.") from error


def identity(status: os.stat_result) -> Identity:
    """Identity of a file, which changes with its content, and when another file takes the name."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def unlink(path: Path, note: str = "") -> None:
    """Remove a file if there is one. Raises `StoreError`, with the note."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot remove {str(path)!r}: {error_text(error)}.{note}") from error


def fresh(folder: Path) -> None:
    """Have a network's file system list a folder again: what it remembers may be old."""
    with contextlib.suppress(OSError), os.scandir(folder):
        pass


def parquet_files(folder: Path) -> list[Path]:
    """Paths of the folder's Parquet files by name; none if there is no folder. Raises `StoreError`."""
    try:
        return sorted(folder.glob("*.parquet")) if folder.is_dir() else []
    except OSError as error:
        raise unreadable(folder, error) from error


def clean(folder: Path) -> None:
    """Remove the temporary files that killed processes of this machine left."""
    with contextlib.suppress(OSError):
        for path in folder.glob("*.tmp"):
            if (match := _TEMPORARY.fullmatch(path.name)) and _is_stale(path, match["host"], int(match["pid"])):
                path.unlink(missing_ok=True)


def warn(path: Path, what: str, reason: Unfit) -> None:
    """Name a file that is not read, or not all of it, and say why; it stays as it is."""
    if isinstance(reason, Foreign):
        warnings.warn(f"{str(path)!r} is left out: {reason}. {reason.advice}", ForeignFile, stacklevel=4)
    else:
        warnings.warn(f"{str(path)!r} is not a readable {what}: {reason} (left as it is).", CorruptFile, stacklevel=4)


def unreadable(path: Path, error: OSError) -> StoreError:
    """The error for what the system does not let us read."""
    return StoreError(f"Cannot read {str(path)!r}: {error_text(error)}.")


def error_text(error: Exception) -> str:
    """The system's words of an `OSError`, without number and path; of another error the first line."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error).splitlines()[0].rstrip(".")


def _is_stale(path: Path, host: str, pid: int) -> bool:
    if host != _HOST:  # nobody here can know whether it is still being written
        return False
    if time.time() - path.stat().st_mtime > _DAY:
        return True
    if os.name != "posix":  # signal 0 is a real signal elsewhere; age alone decides there
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False
