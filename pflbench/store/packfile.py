"""Packs: many runs in one Parquet file, with the columns of single runs and a row group for each run.

The file's metadata lists the metadata of every run in it, so all headers cost one footer. A pack never changes: its
name carries a hash of that list and of the names of its columns, and packing again writes another file. So packs of two
machines, or of two processes at a time, can never overwrite each other.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import files
from pflbench.store.checked import loaded
from pflbench.store.header import Foreign, Stored, Unfit, check_version, encoded, metadata, sealed
from pflbench.store.runfile import RunFile, publish

PACK_VERSION = 1
_VERSION, _RUNS = "pflbench.pack", "pflbench.runs"
_SEARCHED = ["run_id", "method", "dataset", "partition", "seed"]  # statistics of all columns would double the footer


class Pack(RunFile):
    """A pack. One with foreign runs is not to be replaced: what is not read of it would be lost."""

    kind = "pack"

    def _list(self) -> None:
        said = self.footer.metadata
        if _VERSION not in said:
            raise Unfit("no pflbench metadata of a pack")
        check_version("pack", said[_VERSION], PACK_VERSION)
        try:
            listed = [
                (_rows(run["rows"]), {key: str(text) for key, text in run["metadata"].items()})
                for run in loaded(said[_RUNS])
            ]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Unfit(f"unreadable list of runs ({type(error).__name__})") from error
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


def _rows(said: object) -> int:
    """A run's number of rows. Raises `ValueError` for another value."""
    if type(said) is not int:
        raise ValueError(f"{said!r} is no number of rows")
    return said


def write(folder: Path, runs: Sequence[Stored], read: Callable[[str], RunResult]) -> Pack:
    """Write the runs as one pack, as `publish` does.

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
    options = {"compression": "zstd", "write_statistics": _SEARCHED, "write_page_checksum": True}
    content = pa.BufferOutputStream()  # a writer on the file itself would complain once more of a full disk when freed
    with pq.ParquetWriter(content, columns, **options) as writer:
        for run in runs:
            id = run.spec.id
            result = read(id)
            if metadata(result) != metadata(run) or len(schema.rows(result)) != run.rows:
                raise StoreError(f"Run {id} changed while it was packed. Nothing is lost; pack again.")
            if run.rows:
                table = schema.to_table(result).replace_schema_metadata(None)
                writer.write_table(table, row_group_size=len(table))
            digests[id] = schema.digest(result)
    files.check_place(path, Pack)
    pack = publish(path, Pack, lambda file: file.write(content.getvalue()), digests)
    files.sync_folder(folder)
    return pack


def _name(spec: RunSpec) -> str:
    """What a reader wants to know of a pack's runs, fit for a file name."""
    text = f"{spec.dataset.name}-{spec.partition.name}-{spec.clients}-clients-{spec.rounds}-rounds"
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[-80:].strip("-")
