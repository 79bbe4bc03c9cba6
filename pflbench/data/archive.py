"""Untrusted archives (.zip, .tar, .tar.gz, …), unpacked so that nothing lands outside a folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from pflbench.data.content import of_file
from pflbench.data.published import file_errors
from pflbench.data.root import cache_folder, clear_halves, read_json, write_json
from pflbench.errors import DataMissing, PflbenchError

LONGEST = 255
"""Bytes that a file's name may have."""


class _Member(NamedTuple):
    """A file of an archive."""

    name: str
    size: int
    """Bytes, as the archive says."""
    open: Callable[[], IO[bytes]]


def unpacked(archive: Path) -> Path:
    """Unpack an archive into a folder of the cache: once for each content, whole or not at all.

    It may be deleted at any time. Only folders and plain files are unpacked, without their owners and modes; their time
    of the last change is the archive's. An archive that has anything else is refused whole.

    Raises:
        DataMissing: There is no such file.
        PflbenchError: It is no archive, a damaged one, or too large for the disk, or has a member that would lie
            outside the folder, a link, a device, or two members of one name.
    """
    if not archive.is_file():
        raise DataMissing(f"There is no file {str(archive)!r}.")
    with file_errors(f"Cannot unpack {archive}"):
        folder = cache_folder() / "unpacked" / f"{archive.name.partition('.')[0]}-{of_file(archive)[:16]}"
        listed = cache_folder() / "listed" / f"{folder.name}.json"
        if _is_whole(folder, listed):
            return folder
        temporary = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
        try:
            temporary.mkdir(parents=True)
            clear_halves(folder.parent)
            _unpack(archive, temporary)
            write_json(listed, _sizes(temporary))
            if not _is_whole(folder, listed):  # else another process was faster
                shutil.rmtree(folder, ignore_errors=True)
                temporary.rename(folder)
        except OSError:
            if not _is_whole(folder, listed):
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _is_whole(folder: Path, listed: Path) -> bool:
    """True if all unpacked files are there and no others; the cache may have been cleaned."""
    with contextlib.suppress(OSError):  # another process may be replacing it
        return folder.is_dir() and read_json(listed) == _sizes(folder)
    return False


def _sizes(folder: Path) -> dict[str, int]:
    """The files below a folder, each with its bytes."""
    files = (Path(here) / name for here, _, names in os.walk(folder) for name in names)
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def _unpack(archive: Path, folder: Path) -> None:
    changed = archive.stat().st_mtime_ns
    if not (zipped := zipfile.is_zipfile(archive)) and not tarfile.is_tarfile(archive):
        raise PflbenchError(
            f"{archive} is no archive that can be read (.zip, .tar, .tar.gz, .tar.bz2, .tar.xz), or a damaged one."
        )
    for member in _of_zip(archive) if zipped else _of_tar(archive):
        target = folder / _inside(archive, member.name)
        if target.exists():
            raise PflbenchError(f"{archive} has two members {member.name!r}: nothing of it is unpacked.")
        if member.size > shutil.disk_usage(folder).free:
            raise PflbenchError(f"{archive} has {member.name!r} of {member.size:,} bytes: the disk has less.")
        target.parent.mkdir(parents=True, exist_ok=True)
        with member.open() as source, target.open("xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        if target.stat().st_size != member.size:
            raise PflbenchError(f"{archive} is damaged: {member.name!r} has not the size that it says.")
        os.utime(target, ns=(changed, changed))


def _inside(archive: Path, name: str) -> PurePosixPath:
    """Path of a member, relative to the folder. Raises `PflbenchError` if that is not in it."""
    path = PurePosixPath(name)
    if max(map(len, map(os.fsencode, path.parts)), default=0) > LONGEST:
        raise PflbenchError(
            f"{archive} has a member whose name is too long, {name[:40]!r}…: nothing of it is unpacked."
        )
    if path.is_absolute() or ".." in path.parts or "\\" in name or re.match("[A-Za-z]:", name) or not path.parts:
        raise PflbenchError(f"{archive} has a member {name!r}, which would lie elsewhere: nothing of it is unpacked.")
    return path


def _of_zip(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as held:
        for info in held.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _special(archive, info.filename)
            if info.flag_bits & 1:
                raise PflbenchError(f"{archive} is encrypted: {info.filename!r} cannot be read.")
            if info.is_dir():
                _inside(archive, info.filename)
            else:
                yield _Member(info.filename, info.file_size, lambda info=info: held.open(info))  # type: ignore[misc]


def _of_tar(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive) as held:
        for info in held:
            if not (info.isfile() or info.isdir()):
                raise _special(archive, info.name)
            if info.issparse():
                raise PflbenchError(
                    f"{archive} has {info.name!r} with {info.size:,} bytes most of which are left out (sparse): "
                    "nothing of it is unpacked. Make the archive without --sparse."
                )
            if info.isdir():
                if info.name != ".":
                    _inside(archive, info.name)
                continue

            def opened(info: tarfile.TarInfo = info) -> IO[bytes]:
                file = held.extractfile(info)
                assert file is not None
                return file

            yield _Member(info.name, info.size, opened)
        _check_end(archive, held)


def _check_end(archive: Path, held: tarfile.TarFile) -> None:
    """Raise `PflbenchError` unless zeros follow the members: `tarfile` takes a damaged header for the end."""
    assert held.fileobj is not None
    held.fileobj.seek(held.offset)
    if held.fileobj.read(tarfile.BLOCKSIZE).strip(b"\0") or not held.offset:
        raise PflbenchError(f"{archive} is damaged: a header in it cannot be read.")


def _special(archive: Path, name: str) -> PflbenchError:
    return PflbenchError(f"{archive} has {name!r}, which is a link or a device: nothing of it is unpacked.")
