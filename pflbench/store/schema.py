"""The Parquet layout of one run: a row per score, the identity in plain columns, spec and provenance in the metadata.

The plain columns repeat in every row (dictionary encoding makes that free), so pandas or DuckDB can read a glob of
runs without this package. A failed run has the same columns, no rows, and its error in the metadata.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa

from pflbench import __version__
from pflbench.result import Metric, RunResult, Score
from pflbench.store.header import Unfit, header, metadata

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

PLAIN = pa.schema(
    [
        ("run_id", pa.string()),
        ("method", pa.string()),
        ("method_version", pa.string()),
        ("hyper", pa.string()),
        ("dataset", pa.string()),
        ("dataset_options", pa.string()),
        ("partition", pa.string()),
        ("partition_options", pa.string()),
        ("model", pa.string()),
        ("clients", pa.int64()),
        ("rounds", pa.int64()),
        ("batch", pa.int64()),
        ("protocol", pa.string()),
        ("precision", pa.string()),
        ("seed", pa.int64()),
        ("data_hash", pa.string()),
        ("commit", pa.string()),
        ("device", pa.string()),
        ("pflbench", pa.string()),
        ("wall_seconds", pa.float64()),
        # Files from before November 2026 end here; `pflbench upgrade` gives them the others.
        ("validation", pa.float64()),
        ("training_clients", pa.int64()),
        ("cohort", pa.int64()),
        ("query", pa.string()),
        ("arrival", pa.float64()),
        ("weights", pa.string()),
        ("batches", pa.string()),
        ("augment", pa.string()),
        ("tail", pa.string()),
        ("tiny_client", pa.string()),
        ("scored_clients", pa.string()),
        ("scored_first", pa.int64()),
        ("scored_rounds", pa.int64()),
        ("scored_moment", pa.string()),
        ("global_on", pa.string()),
        ("average", pa.string()),
        ("finetune_steps", pa.int64()),
        ("finetune_lr", pa.float64()),
        ("finetune_decay", pa.float64()),
        ("finetune_every", pa.int64()),
        ("dataset_version", pa.string()),
        ("dataset_content", pa.string()),
        ("partition_version", pa.string()),
        ("partition_content", pa.string()),
        ("model_version", pa.string()),
        ("unchecked", pa.bool_()),
        ("spec", pa.string()),
    ]
)
"""The columns that are the same in all of a run's rows: what it is, as far as readers filter by it, and its origin.

Reading a run takes none of them: they are for those who read the files with pandas or DuckDB. `validation` tells trials
of a search (above 0) from results. Options are JSON with sorted keys, `spec` is all of the identity, and `run_id` its
hash. Versions and contents of dataset, partition and network are those of a user's own, as in the spec (null: built in,
or nothing is read); `unchecked` tells runs of a method that was not held against the contract. Columns are only ever
added.
"""
COLUMNS = pa.schema([*SCORES, *PLAIN])


def to_table(result: RunResult) -> pa.Table:
    """A run as an Arrow table with metadata."""
    listed = rows(result)
    scores = zip(*listed, strict=True) if listed else [[]] * len(SCORES)
    columns = [pa.array(list(values), kind) for values, kind in zip(scores, SCORES.types, strict=True)]
    plain = _plain(result)
    columns += [pa.repeat(pa.scalar(plain[field.name], field.type), len(listed)) for field in PLAIN]
    return pa.Table.from_arrays(columns, schema=COLUMNS.with_metadata(metadata(result)))


def rows(result: RunResult) -> tuple[Score, ...]:
    """Everything a run's file has a row for: its scores, then its metrics."""
    return *result.scores, *(Score(METRIC + m.name, m.round, 0, m.client, 0, 0, 0.0, m.value) for m in result.metrics)


def digest(result: RunResult) -> str:
    """A hash of everything that a run's file says."""
    # By their text, NaN equals itself, and two floats have one text only if they are one number.
    text = f"{rows(result)!r} {metadata(result)!r}"
    return hashlib.sha256(text.encode()).hexdigest()


def from_table(table: pa.Table) -> RunResult:
    """The run that `to_table` was given. Raises `Unfit`."""
    spec, provenance, failure = header(table.schema.metadata)
    try:
        columns = [table.column(name).cast(kind) for name, kind in zip(SCORES.names, SCORES.types, strict=True)]
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unfit(f"unexpected columns ({error})") from error
    if any(column.null_count for column in columns):
        raise Unfit("empty fields among the scores")
    scored = [Score(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
    scores = tuple(row for row in scored if not row.stage.startswith(METRIC))
    metrics = tuple(
        Metric(row.round, row.client, row.stage.removeprefix(METRIC), row.accuracy)
        for row in scored
        if row.stage.startswith(METRIC)
    )
    return RunResult(spec, scores, provenance, failure, metrics)


def _plain(result: RunResult) -> dict[str, Any]:
    """The values of the columns that are the same in all of a run's rows."""
    spec, provenance, scoring = result.spec, result.provenance, result.spec.scoring
    finetune = scoring.finetune
    return {
        "run_id": spec.id,
        "method": spec.method.name,
        "method_version": spec.method.version,
        "hyper": _json(spec.method.hyper),
        "dataset": spec.dataset.name,
        "dataset_options": _json(spec.dataset.options),
        "partition": spec.partition.name,
        "partition_options": _json(spec.partition.options),
        "model": spec.model,
        "clients": spec.clients,
        "rounds": spec.rounds,
        "batch": spec.batch,
        "protocol": None,  # what a suite follows is no part of a run; the column stays for old readers
        "precision": spec.precision,
        "seed": spec.seed,
        "data_hash": _text(provenance.get("data_hash")),
        "commit": _text(provenance.get("commit")),
        "device": _text(provenance.get("device")),
        "pflbench": _text(provenance.get("pflbench", __version__)),
        "wall_seconds": provenance.get("wall_seconds"),
        "validation": spec.validation,
        "training_clients": spec.training_clients,
        "cohort": spec.cohort,
        "query": str(spec.query),
        "arrival": spec.arrival,
        "weights": spec.weights,
        "batches": spec.batches,
        "augment": spec.augment,
        "tail": spec.tail,
        "tiny_client": spec.tiny_client,
        "scored_clients": scoring.clients,
        "scored_first": scoring.first,
        "scored_rounds": scoring.last,
        "scored_moment": scoring.moment,
        "global_on": scoring.global_on,
        "average": scoring.average,
        "finetune_steps": finetune and finetune.steps,
        "finetune_lr": finetune and finetune.lr,
        "finetune_decay": finetune and finetune.decay,
        "finetune_every": finetune and finetune.every,
        "dataset_version": spec.dataset.version,
        "dataset_content": spec.dataset.content,
        "partition_version": spec.partition.version,
        "partition_content": spec.partition.content,
        "model_version": spec.model_version,
        "unchecked": bool(provenance.get("unchecked")),
        "spec": spec.canonical(),
    }


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
