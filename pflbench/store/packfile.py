"""Packs: many runs in one Parquet file, with the columns of single runs and a row group for each run.

The file's metadata lists the metadata of every run in it, so all headers cost one footer. A pack never changes: its
name carries a hash of that list and of the names of its columns, and packing again writes another file. So packs of two
machines, or of two processes at a time, can never overwrite each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import files
from pflbench.store.footers import Footer, read_footer
from pflbench.store.header import Foreign, Header, Unfit, header, metadata

if TYPE_CHECKING:
    import pyarrow as pa

PACK_VERSION = 1
_VERSION, _RUNS = b"pflbench.pack", b"pflbench.runs"
_SEARCHED = ["run_id", "method", "dataset", "partition", "seed"]  # statistics of all columns would double the footer


class PackedRun(NamedTuple):
    """A run as a pack's metadata describes it. `group` is the row group of its `rows`, meaningless without any."""

    header: Header
    rows: int
    group: int = 0


class Pack:
    """A pack whose footer was read: its runs by id. Raises `Unfit` or `OSError`.

    `unfit` says what is wrong with each run whose metadata could not be read, `foreign` with each of another version of
    pflbench; they are not among the entries. A pack with foreign runs is not to be replaced: what is not read of it
    would be lost.
    """

    def __init__(self, path: Path, footer: Footer | None = None) -> None:
        footer = footer or read_footer(path)
        self.path, self.identity, self.columns = path, footer.identity, footer.columns
        self.entries, self.unfit, self.foreign = _entries(footer)
        self._parsed = footer.parsed

    def read(self, id: str) -> RunResult:
        """One of its runs. Raises as the constructor does, `FileNotFoundError` also if another file took its name."""
        from pflbench.store import parquet, schema

        entry = self.entries[id]
        with parquet.checked():
            table = self._rows(id, entry.group) if entry.rows else schema.SCORES.empty_table()
            return schema.from_table(table.replace_schema_metadata(metadata(entry.header)))

    def _rows(self, id: str, group: int) -> pa.Table:
        from pflbench.store import parquet, schema

        with self.path.open("rb") as file:
            if files.identity(os.fstat(file.fileno())) != self.identity:
                raise FileNotFoundError(self.path)
            self._parsed = self._parsed or parquet.footer(file)
            table = parquet.rows(file, group, [*schema.SCORES.names, "run_id"], self._parsed)
        if "run_id" not in table.column_names or table["run_id"].unique().to_pylist() != [id]:
            raise Unfit(f"the rows of run {id} are not where they should be")
        return table


def write(folder: Path, runs: Sequence[PackedRun], read: Callable[[str], RunResult]) -> Pack:
    """Write the runs as one pack, which is there only when all of it was read again and found equal.

    Raises `StoreError`, and what `read` raises; there is no new file then.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pflbench.store import schema

    listing = _listing(runs)
    content_hash = hashlib.sha256(listing + " ".join(schema.COLUMNS.names).encode()).hexdigest()
    path = folder / f"{_name(runs[0].header.spec)}-{content_hash[:8]}.parquet"
    columns = schema.COLUMNS.with_metadata({_VERSION: str(PACK_VERSION).encode(), _RUNS: listing})
    digests: dict[str, str] = {}
    options = {"compression": "zstd", "write_statistics": _SEARCHED, "write_page_checksum": True}
    content = pa.BufferOutputStream()  # a writer on the file itself would complain once more of a full disk when freed
    with pq.ParquetWriter(content, columns, **options) as writer:
        for run in runs:
            id = run.header.spec.id
            result = read(id)
            if metadata(result) != metadata(run.header) or len(schema.rows(result)) != run.rows:
                raise StoreError(f"Run {id} changed while it was packed. Nothing is lost; pack again.")
            if run.rows:
                table = schema.to_table(result).replace_schema_metadata(None)
                writer.write_table(table, row_group_size=len(table))
            digests[id] = schema.digest(result)
    files.check_place(path, Pack)
    with files.replacing(path) as (file, temporary):
        file.write(content.getvalue())
        files.sync(file)
        pack = _verified(temporary, digests)
        temporary.replace(path)
        files.sync_folder(folder)
    pack.path = path
    return pack


def _verified(path: Path, digests: dict[str, str]) -> Pack:
    from pflbench.store import schema

    try:
        pack = Pack(path)
        same = {id: schema.digest(pack.read(id)) for id in pack.entries} == digests
    except (Unfit, OSError) as error:
        raise StoreError(f"What was written to {str(path.parent)!r} cannot be read: {error}.") from error
    if not same:
        raise StoreError(f"What was written to {str(path.parent)!r} reads differently. Is its disk broken?")
    return pack


def _listing(runs: Sequence[PackedRun]) -> bytes:
    # surrogateescape brings any bytes through JSON and back, an error's invalid Unicode included.
    texts = [
        {key.decode(): value.decode(errors="surrogateescape") for key, value in metadata(run.header).items()}
        for run in runs
    ]
    listed = [{"rows": run.rows, "metadata": text} for run, text in zip(runs, texts, strict=True)]
    return json.dumps(listed, sort_keys=True).encode()


def _entries(footer: Footer) -> tuple[dict[str, PackedRun], list[str], list[Foreign]]:
    said = footer.metadata
    if _VERSION not in said:
        raise Unfit("no pflbench metadata of a pack")
    if said[_VERSION] != str(PACK_VERSION).encode():
        version = said[_VERSION].decode(errors="replace")
        raise Foreign(f"pack version {version}, where this version of pflbench reads {PACK_VERSION}")
    try:
        listed = [(int(run["rows"]), _encoded(run["metadata"])) for run in json.loads(said[_RUNS])]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Unfit(f"unreadable list of runs ({type(error).__name__})") from error
    if footer.groups != [rows for rows, _ in listed if rows]:
        raise Unfit("its list of runs does not fit its rows")
    entries: dict[str, PackedRun] = {}
    unfit: list[str] = []
    foreign: list[Foreign] = []
    group = 0
    for rows, texts in listed:
        try:
            head = header(texts)
            entries[head.spec.id] = PackedRun(head, rows, group)
        except Foreign as error:
            foreign.append(error)
        except Unfit as error:
            unfit.append(str(error))
        group += rows > 0
    return entries, unfit, foreign


def _encoded(metadata: dict[str, str]) -> dict[bytes, bytes]:
    return {key.encode(): value.encode(errors="surrogateescape") for key, value in metadata.items()}


def _name(spec: RunSpec) -> str:
    """What a reader wants to know of a pack's runs, fit for a file name."""
    text = f"{spec.dataset.name}-{spec.partition.name}-{spec.clients}-clients-{spec.rounds}-rounds"
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[-80:].strip("-")
