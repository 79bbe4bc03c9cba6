"""Fill a table: read the runs, summarize the cells, add extra rows, mark the best, write the footer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pflbench.report.extra import extra_rows
from pflbench.report.footer import Used, footer, mixtures
from pflbench.report.statistics import accuracy_by_step, summarize, verdict
from pflbench.report.table import CellInput, CellValue, Row, Table, TableInput, Verdict
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import MissingRun, Store, Stored

_Grid = dict[tuple[str, str], CellValue]
_MIXED = "the column mixes data or method versions (see †)"


def lay_out(table: TableInput, store: Store) -> Table:
    """The finished table. Depends on nothing but the suite and the stored runs."""
    shelf = _Shelf(store)
    extra, spare = extra_rows(table, [stored.spec for stored in shelf.stored.values()])
    titles = {row.id: row.title for row in table.rows} | {row.id: row.title for row in extra}
    cells: dict[tuple[str, str], CellInput] = dict(table.cells)
    for row in extra:
        cells |= {(row.id, column): cell for column, cell in row.cells.items()}
    grid = {place: _value(table, cell, shelf) for place, cell in cells.items()}
    for row in extra:
        for column, expected in row.expected.items():
            grid[row.id, column] = replace(grid[row.id, column], expected=expected)
    # After the reading: only then are damaged files known.
    used = [
        Used(titles[row], column, shelf.stored[run.id])
        for (row, column), cell in cells.items()
        for run in cell.runs
        if run.id in shelf.stored
    ]
    mixed = mixtures(table, used)
    for (row_id, column), value in grid.items():
        if column in mixed and value.mean is not None:
            judged = value.verdict and Verdict("not comparable", _MIXED)
            grid[row_id, column] = replace(value, mixed=True, verdict=judged)
    if table.bold_best:
        _mark_best(grid, table)
    return Table(
        suite=table.suite,
        title=table.title if table.profile == "paper" else f"{table.title} [profile: {table.profile}]",
        profile=table.profile,
        columns=table.columns,
        rows=tuple(_row(row.id, row.title, grid, table) for row in table.rows),
        extra=tuple(_row(row.id, row.title, grid, table) for row in extra),
        decimals=table.decimals,
        footer=footer(table, grid, used, tuple(mixed.values()), spare),
    )


def _value(table: TableInput, cell: CellInput, shelf: _Shelf) -> CellValue:
    run = cell.runs[0]
    results = shelf.done(cell.runs)
    value = CellValue(
        method=run.method.name,
        stage=cell.stage,
        rounds=run.rounds,
        done=len(results),
        expected=len(cell.runs),
        failed=shelf.failed(cell.runs),
        runs=tuple(result.spec.id for result in results),
        reference=cell.reference,
    )
    if not results:
        return value
    ours = summarize(np.array([accuracy_by_step(r.scores, cell.reading) for r in results]), table.spread)
    barred = None
    if not table.comparable:
        barred = f"these runs do not follow the paper's full protocol (profile: {table.profile})"
    return replace(
        value,
        mean=ours.mean,
        std=ours.std,
        sem=ours.sem,
        spread=ours.spread,
        verdict=verdict(ours, cell.reference, barred) if cell.reference else None,
    )


def _mark_best(grid: _Grid, table: TableInput) -> None:
    # Cells that miss seeds or cannot be compared do not compete, and what prints alike is best alike.
    for column in table.columns:
        rounded = {
            place: round(value.mean, table.decimals)
            for place, value in grid.items()
            if place[1] == column.id
            and value.complete
            and not value.mixed
            and value.mean is not None
            and math.isfinite(value.mean)
        }
        if len(rounded) > 1:
            top = max(rounded.values())
            for place, mean in rounded.items():
                grid[place] = replace(grid[place], best=mean == top)


def _row(id: str, title: str, grid: _Grid, table: TableInput) -> Row:
    return Row(id, title, tuple(grid.get((id, column.id)) for column in table.columns))


class _Shelf:
    """The store's runs, each read at most once: several rows may read one run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._results: dict[str, RunResult] = {}
        self.stored: dict[str, Stored] = {stored.spec.id: stored for stored in store.list()}

    def done(self, runs: Iterable[RunSpec]) -> list[RunResult]:
        return [result for run in runs if (result := self._read(run.id)) is not None]

    def failed(self, runs: Iterable[RunSpec]) -> int:
        return sum(run.id in self.stored and self.stored[run.id].failure is not None for run in runs)

    def _read(self, id: str) -> RunResult | None:
        if id not in self.stored or self.stored[id].failure is not None:
            return None
        if id not in self._results:
            try:
                self._results[id] = self._store.read(id)
            except MissingRun:  # damaged behind its metadata; the store has warned and set it aside
                del self.stored[id]
                return None
        return self._results[id]
