"""Parquet files of runs: a run by itself, or a pack of many, with one row group each.

A file's metadata has the metadata of its run, or lists those of all runs, so that one footer tells all headers. A pack
never changes: its name carries a hash of that list and of the column names, and packing again writes another file. So
packs of two machines, or of two processes at a time, can never overwrite each other.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import files
from pflbench.store.header import Foreign, Stored, Texts, Unfit, check_version, decoded, encoded, metadata, sealed

if TYPE_CHECKING:
    from pflbench.store.schema import OpenFile

PACK_VERSION = 1
AT_ONCE = 1_000_000
"""Rows that are read at a time, at most, unless one run has more."""
OPEN = 64
"""Files that are held open at a time, at most."""
_VERSION, _RUNS = "pflbench.pack", "pflbench.runs"
_SEARCHED = ["run_id", "method", "dataset", "partition", "seed"]  # statistics of all columns would double the footer
_WRITTEN = {"compression": "zstd", "write_page_checksum": True}


class RunFile:
    """Runs in a file, as its footer describes them: a run by itself, in a file named by its id, or a pack.

    `entries`: the runs by id. `unread`: reasons why the file or runs of it are not among them. Raises `OSError`.
    """

    def __init__(self, path: Path, lies: Path | None = None) -> None:
        self.path, self.lies = path, lies or path  # where it belongs, and where it is until then
        self.entries: dict[str, Stored] = {}
        self.unread: list[Unfit] = []
        self.packed = False
        try:
            self._index()
        except Unfit as error:
            self.unread.append(error)

    @property
    def is_foreign(self) -> bool:
        """True if the file, or a run in it, is whole and not read by this version."""
        return any(isinstance(reason, Foreign) for reason in self.unread)

    def _index(self) -> None:
        from pflbench.store import schema

        try:
            status = self.lies.stat()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP) and self.lies.is_symlink():
                raise Unfit("it is a link that leads to no file") from error
            raise
        self.identity = files.identity(status)
        if not stat.S_ISREG(status.st_mode):  # opening a pipe or a device may wait for ever
            raise Unfit("it is a folder" if stat.S_ISDIR(status.st_mode) else "it is a pipe or a device")
        with self.lies.open("rb") as file:
            footer = schema.parquet_footer(file)
        texts = decoded(footer.metadata)
        groups = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        self.packed = _VERSION in texts
        if self.packed:
            self._list(texts, groups)
            return
        run = Stored.of(texts, self.path, sum(groups))
        if run.spec.id != self.path.stem:
            advice = f"If that is a mistake, rename it to '{run.spec.id}.parquet'."
            raise Foreign(f"run {run.spec.id}, which is not its name", advice)
        self.entries[run.spec.id] = run

    def _list(self, texts: Texts, groups: list[int]) -> None:
        check_version("pack", texts[_VERSION], PACK_VERSION)
        listed = _listed(texts)
        if groups != [rows for rows, _ in listed if rows]:
            raise Unfit("its list of runs does not fit its rows")
        group, twice = 0, set[str]()
        for rows, entry in listed:
            try:
                run = Stored.of(entry, self.path, rows, group)
                twice |= {run.spec.id} & self.entries.keys()
                self.entries[run.spec.id] = run
            except Unfit as error:
                self.unread.append(error)
            group += rows > 0
        for id in sorted(twice):  # nobody can tell which of them is right
            del self.entries[id]
            self.unread.append(Unfit(f"run {id} is in it twice"))

    def read(self, id: str) -> RunResult:
        """Read one run. Raises as `read_several`."""
        return self.read_several([id])[id]

    def read_several(self, ids: Iterable[str]) -> dict[str, RunResult]:
        """Read runs, by id: faster than one after the other.

        Raises `Unfit`, without saying which run is damaged, `FileNotFoundError` also if another file took the name, and
        `OSError`.
        """
        from pflbench.store import schema

        results = dict[str, RunResult]()
        entries = sorted((self.entries[id] for id in ids), key=lambda entry: entry.group or 0)
        for some in _batches(entries):
            if any(entry.rows for entry in some):
                groups = [entry.group or 0 for entry in some if entry.rows] if self.packed else None
                table = _opened(self).read(groups)
            else:
                table = schema.SCORES.empty_table()
            results |= {result.spec.id: result for result in schema.from_rows(table, some)}
        return results


@lru_cache(maxsize=OPEN)
def _opened(file: RunFile) -> OpenFile:
    """The file, held open for the next of its runs. Raises as `RunFile.read_several`."""
    from pflbench.store import schema

    content = schema.OpenFile.of(file.lies)
    if files.identity(file.lies.stat()) != file.identity:
        raise FileNotFoundError(file.lies)
    return content


def _listed(texts: Texts) -> list[tuple[int, Texts]]:
    """The runs that a pack's metadata list: number of rows and metadata. Raises `Unfit`."""
    try:
        listed = [  # not `parsed`: a failure's text may have surrogates
            (run["rows"], {key: str(text) for key, text in run["metadata"].items()}) for run in json.loads(texts[_RUNS])
        ]
        if any(type(rows) is not int for rows, _ in listed):
            raise ValueError
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise Unfit(f"unreadable list of runs ({type(error).__name__})") from error
    return listed


def _batches(entries: Iterable[Stored]) -> Iterable[list[Stored]]:
    """The runs, in their order, in parts of at most `AT_ONCE` rows."""
    some, rows = list[Stored](), 0
    for entry in entries:
        if some and rows + entry.rows > AT_ONCE:
            yield some
            some, rows = [], 0
        some.append(entry)
        rows += entry.rows
    if some:
        yield some


def write(path: Path, result: RunResult) -> RunFile:
    """Write a run into a file by itself, as `publish` does. Raises `StoreError`."""
    import pyarrow.parquet as pq

    from pflbench.store import schema

    table = schema.to_table(result)
    return publish(path, lambda file: pq.write_table(table, file, **_WRITTEN))


def write_pack(folder: Path, runs: Sequence[Stored], read: Callable[[str], RunResult]) -> RunFile:
    """Write runs into one pack, as `publish` does.

    Raises `StoreError`, and what `read` raises; there is no new file then.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pflbench.store import schema

    sums = [run.checksum or schema.checksum(read(run.spec.id)) for run in runs]
    listed = [{"rows": run.rows, "metadata": sealed(metadata(run), rows)} for run, rows in zip(runs, sums, strict=True)]
    listing = json.dumps(listed, sort_keys=True)
    content_hash = hashlib.sha256((listing + " ".join(schema.COLUMNS.names)).encode()).hexdigest()
    path = folder / f"{_name(runs[0].spec)}-{content_hash[:8]}.parquet"
    columns = schema.COLUMNS.with_metadata(encoded({_VERSION: str(PACK_VERSION), _RUNS: listing}))
    content = pa.BufferOutputStream()  # a writer on the file itself would complain once more of a full disk when freed
    with pq.ParquetWriter(content, columns, write_statistics=_SEARCHED, **_WRITTEN) as writer:
        for run in runs:
            result = read(run.spec.id)
            if metadata(result) != metadata(run) or len(schema.rows(result)) != run.rows:
                raise StoreError(f"Run {run.spec.id} changed while it was packed. Nothing is lost; pack again.")
            if run.rows:
                table = schema.to_table(result).replace_schema_metadata(None)
                writer.write_table(table, row_group_size=len(table))
    if path.is_file():
        check_replaceable(RunFile(path))
    pack = publish(path, lambda file: file.write(content.getvalue()))
    files.sync_folder(folder)
    return pack


def _name(spec: RunSpec) -> str:
    """Setting of a pack's runs for readers, fit for a file name."""
    text = f"{spec.dataset.name}-{spec.partition.name}-{spec.clients}-clients-{spec.rounds}-rounds"
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[-80:].strip("-")


def publish(path: Path, write: Callable[[IO[bytes]], object]) -> RunFile:
    """Write a file, which appears only when all of it was read again and fits its checksums. Raises `StoreError`."""
    with files.replacing(path) as (file, temporary):
        write(file)
        files.sync(file)
        try:
            written = RunFile(path, lies=temporary)
            for reason in written.unread:
                raise reason
            for id in written.entries:
                written.read(id)
        except (Unfit, OSError) as error:
            raise StoreError(f"What was written to {str(path.parent)!r} cannot be read: {error}.") from error
        temporary.replace(path)
    written.lies = path
    return written


def check_replaceable(file: RunFile) -> None:
    """Raise `StoreError` for a file of another version, which would be lost. What is damaged may be replaced."""
    for reason in file.unread:
        if isinstance(reason, Foreign):
            raise StoreError(f"{str(file.path)!r} is not replaced: {reason}. {reason.advice}")
