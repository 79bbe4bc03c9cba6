"""The long table of scores: one line per run, stage, round, fine-tuning step and client. Never imports torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pflbench.errors import UsageError
from pflbench.output import requested
from pflbench.report.cells import best_points
from pflbench.report.reading import averaged, scored
from pflbench.report.stored import LocatedRun, Location, placed, select_runs
from pflbench.report.text import field
from pflbench.result import RunResult
from pflbench.selection import Wanted
from pflbench.store import MissingRun, Store, runfile
from pflbench.suite.cells import Cell, Reading

Format = Literal["csv", "parquet"]
PLACE = ("suite", "profile", "row", "column")
_DROPPED = ("run_id", "spec")  # the id stands in front, and leads to the whole spec
RENAMED = {"accuracy": "accuracy_share"}
"""Columns of the store's files that have their unit in their name here, as tables have percent."""
ScoreKey = tuple[int, int, int]
"""Round, step and client of a score."""
_Line = tuple[int, Location | None, bool]
"""A line to write: the number of the score, where it stands (None: in no suite), and whether the table reads it."""


def score_tables(store: Store, wanted: Wanted) -> Iterator[pa.Table]:
    """The scores of finished runs: a table for each run, all with the same columns.

    The columns are `suite`, `profile`, `row`, `column` (empty for a run that no suite asks for), `run` (its id),
    `in_table`: whether the suite's table averages this line, by its seed, stage, round, step and client; and those of
    the store's files, of which `accuracy` is called `accuracy_share`: it is in [0, 1].

    With suites, a run's scores at a stage stand once for each place in the tables that reads this stage. Without, each
    score stands once, at the first of its places. What methods report about clients is left out. So are runs that hold
    a validation share out, unless `wanted.trials` asks for those of `pflbench tune`.

    Raises:
        UsageError: A name is unknown, or there is no such run.
    """
    trials = bool(wanted.trials)
    found = select_runs(store, replace(wanted, trials=trials, failed=False))
    found = [one for one in found if trials or not one.run.spec.validation]
    if not found:
        raise UsageError(f"No finished run in {str(store.root)!r} matches. `pflbench ls runs` lists the stored runs.")
    return _tables(store, found if wanted.suites else placed(found, store), once=not wanted.suites)


def write_tables(tables: Iterable[pa.Table], path: Path, format: Format) -> int:
    """Write tables of equal columns below each other; return the number of lines.

    The file appears whole or not at all.

    Raises:
        StoreError: The file cannot be written.
    """
    with requested(path) as file:
        return write_open(tables, file, format)


def write_open(tables: Iterable[pa.Table], file: IO[bytes], format: Format = "csv") -> int:
    """The same into an open file."""
    # One run at a time: a results folder need not fit into memory.
    tables = iter(tables)
    first = next(tables)
    kind = pa.csv.CSVWriter if format == "csv" else pa.parquet.ParquetWriter
    lines = 0
    with kind(file, first.schema) as writer:
        for table in itertools.chain([first], tables):
            writer.write_table(_as_fields(table) if format == "csv" else table)
            lines += len(table)
    return lines


def _as_fields(table: pa.Table) -> pa.Table:
    """The table with texts as fields of CSV. Each is looked at once, since few differ."""
    for i, kind in enumerate(table.schema):
        if kind.type == pa.string():
            coded = table.column(i).combine_chunks().dictionary_encode()
            fields = pa.array(map(field, coded.dictionary.to_pylist()), pa.string())
            table = table.set_column(i, kind, fields.take(coded.indices))
    return table


def _tables(store: Store, found: Iterable[LocatedRun], *, once: bool) -> Iterator[pa.Table]:
    readings = _Readings(store)
    for one in found:
        try:
            result = store.read(one.run.spec.id)
        except MissingRun:  # damaged behind its metadata; the store has warned and set it aside
            continue
        yield _table(result, one.places, readings, once=once)


def _table(result: RunResult, places: Sequence[Location], readings: _Readings, *, once: bool) -> pa.Table:
    """A run's scores, those of each stage once for each of its places there (`once`: for the first of them)."""
    suites = [[place for place in places if place.suite == suite] for suite in dict.fromkeys(p.suite for p in places)]
    entries = [entry for mine in (suites or [[]]) for entry in _entries(result, mine, readings, once)]
    whole = runfile.to_table(replace(result, metrics=()))
    found = whole.take([number for number, _, _ in entries]).drop_columns(
        [c for c in _DROPPED if c in whole.column_names]
    )
    front = {
        **{key: pa.array([getattr(place, key, "") for _, place, _ in entries], pa.string()) for key in PLACE},
        "run": pa.array([result.spec.id] * len(entries), pa.string()),
        "in_table": pa.array([read for _, _, read in entries], pa.bool_()),
    }
    return pa.table(front | {RENAMED.get(name, name): found[name] for name in found.column_names})


def _entries(result: RunResult, places: Sequence[Location], readings: _Readings, once: bool) -> Iterator[_Line]:
    """The lines of a run in one suite, where it stands at these places."""
    for stage in dict.fromkeys(score.stage for score in result.scores):
        scores = {n: (s.round, s.step, s.client) for n, s in enumerate(result.scores) if s.stage == stage}
        here: list[Location | None] = [place for place in places if place.cell.stage == stage]
        for place in here[: 1 if once else None] or [None]:
            read = readings.lines(result, place) if place is not None and place.shown else frozenset()
            where = place or next(iter(places), None)  # a stage that no row shows belongs to the first row all the same
            if where is not None and not where.asked:
                continue
            yield from ((number, where, score in read) for number, score in scores.items())


class _Readings:
    """Scores of a run that a cell averages. Choices of clients from a grid are computed once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._chosen: dict[tuple[tuple[str, ...], Reading, int], dict[int, str]] = {}

    def lines(self, result: RunResult, place: Location) -> frozenset[ScoreKey]:
        """(round, step, client) of the scores of a run that are averaged at a place, where its stage is read."""
        cell, seed = place.cell, result.spec.seed
        found = averaged(result, cell.reading)
        if not cell.choices:
            return found
        key = tuple(point.run.id for point in cell.choices[0]), cell.reading, seed
        if key not in self._chosen:
            self._chosen[key] = self._choices(cell, seed)
        return frozenset(line for line in found if self._chosen[key].get(line[2]) == result.spec.id)

    def _choices(self, cell: Cell, seed: int) -> dict[int, str]:
        """For each client the id of the run that it is read from; none where a run of the grid is not done."""
        reseed = {"seed": seed}
        points = [(c.run.model_copy(update=reseed), c.validation.model_copy(update=reseed)) for c in cell.choices[0]]
        if any(self._store.status(run.id) != "done" for point in points for run in point):
            return {}
        tried = [scored(self._store.read(validation.id), cell.reading) for _, validation in points]
        best = best_points(tried)
        return {client: points[number][0].id for client, number in zip(tried[0][0].clients, best, strict=True)}
