"""Files that appear whole or not at all, and broken ones set aside: what single runs and packs have in common."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pflbench.errors import StoreError
from pflbench.store.header import Foreign
from pflbench.store.process import host_name

Identity = tuple[int, int, int]
_DAY = 24 * 3600.0
_HOST = host_name()
_TEMPORARY = re.compile(r"\..+\.(?P<host>[A-Za-z0-9-]*)\.(?P<pid>\d+)\.[0-9a-f]+\.tmp")


class CorruptFile(UserWarning):
    """A file among the results could not be read and was set aside; the message names it and says why."""


class ForeignFile(UserWarning):
    """A file among the results is whole, but none that this version reads; the message names it and says why."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """An open temporary file beside `path`, gone at the end unless the caller moved it. Raises `StoreError`."""
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
            f"Cannot write results to {str(path.parent)!r}: {_dangling(path) or error_text(error)}. "
            "Free it, or choose another folder with --results."
        ) from error


def _dangling(path: Path) -> str:
    """Sentence on a link on the way to a path whose target is missing; empty without one."""
    for one in path.parents:
        if one.is_symlink() and not one.exists():
            return f"{str(one)!r} is a link to {str(one.readlink())!r}, which is missing"
    return ""


def sync(file: IO[bytes]) -> None:
    """Have the disk keep what was written so far."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the disk keep which files are there, where the system can do that for a folder. Raises `StoreError`."""
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


def unchanged(path: Path, known: Identity) -> bool:
    """True if the file is there and still the same."""
    try:
        return identity(path.stat()) == known
    except FileNotFoundError:
        return False


def unlink(path: Path, note: str = "") -> None:
    """Remove a file if it is there. Raises `StoreError`, with the note."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot remove {str(path)!r}: {error_text(error)}.{note}") from error


def remove(path: Path, known: Identity, instead: Path | None) -> None:
    """Remove a file, unless it was replaced meanwhile; its runs are in the file `instead`. Raises `StoreError`."""
    if unchanged(path, known):
        unlink(path, f" Its runs are in {str(instead)!r} too, so remove it." if instead else "")


def fresh(folder: Path) -> None:
    """Have a network's file system ask again which files are there: what it remembers of a folder may be old."""
    with contextlib.suppress(OSError), os.scandir(folder):
        pass


def parquet_files(folder: Path) -> list[Path]:
    """The folder's Parquet files by name; none if there is no folder. Raises `StoreError`.

    Others with such a name are left out with a warning: opening a pipe or a device may wait for ever.
    """
    try:
        found = sorted(folder.glob("*.parquet")) if folder.is_dir() else []
        odd = {path: oddity for path in found if (oddity := _oddity(path))}
        for path, oddity in odd.items():
            warn(path, "run or pack", oddity, "left as it is")
        return [path for path in found if path not in odd] if odd else found
    except OSError as error:
        raise unreadable(folder, error) from error


def _oddity(path: Path) -> str:
    """Reason why a path named like a file is none; empty for a file and for a path that is gone."""
    try:
        mode = path.stat().st_mode
    except OSError as error:  # any other than these shows when it is read
        leads_nowhere = error.errno in (errno.ENOENT, errno.ELOOP) and path.is_symlink()
        return "it is a link that leads to no file" if leads_nowhere else ""
    if stat.S_ISREG(mode):
        return ""
    return "it is a folder" if stat.S_ISDIR(mode) else "it is a pipe or a device"


def clean(folder: Path) -> None:
    """Remove the temporary files that killed processes of this machine left."""
    with contextlib.suppress(OSError):
        for path in folder.glob("*.tmp"):
            if (match := _TEMPORARY.fullmatch(path.name)) and _stale(path, match["host"], int(match["pid"])):
                path.unlink(missing_ok=True)


def set_aside(path: Path, what: str, reason: str) -> None:
    """Rename a broken file so that nothing reads it again, and warn: it is not a readable `what`."""
    aside, count = path.with_name(f"{path.name}.corrupt"), 1
    while aside.exists():
        count += 1
        aside = path.with_name(f"{path.name}.corrupt-{count}")
    try:
        path.rename(aside)
        outcome = f"set aside as {aside.name!r}"
    except OSError as error:
        outcome = f"ignored; it could not be set aside: {error_text(error)}"
    warn(path, what, reason, outcome)


def warn(path: Path, what: str, reason: str, outcome: str) -> None:
    """Name a broken file, what is wrong with it, and what became of it."""
    warnings.warn(f"{str(path)!r} is not a readable {what}: {reason} ({outcome}).", CorruptFile, stacklevel=6)


def leave_out(what: str, why: Foreign) -> None:
    """Say of `what` ("'a file' is") that it stays and is not read, why, and what its owner can do."""
    warnings.warn(f"{what} left out: {why}. {why.advice}", ForeignFile, stacklevel=5)


def damage(path: Path, error: Exception) -> str:
    """Describe the damage of a file in a line. Raises `StoreError` where the file itself may be whole."""
    # pyarrow reports damaged content as an OSError too, but without an error number.
    if isinstance(error, OSError) and error.errno is not None:
        raise unreadable(path, error) from error
    return (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__


def unreadable(path: Path, error: OSError) -> StoreError:
    """The error for what the system does not let us read."""
    return StoreError(f"Cannot read {str(path)!r}: {error_text(error)}.")


def error_text(error: Exception) -> str:
    """The system's words of an `OSError`, without number and path; of another error the first line."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error).splitlines()[0].rstrip(".")


def _stale(path: Path, host: str, pid: int) -> bool:
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
