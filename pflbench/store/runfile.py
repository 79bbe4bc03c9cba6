"""Parquet files of runs: a run by itself, or a pack of many, with one row group each.

A file's metadata has the metadata of its run, or lists those of all runs, so that one footer tells all headers. A pack
never changes: its name carries a hash of that list and of the column names, and packing again writes another file. So
packs of two machines, or of two processes at a time, can never overwrite each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import files
from pflbench.store.checked import loaded
from pflbench.store.header import Foreign, Stored, Texts, Unfit, check_version, decoded, encoded, metadata, sealed

if TYPE_CHECKING:
    import pyarrow as pa

PACK_VERSION = 1
AT_ONCE = 1_000_000
"""Rows that are read at a time, at most, unless one run has more."""
_VERSION, _RUNS = "pflbench.pack", "pflbench.runs"
_SEARCHED = ["run_id", "method", "dataset", "partition", "seed"]  # statistics of all columns would double the footer
_WRITTEN = {"compression": "zstd", "write_page_checksum": True}


class Footer(NamedTuple):
    """Footer of a Parquet file: the entries of pflbench in its metadata, and the rows of each row group.

    `identity` tells the file from others of its name.
    """

    identity: files.Identity
    metadata: Texts
    groups: list[int]

    @classmethod
    def of(cls, path: Path) -> Footer:
        """Read a file's footer. Raises `Unfit` or `OSError`."""
        from pflbench.store import schema

        with path.open("rb") as file:
            footer = schema.parquet_footer(file)
            identity = files.identity(os.fstat(file.fileno()))
        groups = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        return cls(identity, decoded(footer.metadata), groups)


class RunFile:
    """File of a run, named by its id, or of a pack.

    `entries`: the runs by id. `unfit` and `foreign`: reasons why runs of a pack are not among them, as their metadata
    cannot be read or are another version's. A pack with foreign runs is not to be replaced: they would be lost.

    Raises `Unfit`, `Foreign` and `OSError`.
    """

    def __init__(self, path: Path, lies: Path | None = None) -> None:
        self.path, self.lies = path, lies or path  # where it belongs, and where it is until then
        self.footer = Footer.of(self.lies)
        self.entries: dict[str, Stored] = {}
        self.unfit: list[str] = []
        self.foreign: list[Foreign] = []
        self.packed = _VERSION in self.footer.metadata
        if self.packed:
            self._list()
            return
        run = Stored.of(self.footer.metadata, self.path, sum(self.footer.groups))
        if run.spec.id != self.path.stem:
            advice = f"If that is a mistake, rename it to '{run.spec.id}.parquet'."
            raise Foreign(f"run {run.spec.id}, which is not its name", advice)
        self.entries[run.spec.id] = run

    def _list(self) -> None:
        check_version("pack", self.footer.metadata[_VERSION], PACK_VERSION)
        listed = _listed(self.footer.metadata)
        if self.footer.groups != [rows for rows, _ in listed if rows]:
            raise Unfit("its list of runs does not fit its rows")
        group, twice = 0, set[str]()
        for rows, texts in listed:
            try:
                run = Stored.of(texts, self.path, rows, group)
                twice |= {run.spec.id} & self.entries.keys()
                self.entries[run.spec.id] = run
            except Foreign as error:
                self.foreign.append(error)
            except Unfit as error:
                self.unfit.append(str(error))
            group += rows > 0
        for id in sorted(twice):  # nobody can tell which of them is right
            del self.entries[id]
            self.unfit.append(f"run {id} is in it twice")

    def read(self, id: str) -> RunResult:
        """Read one run. Raises as the constructor does, `FileNotFoundError` also if another file took the name."""
        from pflbench.store import schema

        entry = self.entries[id]
        with schema.checked():
            if not entry.rows:
                table = schema.SCORES.empty_table()
            elif self.packed:
                table = self._rows([entry])
            else:
                with self.lies.open("rb") as file:
                    self._check(os.fstat(file.fileno()))
                    table = schema.read_rows(file)
            return schema.from_rows(table, [entry])[0]

    def read_several(self, ids: Iterable[str]) -> dict[str, RunResult]:
        """Read those runs of a pack that have rows, by id: faster than one after the other.

        Raises as `read`, which tells for a single run if it is the cause.
        """
        from pflbench.store import schema

        found = dict[str, RunResult]()
        entries = [self.entries[id] for id in ids if self.packed and self.entries[id].rows]
        for some in _batches(sorted(entries, key=lambda entry: entry.group or 0)):
            with schema.checked():
                results = schema.from_rows(self._rows(some), some)
            found |= {result.spec.id: result for result in results}
        return found

    def _rows(self, entries: Sequence[Stored]) -> pa.Table:
        """The rows of these runs of a pack, one run's after the other's."""
        from pflbench.store import schema

        self._check(self.lies.stat())
        content = schema.opened(self.lies, self.footer.identity)
        groups = [entry.group for entry in entries if entry.group is not None]
        table = content.read(groups, [*schema.SCORES.names, "run_id"])
        if not schema.belong(table["run_id"], entries):
            whose = f"run {entries[0].spec.id}" if len(entries) == 1 else f"{len(entries)} runs"
            raise Unfit(f"the rows of {whose} are not where they should be")
        return table

    def _check(self, status: os.stat_result) -> None:
        if files.identity(status) != self.footer.identity:
            raise FileNotFoundError(self.path)


def _listed(texts: Texts) -> list[tuple[int, Texts]]:
    """The runs that a pack's metadata list: number of rows and metadata. Raises `Unfit`."""
    try:
        listed = [
            (run["rows"], {key: str(text) for key, text in run["metadata"].items()}) for run in loaded(texts[_RUNS])
        ]
        if any(type(rows) is not int for rows, _ in listed):
            raise ValueError
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unfit(f"unreadable list of runs ({type(error).__name__})") from error
    return listed


def _batches(entries: Iterable[Stored]) -> Iterator[list[Stored]]:
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
    return publish(path, lambda file: pq.write_table(table, file, **_WRITTEN), {result.spec.id: schema.digest(result)})


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
    digests: dict[str, str] = {}
    content = pa.BufferOutputStream()  # a writer on the file itself would complain once more of a full disk when freed
    with pq.ParquetWriter(content, columns, write_statistics=_SEARCHED, **_WRITTEN) as writer:
        for run in runs:
            id = run.spec.id
            result = read(id)
            if metadata(result) != metadata(run) or len(schema.rows(result)) != run.rows:
                raise StoreError(f"Run {id} changed while it was packed. Nothing is lost; pack again.")
            if run.rows:
                table = schema.to_table(result).replace_schema_metadata(None)
                writer.write_table(table, row_group_size=len(table))
            digests[id] = schema.digest(result)
    check_place(path)
    pack = publish(path, lambda file: file.write(content.getvalue()), digests)
    files.sync_folder(folder)
    return pack


def _name(spec: RunSpec) -> str:
    """Setting of a pack's runs for readers, fit for a file name."""
    text = f"{spec.dataset.name}-{spec.partition.name}-{spec.clients}-clients-{spec.rounds}-rounds"
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[-80:].strip("-")


def publish(path: Path, content: Callable[[IO[bytes]], object], digests: Mapping[str, str]) -> RunFile:
    """Write a file, which is there only when all of it was read again and found equal. Raises `StoreError`.

    `digests`: the `schema.digest` of each of its runs, by id.
    """
    from pflbench.store import schema

    with files.replacing(path) as (file, temporary):
        content(file)
        files.sync(file)
        try:
            written = RunFile(path, lies=temporary)
            same = {id: schema.digest(written.read(id)) for id in written.entries} == digests
        except (Unfit, OSError) as error:
            raise StoreError(f"What was written to {str(path.parent)!r} cannot be read: {error}.") from error
        if not same:
            raise StoreError(f"What was written to {str(path.parent)!r} reads differently. Is its disk broken?")
        temporary.replace(path)
    written.lies = path
    return written


def check_place(path: Path) -> None:
    """Raise `StoreError` if a file that is not to be replaced has this path."""
    try:
        if path.is_file():
            RunFile(path)
    except Foreign as error:
        raise StoreError(f"{str(path)!r} is not replaced: {error}. {error.advice}") from error
    except (Unfit, OSError):
        return  # damaged, so nothing to keep, or gone; what cannot be written says so itself


def rewrite(
    folder: Path, runs: Sequence[Stored], read: Callable[[str], RunResult], replaced: Sequence[RunFile]
) -> RunFile | None:
    """Write runs into a pack, read it again, and only then remove the files that it replaces. None: there are no runs.

    So each run is readable at every moment. Packs go first: a run by itself goes before its packed self until that is
    gone for good. Raises as `write_pack`.
    """
    new = write_pack(folder, runs, read) if runs else None
    for packed in (True, False):
        for file in replaced:
            if file.packed == packed and (new is None or file.path != new.path):
                files.remove(file.path, file.footer.identity, new.path if new else None)
        if folder.is_dir():
            files.sync_folder(folder)
    return new
