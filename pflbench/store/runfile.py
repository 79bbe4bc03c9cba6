"""Parquet files of runs: a run by itself, or a pack of many, with one row group each, and a row for each score.

The identity of a run repeats in plain columns of every row (dictionary encoding makes that free), so pandas or DuckDB
can read a glob of runs without this package. A failed run has no rows, and its error in the metadata.

A file's metadata has the metadata of its run, or lists those of all runs, so that one footer tells all headers. A pack
never changes: its name carries a hash of that list and of the column names, and packing again writes another file. So
packs of two machines, or of two processes at a time, can never overwrite each other.

No thread of Arrow is started: one that still holds a Python file when the interpreter ends aborts the process after
all its work is done ("terminate called without an active exception", apache/arrow#34314).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pflbench.errors import StoreError
from pflbench.package import __version__
from pflbench.result import RunResult, Score
from pflbench.spec import RunSpec
from pflbench.store import files
from pflbench.store.columns import Metrics, Scores, Words, metrics_of, scores_of
from pflbench.store.header import Stored, Texts, Unfit, check_version, decoded, encoded, metadata, sealed

PACK_VERSION = 1
OPEN = 64
"""Files that are held open at a time, at most."""
_VERSION, _RUNS = "pflbench.pack", "pflbench.runs"
_SEARCHED = ["run_id", "method", "dataset", "partition", "seed"]  # statistics of all columns would double the footer
_WRITTEN = {"compression": "zstd", "write_page_checksum": True}
_MOST_BYTES, _BYTES_OF_A_ROW = 4 << 20, 1024
"""Unpacked size of what is read at a time, at most: for all rows together, and more for each row."""


_TEXT, _INTEGER, _NUMBER, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_KINDS = {str: _TEXT, int: _INTEGER, float: _NUMBER}
SCORES = pa.schema([(name, _KINDS[kind]) for name, kind in get_type_hints(Score).items()])
"""The columns that differ between rows: the fields of `Score`, in its order.

A `Metric` is a row, too: its stage is `metric/` and its name, `accuracy` its value, and the other columns are 0.
"""
METRIC = "metric/"

_PLAIN = {
    "run_id": (_TEXT, "spec.id"),
    "method": (_TEXT, "spec.method.name"),
    "method_version": (_TEXT, "spec.method.version"),
    "hyper": (_TEXT, "spec.method.hyper"),
    "dataset": (_TEXT, "spec.dataset.name"),
    "dataset_options": (_TEXT, "spec.dataset.options"),
    "partition": (_TEXT, "spec.partition.name"),
    "partition_options": (_TEXT, "spec.partition.options"),
    "model": (_TEXT, "spec.model"),
    "clients": (_INTEGER, "spec.clients"),
    "rounds": (_INTEGER, "spec.rounds"),
    "batch": (_INTEGER, "spec.batch"),
    "protocol": (_TEXT, "provenance.protocol"),  # empty: what a suite follows is no part of a run
    "precision": (_TEXT, "spec.precision"),
    "seed": (_INTEGER, "spec.seed"),
    "data_hash": (_TEXT, "provenance.data_hash"),
    "commit": (_TEXT, "provenance.commit"),
    "device": (_TEXT, "provenance.device"),
    "pflbench": (_TEXT, "provenance.pflbench"),
    "wall_seconds": (_NUMBER, "provenance.wall_seconds"),
    "validation": (_NUMBER, "spec.validation"),
    "training_clients": (_INTEGER, "spec.training_clients"),
    "cohort": (_INTEGER, "spec.cohort"),
    "query": (_TEXT, "spec.query"),
    "arrival": (_NUMBER, "spec.arrival"),
    "weights": (_TEXT, "spec.weights"),
    "batches": (_TEXT, "spec.batches"),
    "augment": (_TEXT, "spec.augment"),
    "tail": (_TEXT, "spec.tail"),
    "tiny_client": (_TEXT, "spec.tiny_client"),
    "scored_clients": (_TEXT, "spec.scoring.clients"),
    "scored_first": (_INTEGER, "spec.scoring.first"),
    "scored_rounds": (_INTEGER, "spec.scoring.last"),
    "scored_moment": (_TEXT, "spec.scoring.moment"),
    "global_on": (_TEXT, "spec.scoring.global_on"),
    "average": (_TEXT, "spec.scoring.average"),
    "finetune_steps": (_INTEGER, "spec.scoring.finetune.steps"),
    "finetune_lr": (_NUMBER, "spec.scoring.finetune.lr"),
    "finetune_decay": (_NUMBER, "spec.scoring.finetune.decay"),
    "finetune_every": (_INTEGER, "spec.scoring.finetune.every"),
    "dataset_version": (_TEXT, "spec.dataset.version"),
    "dataset_content": (_TEXT, "spec.dataset.content"),
    "partition_version": (_TEXT, "spec.partition.version"),
    "partition_content": (_TEXT, "spec.partition.content"),
    "model_version": (_TEXT, "spec.model_version"),
    "unchecked": (_FLAG, "provenance.unchecked"),
    "spec": (_TEXT, "spec.canonical"),
}
COLUMNS = pa.schema([*SCORES, *((name, kind) for name, (kind, _) in _PLAIN.items())])
"""The columns of scores, and those that are the same in all rows of a run: its identity, and its origin.

Reading a run takes none of the latter: they are for those who read the files with pandas or DuckDB. `validation` tells
trials of a search (above 0) from results. Options are JSON with sorted keys, `spec` is all of the identity, and
`run_id` its hash. Versions and contents are those of a user-supplied dataset, partition or network, as in the spec
(null: built in, or nothing is read); `unchecked` tells runs of a method that was not held against the contract. Columns
are only ever added.
"""
CODED_NAMES = ["stage"]
"""Columns that stay coded when they are read: a long text that a small file has once would be written out per row."""
READ = {one.name: pa.dictionary(pa.int32(), _TEXT) if one.name in CODED_NAMES else one.type for one in SCORES}
"""Columns that are read, with their types."""


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Arrow's exceptions in here become `Unfit`; those of the system stay."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        # pyarrow reports damaged content as an OSError, too, but without an error number
        raise Unfit(files.error_text(error)) from error
    except KeyError as error:
        raise Unfit(f"unexpected columns (no {error})") from error


class RunFile:
    """Runs in a file, as its footer describes them: a run by itself, or a pack.

    `entries`: the runs by id. `unread`: reasons why the file or runs of it are not among them. Raises `OSError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Stored] = {}
        self.unread: list[Unfit] = []
        self.packed = False
        self.identity: files.Identity | None = None
        try:
            with checked():
                self._index()
        except Unfit as error:
            self.unread.append(error)

    def _index(self) -> None:
        self.path.lstat()
        if not self.path.is_file():  # opening a pipe or a device may wait for ever
            raise Unfit("it is no regular file")
        self.identity = files.identity(self.path.stat())
        with self.path.open("rb") as file:
            footer = pq.read_metadata(file)
        texts = decoded(footer.metadata)
        groups = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        self.packed = _VERSION in texts
        if self.packed:
            self._list(texts, groups)
        else:
            run = Stored.of(texts, self.path, sum(groups))
            self.entries[run.spec.id] = run

    def _list(self, texts: Texts, groups: list[int]) -> None:
        check_version("pack", texts[_VERSION], PACK_VERSION)
        try:
            listed = [  # not `parsed`: a failure's text may have surrogates
                (bool(run["rows"]), {key: str(text) for key, text in run["metadata"].items()})
                for run in json.loads(texts[_RUNS])
            ]
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise Unfit(f"unreadable list of runs ({type(error).__name__})") from error
        if sum(has_rows for has_rows, _ in listed) != len(groups):
            raise Unfit("its list of runs does not fit its rows")
        group = 0
        for has_rows, entry in listed:
            try:
                run = Stored.of(entry, self.path, groups[group] if has_rows else 0, group)
                self.entries[run.spec.id] = run
            except Unfit as error:
                self.unread.append(error)
            group += has_rows

    def is_current(self) -> bool:
        """True unless the file was replaced or removed since it was indexed."""
        with contextlib.suppress(OSError):
            return files.identity(self.path.stat()) == self.identity
        return False

    def read(self, ids: Iterable[str]) -> dict[str, RunResult]:
        """Read runs, by id, with checked pages: faster than one after the other.

        Raises `Unfit`, also for more bytes than scores need, `FileNotFoundError` if it was replaced, and `OSError`.
        """
        runs = sorted((self.entries[id] for id in ids), key=attrgetter("group"))
        results = {run.spec.id: RunResult(run.spec, (), dict(run.provenance), run.failure) for run in runs}
        if scored := [run for run in runs if run.rows]:
            parquet = _opened(self)
            groups = [run.group for run in scored] if self.packed else range(parquet.num_row_groups)
            size = sum(parquet.metadata.row_group(group).total_byte_size for group in groups)
            if size > _MOST_BYTES + _BYTES_OF_A_ROW * sum(run.rows for run in scored):
                raise Unfit(f"rows that unpack to {size:,} bytes")
            with checked():
                table = parquet.read_row_groups(groups, list(READ), use_threads=False)
            results |= from_table(table, scored)
        return results


@lru_cache(maxsize=OPEN)
def _opened(file: RunFile) -> pq.ParquetFile:
    """The file, held open for the next of its runs. Raises as `RunFile.read`."""
    with checked():
        source = pa.OSFile(os.fspath(file.path))  # which closes when nothing holds it any more
        parquet = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True, read_dictionary=CODED_NAMES)
        if not file.is_current():
            raise FileNotFoundError(file.path)
        present = parquet.schema_arrow
        if odd := [name for name, kind in READ.items() if present.field(name).type != kind]:
            raise Unfit(f"unexpected columns ({', '.join(odd)})")
    return parquet


def write(path: Path, result: RunResult) -> None:
    """Write a run into a file by itself, as `publish` does. Raises `StoreError`."""
    content = pa.BufferOutputStream()
    pq.write_table(to_table(result).replace_schema_metadata(encoded(_sealed(result))), content, **_WRITTEN)
    publish(path, content)


def write_pack(folder: Path, results: Iterable[RunResult]) -> Path:
    """Write runs of one setting into a pack, as `publish` does, and return its path. Raises `StoreError`."""
    results = sorted(results, key=attrgetter("spec.id"))
    listed = [{"rows": len(one.scores) + len(one.metrics), "metadata": _sealed(one)} for one in results]
    listing = json.dumps(listed, sort_keys=True)
    content_hash = hashlib.sha256((listing + " ".join(COLUMNS.names)).encode()).hexdigest()
    columns = COLUMNS.with_metadata(encoded({_VERSION: str(PACK_VERSION), _RUNS: listing}))
    content = pa.BufferOutputStream()
    with pq.ParquetWriter(content, columns, write_statistics=_SEARCHED, **_WRITTEN) as writer:
        for table in filter(len, map(to_table, results)):
            writer.write_table(table, row_group_size=len(table))
    path = folder / f"{_name(results[0].spec)}-{content_hash[:8]}.parquet"
    publish(path, content)
    files.sync_folder(folder)
    return path


def _sealed(result: RunResult) -> Texts:
    return sealed(metadata(result), checksum(result))


def _name(spec: RunSpec) -> str:
    """Setting of a pack's runs for readers, fit for a file name."""
    text = f"{spec.dataset.name}-{spec.partition.name}-{spec.clients}-clients-{spec.rounds}-rounds"
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[-80:].strip("-")


def publish(path: Path, content: pa.BufferOutputStream) -> None:
    """Write a file, which appears only when all of it was read again and fits its checksums. Raises `StoreError`."""
    with files.replacing(path) as (file, temporary):
        file.write(content.getvalue())
        files.sync(file)
        try:
            written = RunFile(temporary)
            for reason in written.unread:
                raise reason
            for id in written.entries:
                written.read([id])
        except (Unfit, OSError) as error:
            raise StoreError(f"What was written to {str(path.parent)!r} cannot be read: {error}.") from error
        temporary.replace(path)


def to_table(result: RunResult) -> pa.Table:
    """A run as an Arrow table, without metadata."""
    listed = rows(result)
    scores = zip(*listed, strict=True) if listed else [[]] * len(SCORES)
    columns = [pa.array(list(values), kind) for values, kind in zip(scores, SCORES.types, strict=True)]
    columns += [pa.repeat(pa.scalar(_plain(result, *origin), origin[0]), len(listed)) for origin in _PLAIN.values()]
    return pa.Table.from_arrays(columns, schema=COLUMNS)


def rows(result: RunResult) -> tuple[Score, ...]:
    """Everything a run's file has a row for: its scores, then its metrics."""
    return *result.scores, *(Score(METRIC + m.name, m.round, 0, m.client, 0, 0, 0.0, m.value) for m in result.metrics)


def checksum(result: RunResult) -> str:
    """A hash of a run's scores and metrics, which takes little of the time that reading them takes."""
    digest = hashlib.sha256()
    for some in (scores_of(result.scores), metrics_of(result.metrics)):
        for name, column in some.columns.items():
            if isinstance(column, Words):
                present = np.flatnonzero(np.bincount(column.codes, minlength=len(column.texts)))
                ordered = sorted(present.tolist(), key=column.texts.__getitem__)
                ranks = np.zeros(len(column.texts), dtype="<i8")
                ranks[ordered] = range(len(ordered))
                digest.update(repr([column.texts[code] for code in ordered]).encode())
                digest.update(ranks[column.codes].data)
            else:
                digest.update(np.ascontiguousarray(column, dtype="<f8" if name in _REAL else "<i8").data)
    return digest.hexdigest()


_REAL = {"loss_sum", "accuracy", "value"}
_ROUNDING = 1e-6
"""Distance from [0, 1] that an accuracy may have: a mean over batches rounds."""


def _check(run: Stored, result: RunResult) -> None:
    """Raise `Unfit` for scores that no training of the run can leave, or others than those that were written."""
    if len(result.scores):
        columns: Mapping[str, Any] = scores_of(result.scores).columns
        accuracy, client, correct = columns["accuracy"], columns["client"], columns["correct"]
        fits = (accuracy >= -_ROUNDING) & (accuracy <= 1 + _ROUNDING) & (correct >= 0) & (correct <= columns["count"])
        fits &= (client >= -1) & (client < run.spec.clients) & (columns["round"] >= 0) & (columns["step"] >= 0)
        if not fits.all():
            raise Unfit("a score's accuracy, count, client, round or step is out of range")
    elif run.failure is None:
        raise Unfit("it is finished and has no scores")
    if run.checksum is not None and run.checksum != checksum(result):
        raise Unfit("its scores do not fit their checksum")


def from_table(table: pa.Table, runs: Sequence[Stored]) -> dict[str, RunResult]:
    """The runs whose rows these are, one run's after the other's, by id. Raises `Unfit`."""
    if table.column_names != list(READ) or len(table) != sum(run.rows for run in runs):
        raise Unfit("other rows or columns than its metadata describe")
    if any(column.null_count for column in table.columns):
        raise Unfit("empty fields among the scores")
    coded, *plain = (column.combine_chunks() for column in table.columns)
    # By dlpack, as `to_numpy` imports pandas, which takes longer than to read a hundred runs.
    stages = Words(tuple(coded.dictionary.to_pylist()), np.from_dlpack(coded.indices))
    others = [np.from_dlpack(column) for column in plain]
    of_metrics = np.array([text.startswith(METRIC) for text in stages.texts], dtype=np.bool_)[stages.codes]
    names = tuple(text.removeprefix(METRIC) for text in stages.texts)
    results, end = dict[str, RunResult](), 0
    for run in runs:
        start, end = end, end + run.rows
        metrics = start + np.flatnonzero(of_metrics[start:end])
        scores = start + np.flatnonzero(~of_metrics[start:end])
        round, _, client, *_, value = (column[metrics] for column in others)
        results[run.spec.id] = result = RunResult(
            run.spec,
            Scores(stages.take(scores), *(column[scores] for column in others)),
            dict(run.provenance),
            run.failure,
            Metrics(round, client, Words(names, stages.codes[metrics]), value),
        )
        _check(run, result)
    return results


def _plain(result: RunResult, kind: pa.DataType, origin: str) -> Any:
    """The value of a plain column: an attribute of the spec, or an entry of the provenance."""
    value: Any = {"spec": result.spec, "provenance": {"pflbench": __version__, "unchecked": False} | result.provenance}
    for name in origin.split("."):
        # Fine-tuning may be None.
        value = value.get(name) if isinstance(value, dict) else value and getattr(value, name)
    if name == "canonical":
        return value()
    if kind is _NUMBER and value is not None:
        return float(value)  # Arrow makes no float of a whole number above 2**53
    if kind is not _TEXT or value is None:
        return value
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)
