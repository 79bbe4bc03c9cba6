"""The Parquet layout of one run: a row per score, the identity in plain columns, spec and provenance in the metadata.

The plain columns repeat in every row (dictionary encoding makes that free), so pandas or DuckDB can read a glob of
runs without this package. A failed run has the same columns, no rows, and its error in the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from pflbench import __version__
from pflbench.result import Metric, RunResult, Score
from pflbench.spec import RunSpec

SCHEMA_VERSION = 1

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

_VERSION, _SPEC = b"pflbench.schema", b"pflbench.spec"
_PROVENANCE, _FAILURE = b"pflbench.provenance", b"pflbench.failure"


class Unfit(ValueError):
    """A Parquet file that is not one of ours, or not one that this version reads; the message says why."""


class Header(NamedTuple):
    """What the metadata of a run's file says."""

    spec: RunSpec
    provenance: dict[str, Any]
    failure: str | None


def to_table(result: RunResult) -> pa.Table:
    """A run as an Arrow table with metadata."""
    found = rows(result)
    scores = zip(*found, strict=True) if found else [[]] * len(SCORES)
    table = pa.Table.from_arrays(
        [pa.array(list(values), kind) for values, kind in zip(scores, SCORES.types, strict=True)], schema=SCORES
    )
    for name, (value, kind) in _plain(result).items():
        table = table.append_column(name, pa.repeat(pa.scalar(value, kind), len(found)))
    return table.replace_schema_metadata(metadata(result))


def rows(result: RunResult) -> tuple[Score, ...]:
    """Everything a run's file has a row for: its scores, then its metrics."""
    return *result.scores, *(Score(METRIC + m.name, m.round, 0, m.client, 0, 0, 0.0, m.value) for m in result.metrics)


def metadata(run: RunResult | Header) -> dict[bytes, bytes]:
    """What `header` parses."""
    found = {
        _VERSION: str(SCHEMA_VERSION).encode(),
        _SPEC: run.spec.canonical().encode(),
        _PROVENANCE: json.dumps(run.provenance, sort_keys=True).encode(),
    }
    if run.failure is not None:
        # An error may quote a file name that is not valid Unicode.
        found[_FAILURE] = run.failure.encode(errors="surrogatepass")
    return found


def header(found: Mapping[bytes, bytes] | None) -> Header:
    """Parse a run's metadata. Raises `Unfit`."""
    if not found or _VERSION not in found:
        raise Unfit("no pflbench metadata")
    if found[_VERSION] != str(SCHEMA_VERSION).encode():
        raise Unfit(f"schema version {found[_VERSION].decode(errors='replace')}, expected {SCHEMA_VERSION}")
    try:
        spec = RunSpec.model_validate_json(found[_SPEC])
        provenance = json.loads(found[_PROVENANCE])
    except KeyError as error:
        raise Unfit(f"no metadata {error.args[0].decode()}") from error
    except ValueError as error:
        raise Unfit(f"unreadable metadata ({str(error).splitlines()[0]})") from error
    if not isinstance(provenance, dict):
        raise Unfit("unreadable metadata (the provenance is not an object)")
    failure = found.get(_FAILURE)
    return Header(spec, provenance, None if failure is None else failure.decode(errors="surrogatepass"))


def from_table(table: pa.Table) -> RunResult:
    """The run that `to_table` was given. Raises `Unfit`."""
    spec, provenance, failure = header(table.schema.metadata)
    try:
        columns = [table.column(name).cast(kind) for name, kind in zip(SCORES.names, SCORES.types, strict=True)]
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unfit(f"unexpected columns ({error})") from error
    if any(column.null_count for column in columns):
        raise Unfit("empty fields among the scores")
    found = [Score(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
    scores = tuple(row for row in found if not row.stage.startswith(METRIC))
    metrics = tuple(
        Metric(row.round, row.client, row.stage.removeprefix(METRIC), row.accuracy)
        for row in found
        if row.stage.startswith(METRIC)
    )
    return RunResult(spec, scores, provenance, failure, metrics)


def _plain(result: RunResult) -> dict[str, tuple[Any, pa.DataType]]:
    spec, provenance, text, whole = result.spec, result.provenance, pa.string(), pa.int64()
    return {
        "run_id": (spec.id, text),
        "method": (spec.method.name, text),
        "method_version": (spec.method.version, text),
        "hyper": (_json(spec.method.hyper), text),
        "dataset": (spec.dataset.name, text),
        "dataset_options": (_json(spec.dataset.options), text),
        "partition": (spec.partition.name, text),
        "partition_options": (_json(spec.partition.options), text),
        "model": (spec.model, text),
        "clients": (spec.clients, whole),
        "rounds": (spec.rounds, whole),
        "batch": (spec.batch, whole),
        "protocol": (None, text),  # what a suite follows is no part of a run; the column stays for old readers
        "precision": (spec.precision, text),
        "seed": (spec.seed, whole),
        "data_hash": (_text(provenance.get("data_hash")), text),
        "commit": (_text(provenance.get("commit")), text),
        "device": (_text(provenance.get("device")), text),
        "pflbench": (_text(provenance.get("pflbench", __version__)), text),
        "wall_seconds": (provenance.get("wall_seconds"), pa.float64()),
    }


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
