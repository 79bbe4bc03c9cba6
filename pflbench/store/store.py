"""Find, read and write runs. A crash leaves nothing or a whole file; a broken file is set aside and named."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import schema

_DAY = 24 * 3600.0
_PROBE = bytes(64 * 1024)
_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())
_TEMPORARY = re.compile(r"\..+\.(?P<host>[A-Za-z0-9-]*)\.(?P<pid>\d+)\.[0-9a-f]+\.tmp")


class CorruptFile(UserWarning):
    """A file among the runs could not be read and was set aside; the message names it and says why."""


class MissingRun(StoreError):
    """The store has no readable run of this id."""


class Stored(NamedTuple):
    """A run in the store, as its file's metadata describes it."""

    spec: RunSpec
    provenance: dict[str, Any]
    failure: str | None
    path: Path


StoredRuns = list[Stored]


class Store:
    """The runs under a results folder, one file each: `<root>/runs/<id>.parquet`. Creates nothing before a write."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.runs = self.root / "runs"

    def path(self, id: str) -> Path:
        """Where the run of this id is, or would be."""
        return self.runs / f"{id}.parquet"

    def check_writable(self) -> None:
        """Create the folder and write a probe: hours of training must not end at a full or read-only disk."""
        with self._replacing(self.runs / "probe") as (file, temporary):
            file.write(_PROBE)
            _sync(file)
            temporary.unlink()

    def status(self, id: str) -> Literal["missing", "done", "failed"]:
        """Whether the run is there, from its metadata alone. A corrupt file is set aside and counts as missing."""
        stored = self._inspect(self.path(id))
        if stored is None:
            return "missing"
        return "done" if stored.failure is None else "failed"

    def write(self, result: RunResult) -> Path:
        """Write a run atomically and return its path. A failure never replaces a finished run."""
        path = self.path(result.spec.id)
        if result.failure is not None and self.status(result.spec.id) == "done":
            return path
        table = schema.to_table(result)
        with self._replacing(path) as (file, temporary):
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)
            _sync(file)
            temporary.replace(path)
        self._clean()
        return path

    def read(self, id: str) -> RunResult:
        """The whole run. Raises `MissingRun` if there is none that can be read."""
        path = self.path(id)
        if self._inspect(path) is not None:
            try:
                with path.open("rb") as file:
                    return schema.from_table(pq.ParquetFile(file, page_checksum_verification=True).read())
            except FileNotFoundError:
                pass
            except (schema.Unfit, pa.ArrowException, OSError) as error:
                self._set_aside(path, _damage(path, error))
        raise MissingRun(f"There is no run {id} in {str(self.runs)!r}.")

    def list(self) -> StoredRuns:
        """Every readable run, sorted by id."""
        try:
            paths = sorted(self.runs.glob("*.parquet")) if self.runs.is_dir() else []
        except OSError as error:
            raise _unreadable(self.runs, error) from error
        return [stored for path in paths if (stored := self._inspect(path)) is not None]

    def _inspect(self, path: Path) -> Stored | None:
        try:
            if not path.is_file():
                return None
            with path.open("rb") as file:
                head = schema.header(pq.read_metadata(file).metadata)
        except FileNotFoundError:
            return None
        except (schema.Unfit, pa.ArrowException, OSError) as error:
            self._set_aside(path, _damage(path, error))
            return None
        if head.spec.id != path.stem:
            self._set_aside(path, f"it holds run {head.spec.id}, which is not its name")
            return None
        return Stored(*head, path)

    def _set_aside(self, path: Path, reason: str) -> None:
        aside, count = path.with_name(f"{path.name}.corrupt"), 1
        while aside.exists():
            count += 1
            aside = path.with_name(f"{path.name}.corrupt-{count}")
        try:
            path.rename(aside)
            outcome = f"set aside as {aside.name!r}"
        except OSError as error:
            outcome = f"ignored; it could not be set aside: {_reason(error)}"
        warnings.warn(f"{str(path)!r} is not a readable run: {reason} ({outcome}).", CorruptFile, stacklevel=4)

    @contextlib.contextmanager
    def _replacing(self, path: Path) -> Iterator[tuple[IO[bytes], Path]]:
        """An open temporary file beside `path`, gone at the end unless the caller moved it."""
        # The process is in the name so that leftovers of a killed one can be told from a neighbor's work; the
        # token keeps threads apart. Not `*.parquet`: a glob over the runs must never meet a half-written file.
        name = f".{path.stem}.{_HOST}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
        temporary = self.runs / name
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("xb") as file:
                    yield file, temporary
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()
        except OSError as error:
            raise StoreError(
                f"Cannot write results to {str(path.parent)!r}: {_reason(error)}. "
                "Free it, or choose another folder with --results."
            ) from error

    def _clean(self) -> None:
        with contextlib.suppress(OSError):
            for path in self.runs.glob("*.tmp"):
                if (match := _TEMPORARY.fullmatch(path.name)) and _stale(path, match["host"], int(match["pid"])):
                    path.unlink(missing_ok=True)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _stale(path: Path, host: str, pid: int) -> bool:
    return time.time() - path.stat().st_mtime > _DAY or (host == _HOST and not _alive(pid))


def _alive(pid: int) -> bool:
    if os.name != "posix":
        return True  # signal 0 is a real signal elsewhere; age alone decides there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _damage(path: Path, error: Exception) -> str:
    # pyarrow reports damaged content as an OSError too, but without an error number.
    if isinstance(error, OSError) and error.errno is not None:
        raise _unreadable(path, error) from error
    return str(error).splitlines()[0].rstrip(".") or type(error).__name__


def _unreadable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"Cannot read {str(path)!r}: {_reason(error)}.")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
