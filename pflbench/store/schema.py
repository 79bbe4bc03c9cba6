"""The Parquet layout of one run: a row per score, the identity in plain columns, spec and provenance in the metadata.

The plain columns repeat in every row (dictionary encoding makes that free), so pandas or DuckDB can read a glob of
runs without this package. A failed run has the same columns, no rows, and its error in the metadata.

This is the one place that asks Arrow to read files. No thread is started: one of Arrow's that still holds a Python file
when the interpreter ends aborts the process after all its work is done ("terminate called without an active
exception", apache/arrow#34314).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pflbench.package import __version__
from pflbench.result import RunResult, Score
from pflbench.store.columns import Metrics, Scores, Words, metrics_of, scores_of
from pflbench.store.header import Stored, Unfit, encoded, metadata, sealed

SCORES = pa.schema(
    [
        ("stage", pa.string()),
        ("round", pa.int64()),
        ("step", pa.int64()),
        ("client", pa.int64()),
        ("correct", pa.int64()),
        ("count", pa.int64()),
        ("loss_sum", pa.float64()),
        ("accuracy", pa.float64()),
    ]
)
"""The columns that differ between rows: the fields of `Score`, in its order.

A `Metric` is a row, too: its stage is `metric/` and its name, `accuracy` its value, and the other columns are 0.
"""
METRIC = "metric/"

_TEXT, _INTEGER, _NUMBER, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
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
PLAIN = pa.schema([(name, kind) for name, (kind, _) in _PLAIN.items()])
"""The columns that are the same in all of a run's rows: what it is, as far as readers filter by it, and its origin.

Reading a run takes none of them: they are for those who read the files with pandas or DuckDB. `validation` tells trials
of a search (above 0) from results. Options are JSON with sorted keys, `spec` is all of the identity, and `run_id` its
hash. Versions and contents are those of a user-supplied dataset, partition or network, as in the spec (null: built in,
or nothing is read); `unchecked` tells runs of a method that was not held against the contract. Columns are only ever
added.
"""
COLUMNS = pa.schema([*SCORES, *PLAIN])
_CODED = pa.dictionary(pa.int32(), _TEXT)
_CODES = ["stage"]
"""Columns that stay coded when they are read: a long text that a small file has once would be written out per row."""
_LONGEST = 10_000
"""Characters in the name of a stage or metric, at most."""
_PHYSICAL = dict.fromkeys(_CODES, "BYTE_ARRAY") | {
    field.name: "DOUBLE" if field.type == _NUMBER else "INT64" for field in SCORES if field.name not in _CODES
}
"""Columns that are read, with their types in the file."""
_MOST_BYTES, _BYTES_OF_A_ROW = 4 << 20, 1024
"""Unpacked size of the columns that are read at a time, at most: for all rows together, and more for each row."""


def to_table(result: RunResult) -> pa.Table:
    """A run as an Arrow table with metadata."""
    listed = rows(result)
    scores = zip(*listed, strict=True) if listed else [[]] * len(SCORES)
    columns = [pa.array(list(values), kind) for values, kind in zip(scores, SCORES.types, strict=True)]
    columns += [pa.repeat(pa.scalar(_plain(result, *origin), origin[0]), len(listed)) for origin in _PLAIN.values()]
    return pa.Table.from_arrays(
        columns, schema=COLUMNS.with_metadata(encoded(sealed(metadata(result), checksum(result))))
    )


def rows(result: RunResult) -> tuple[Score, ...]:
    """Everything a run's file has a row for: its scores, then its metrics."""
    return *result.scores, *(Score(METRIC + m.name, m.round, 0, m.client, 0, 0, 0.0, m.value) for m in result.metrics)


def checksum(result: RunResult) -> str:
    """A hash of a run's scores and metrics, which takes little of the time that reading them takes."""
    found = hashlib.sha256()
    for some in (scores_of(result.scores), metrics_of(result.metrics)):
        for name, column in some.columns.items():
            if isinstance(column, Words):
                present = np.flatnonzero(np.bincount(column.codes, minlength=len(column.texts)))
                ordered = sorted(present.tolist(), key=column.texts.__getitem__)
                places = np.zeros(len(column.texts), dtype="<i8")
                places[ordered] = range(len(ordered))
                found.update(repr([column.texts[code] for code in ordered]).encode())
                found.update(places[column.codes].data)
            else:
                found.update(np.ascontiguousarray(column, dtype="<f8" if name in _REAL else "<i8").data)
    return found.hexdigest()


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
            raise Unfit(f"run {run.spec.id}: a score's accuracy, count, client, round or step is out of range")
    elif run.failure is None:
        raise Unfit(f"run {run.spec.id}: it is finished and has no scores")
    if run.checksum is not None and run.checksum != checksum(result):
        raise Unfit(f"run {run.spec.id}: its scores do not fit their checksum")


def from_rows(table: pa.Table, runs: Sequence[Stored]) -> list[RunResult]:
    """The runs whose rows these are, one run's after the other's. Raises `Unfit`.

    Of many runs at once it takes little longer than of one.
    """
    try:
        kinds = [_CODED, *SCORES.types[1:]]
        columns = [table.column(name).cast(kind) for name, kind in zip(SCORES.names, kinds, strict=True)]
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unfit(f"unexpected columns ({error})") from error
    if any(column.null_count for column in columns):
        raise Unfit("empty fields among the scores")
    coded = columns[0].combine_chunks()
    # By dlpack, as `to_numpy` imports pandas, which takes longer than to read a hundred runs.
    stages = Words(tuple(coded.dictionary.to_pylist()), np.from_dlpack(coded.indices))
    if max(map(len, stages.texts), default=0) > _LONGEST:
        raise Unfit(f"a name of a stage or metric of more than {_LONGEST:,} characters")
    others = [np.from_dlpack(column.combine_chunks()) for column in columns[1:]]
    of_metrics = np.array([text.startswith(METRIC) for text in stages.texts], dtype=np.bool_)[stages.codes]
    names = tuple(text.removeprefix(METRIC) for text in stages.texts)
    found, end = [], 0
    for run in runs:
        start, end = end, end + (run.rows if len(runs) > 1 else len(table))
        metrics = start + np.flatnonzero(of_metrics[start:end])
        scores = start + np.flatnonzero(~of_metrics[start:end])
        round, _, client, *_, value = (column[metrics] for column in others)
        result = RunResult(
            run.spec,
            Scores(stages.take(scores), *(column[scores] for column in others)),
            dict(run.provenance),
            run.failure,
            Metrics(round, client, Words(names, stages.codes[metrics]), value),
        )
        _check(run, result)
        found.append(result)
    return found


def _plain(result: RunResult, kind: pa.DataType, origin: str) -> Any:
    """The value of a plain column: an attribute of the spec, or an entry of the provenance."""
    value: Any = {"spec": result.spec, "provenance": {"pflbench": __version__, "unchecked": False} | result.provenance}
    for name in origin.split("."):
        # Fine-tuning may be None.
        value = value.get(name) if isinstance(value, dict) else value and getattr(value, name)
    if name == "canonical":
        return value()
    if kind is not _TEXT or value is None:
        return value
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Arrow's exceptions in here become `Unfit`; those of the system stay."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        # pyarrow reports damaged content as an OSError, too, but without an error number
        raise Unfit((str(error).splitlines() or [type(error).__name__])[0].rstrip(".")) from error


def parquet_footer(file: IO[bytes]) -> pq.FileMetaData:
    """A file's footer. Raises `Unfit` or `OSError`."""
    with checked():
        return pq.read_metadata(file)


class OpenFile(NamedTuple):
    """A Parquet file that is open, and the positions of its columns of scores."""

    parquet: pq.ParquetFile
    columns: list[int]

    @classmethod
    def of(cls, path: Path) -> OpenFile:
        """The content of a file. Raises `Unfit`, also for columns of another type, and `OSError`."""
        with checked():
            try:
                source = pa.OSFile(os.fspath(path))  # which closes when nothing holds it any more
                parquet = pq.ParquetFile(
                    source, pre_buffer=False, page_checksum_verification=True, read_dictionary=_CODES
                )
            except KeyError as error:
                raise Unfit(f"unexpected columns (no column {error})") from error
        columns = dict(enumerate(map(parquet.schema.column, range(len(parquet.schema.names)))))
        taken = {at: column for at, column in columns.items() if column.path.partition(".")[0] in _PHYSICAL}
        present = {(column.path, column.physical_type, column.max_repetition_level) for column in taken.values()}
        odd = {path for path, *_ in present ^ {(name, kind, 0) for name, kind in _PHYSICAL.items()}}
        if odd or len(taken) != len(_PHYSICAL):
            raise Unfit(f"unexpected columns ({', '.join(sorted(odd)) or 'some twice'})")
        return cls(parquet, list(taken))

    def read(self, groups: Sequence[int] | None = None) -> pa.Table:
        """The scores of these row groups, or of all, with checked pages.

        Raises `Unfit`, also if the footer names more bytes than scores need, and `OSError`.
        """
        groups = range(self.parquet.num_row_groups) if groups is None else groups
        rows = size = 0
        for group in map(self.parquet.metadata.row_group, groups):
            rows += group.num_rows
            for chunk in map(group.column, self.columns):
                if not 0 <= group.num_rows == chunk.num_values:
                    raise Unfit(f"{group.num_rows:,} rows with {chunk.num_values:,} values in a column")
                size += chunk.total_uncompressed_size
        if size > _MOST_BYTES + _BYTES_OF_A_ROW * rows:
            raise Unfit(f"{rows:,} rows that unpack to {size:,} bytes")
        with checked():
            return self.parquet.read_row_groups(groups, SCORES.names, use_threads=False)
