"""Fill a table: read the runs, add extra rows, mark the best, add the differences, write the footer."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from pflbench.commands import public_folder
from pflbench.report import provenance, table_facts
from pflbench.report.cells import SeedScores, fill_cell, other_rounds, read_seeds, settle
from pflbench.report.compact import rows_of
from pflbench.report.extra_rows import extra
from pflbench.report.facts import Fact, facts
from pflbench.report.provenance import ShownRun, differing_versions, mixtures, outdated, shown_runs
from pflbench.report.reading import Shelf
from pflbench.report.rivals import held_against, suite_beside, with_other_suite
from pflbench.report.table import CellValue, Fairness, Grid, Row, Table, Versus
from pflbench.report.text import grouped
from pflbench.report.verdict import MARGIN
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.store.requests import Requests, requests_of
from pflbench.suite.cells import Cell, ColumnHead, Derived, Expansion, ReadAs, Reference, TableColumn

V = TypeVar("V")
_READ: dict[ReadAs, str] = {"last": "", "last-10": " [last ten scored rounds]", "best": " [best round: optimistic]"}
"""Suffix of the title for the rounds that a table is read in."""


@dataclass(frozen=True)
class Filled:
    """A table whose cells have their numbers, with what was read for them.

    Attributes:
        table: The table; its cells say in which rounds they are read.
        cells: Its cells and those of extra rows, by their places.
        found: What was read of each cell.
        grid: The numbers.
        guests: Titles of the extra rows, by id.
        runs: The stored runs behind the cells.
        mixed: Lines on the columns that mix data or versions, by the column's id.
        spare: Finished runs with the settings of this table that it does not show.
        older: Sentences on runs of other versions of data and networks.
        notes: By method, a note on which of its versions is shown.
        shelf: The stored runs.
        read_as: In which of the scored rounds the cells are read.
        other: The suite that stands beside it, if there is one.
    """

    table: Expansion
    cells: Mapping[tuple[str, str], Cell]
    found: Mapping[tuple[str, str], list[SeedScores]]
    grid: Grid
    guests: dict[str, str]
    runs: Sequence[ShownRun]
    mixed: Mapping[str, str]
    spare: Sequence[RunSpec]
    older: Sequence[str]
    notes: Mapping[str, str]
    shelf: Shelf
    read_as: ReadAs
    other: Expansion | None = None

    @property
    def fairness(self) -> dict[tuple[str, str], Fairness]:
        """Spread of the cells over their clients, where these were scored one by one."""
        from pflbench.report.fairness import fairness  # which needs federations

        each = {place: fairness(done, self.cells[place].reading) for place, done in self.found.items()}
        return {place: one for place, one in each.items() if one is not None}

    @property
    def names(self) -> set[str]:
        """Names that select its rows: their ids, and the methods of their runs."""
        derived = {one.id for one in self.table.derived if one.axis == "rows"}
        return {row for row, _ in self.grid} | {value.method for value in self.grid.values()} | derived

    def only(self, rows: Collection[str], methods: Sequence[str]) -> Filled:
        """The same with these rows alone, by their ids, as if the suite had no others; their numbers are as they were.

        `methods`: what they were asked for by, which commands name.
        """
        rows = _with_sides(self.table, rows)
        cells = _of_rows(self.cells, rows)
        there = {cell.column.id for place, cell in cells.items() if self.grid[place].there}
        trained = {run.method.name for cell in cells.values() for run in cell.needed}
        guests = {id: title for id, title in self.guests.items() if id in rows}
        table = _with_rows(self.table, rows, cells.values(), methods)
        titles = {*guests.values(), *(row.title for row in table.rows)}
        return replace(
            self,
            table=table,
            cells=cells,
            found=_of_rows(self.found, rows),
            grid=_of_rows(self.grid, rows),
            guests=guests,
            runs=[one for one in self.runs if one.row in titles],
            mixed={column: line for column, line in self.mixed.items() if column in there},
            spare=[run for run in self.spare if run.method.name in trained],
            older=_left_over(table, [], self.shelf)[1],
            notes={method: note for method, note in self.notes.items() if method in trained},
        )

    def against(self, versus: str) -> Versus:
        """All cells against those of a row, or of a method that one row shows. Raises `UsageError` if that is none."""
        return held_against(versus, self.table, self.grid)


def lay_out(
    table: Expansion,
    store: Store,
    read_as: ReadAs = "last",
    versus: str | None = None,
    *,
    over_clients: bool = False,
) -> Table:
    """The finished table. Depends on nothing but the suite and the stored runs.

    Args:
        table: What is to be shown.
        store: Where the runs are.
        read_as: In which of the scored rounds it is read.
        versus: The row, or a method that one row shows, that all others are held against.
        over_clients: Whether it says how its cells are spread over clients.

    Raises:
        UsageError: `versus` means no row.
    """
    return finished(fill(table, Shelf(store), requests_of(store), read_as), versus, over_clients=over_clients)


def _with_sides(table: Expansion, rows: Collection[str]) -> set[str]:
    """These rows, by their ids, and for a row of differences the two that it compares."""
    return {*rows, *(id for one in table.derived if one.axis == "rows" and one.id in rows for id in one.of)}


def _of_rows(some: Mapping[tuple[str, str], V], rows: Collection[str]) -> dict[tuple[str, str], V]:
    """Values in the places of these rows, by their ids."""
    return {place: one for place, one in some.items() if place[0] in rows}


def _with_rows(table: Expansion, rows: Collection[str], cells: Iterable[Cell], methods: Sequence[str]) -> Expansion:
    """The table with these rows alone, and what its suite says of them; `cells`: theirs, and those of extra rows."""
    cells, left = list(cells), tuple(row for row in table.rows if row.id in rows)
    own = tuple(cell for cell in table.cells if cell.row.id in rows)
    followed = {cell.follows for cell in own}
    return replace(
        table,
        rows=left,
        cells=own,
        derived=tuple(one for one in table.derived if one.axis == "columns" or one.id in rows),
        notes=table.notes_on(cells),
        protocol=(followed.pop() if len(followed) == 1 else "") or table.protocol,
        part=table.part.but(methods=methods),
    )


def fill(table: Expansion, shelf: Shelf, asked: Requests, read_as: ReadAs = "last") -> Filled:
    """The table's cells and those of extra rows, read and summarized. `asked`: requests of the stored runs."""
    beside = extra(table, shelf.stored.values(), asked)
    spare, older = _left_over(table, beside.spare, shelf)
    table = replace(table, cells=tuple(cell.read(read_as) for cell in table.cells if cell.has_scores))
    cells = table.places | {table.key_of(cell): cell.read(read_as) for cell in beside.cells}
    shelf.fetch(run for cell in cells.values() for run in cell.needed)
    found = {place: read_seeds(cell, shelf) for place, cell in cells.items()}
    # After the reading: only then are damaged files known.
    guests = {cell.row.id: cell.row.title for cell in beside.cells}
    used = shown_runs(cells, {row.id: row.title for row in table.rows} | guests, shelf.stored)
    mixed = mixtures(table, used)
    grid = _grid(table, cells, found, mixed, shelf)
    return Filled(
        table,
        cells,
        found,
        grid,
        guests,
        used,
        mixed,
        spare,
        older,
        beside.notes,
        shelf,
        read_as,
        other=suite_beside(table),
    )


def reread(of: Filled, read_as: ReadAs) -> Filled:
    """The table in other rounds. A cell of whose scores the same are read has in `found` what it had."""
    table = replace(of.table, cells=tuple(cell.read(read_as) for cell in of.table.cells))
    cells = {place: cell.read(read_as) for place, cell in of.cells.items()}
    found = {place: _same_or_new(of.found[place], read_seeds(cell, of.shelf)) for place, cell in cells.items()}
    return replace(
        of, table=table, cells=cells, found=found, grid=_grid(table, cells, found, of.mixed, of.shelf), read_as=read_as
    )


def _same_or_new(before: list[SeedScores], now: list[SeedScores]) -> list[SeedScores]:
    """Scores of before, with what was computed of them, if the same are read now."""
    unchosen = all(one.on_test is None for one in before)
    alike = [(one.runs, one.moments) for one in before] == [(one.runs, one.moments) for one in now]
    return before if unchosen and alike else now


def _grid(
    table: Expansion,
    cells: Mapping[tuple[str, str], Cell],
    found: Mapping[tuple[str, str], list[SeedScores]],
    mixed: Mapping[str, str],
    shelf: Shelf,
) -> Grid:
    """The numbers of the cells; `mixed`: of which columns they cannot be compared."""
    grid: Grid = {
        place: fill_cell(cell, found[place], shelf, table, mixed=cell.column.id in mixed)
        for place, cell in cells.items()
    }
    if table.layout.bold == "best-per-column":
        _mark_best(grid, table)
    return grid


def finished(
    of: Filled, versus: str | None = None, *, over_clients: bool = False, methods: Sequence[str] = ()
) -> Table:
    """The table with what stands beside, above and below its numbers.

    Args:
        of: Its cells.
        versus: As `lay_out` takes it.
        over_clients: As `lay_out` takes it.
        methods: The rows to show, as `compact.rows_of` takes them, and to tell of; none: all. What is bold, ranks and
            rivals are those of the whole table.
    """
    against = of.against(versus) if versus else None
    grid, told = with_other_suite(of.table, of.other, of.grid, of.shelf, of.read_as)
    columns, differences = derive(of.table, list(of.guests), grid)
    named = {row.id: row.title for row in of.table.rows}
    named |= {one.id: one.title for one in of.table.derived if one.axis == "rows"}
    every = [_rows(titles, of.runs, grid | differences, columns) for titles in (named, of.guests)]
    rows, extra = rows_of(every[0], every[1], methods)
    of = replace(of, grid=grid)
    if methods:
        of = of.only({row.id for row in (*rows, *extra)}, methods)
    table = of.table
    missing = table_facts.missing_runs(table, of.grid, of.shelf.root, of.shelf.failed, of.shelf.fresh)
    return Table(
        suite=table.suite,
        title=table.heading + _READ[of.read_as],
        profile=table.profile,
        columns=columns,
        rows=rows,
        extra=extra,
        decimals=table.layout.decimals,
        blocks=table.layout.blocks == "group",
        facts=(*_facts(of), *facts("scores", *told, severity="warning")),
        missing=missing.text,
        fills=missing.command,
        comparable=not table.shortfall.runs,
        read_as=of.read_as,
        versus=against,
        fairness=of.fairness if over_clients else None,
        beside=bool(told),
    )


def _facts(of: Filled) -> Iterator[Fact]:
    """Everything to be said of a table, in the order of its footer."""
    table, grid, runs, results = of.table, of.grid, of.runs, public_folder(of.shelf.root)
    titles = {row.id: row.title for row in table.rows} | of.guests
    done = list({one.stored.spec.id: one.stored for one in runs if one.done}.values())
    stages = grouped((value.stage, titles[row]) for (row, _), value in grid.items())
    alike = len(stages) == 1 or table.stages  # or stages head the columns
    precision = ", ".join(sorted({run.precision for cell in table.cells for run in cell.needed} - {"fp32"}))
    yield from facts("mixed", *provenance.not_compared(of.mixed), severity="warning")
    yield from facts("failed", *provenance.failures(runs), severity="warning")
    yield from facts("shortfall", table_facts.shortfall_text(table), severity="warning")
    warning, gaps = table_facts.other_rounds(table, grid)
    yield from facts("rounds", warning, table_facts.peaks(table, grid), severity="warning")
    yield from facts("rounds", *table_facts.best_rounds(table, grid))
    yield from facts("protocol", f"{table_facts.paper_line(table)} Protocol: {table.protocol}.")
    yield from facts("departures", table_facts.departure_count(table, results))
    yield from facts(
        "scores", table_facts.scored_models(table.cells, None if alike else stages, best=table.paper_round == "best")
    )
    yield from facts(
        "seeds", table_facts.seed_line(table.cells, grid.values(), table.spread if table.shows_spread else None)
    )
    yield from facts("scores", table_facts.unlike_seeds(table, grid), severity="warning")
    yield from facts(
        "scores",
        table_facts.clients_line(table),
        table_facts.unweighted_means(table, grid),
        table_facts.left_out(table, grid),
    )
    yield from facts(
        "rounds",
        table_facts.rounds_trained(table),
        *gaps,
    )
    yield from facts("scores", *table_facts.choices(table), *table_facts.chosen_on_test(table, grid))
    yield from facts("sources", *table_facts.unprinted(grid, titles))
    yield from facts("scores", *table_facts.differences(table), table_facts.by_chance(grid))
    yield from facts("runs", f"Precision: {precision}." if precision else "")
    yield from facts("progress", provenance.progress(table.cells, runs), provenance.shipped(runs))
    yield from facts("runs", provenance.environments(done))
    yield from facts("runs", *provenance.doubtful_runs(table, runs, done), severity="warning")
    yield from facts("data", provenance.shared_images(done), provenance.data_hashes(table, runs))
    yield from facts("runs", *provenance.spare(table.cells, runs, of.spare))
    yield from facts("runs", *(provenance.cost_lines(runs) if table.layout.costs else []))
    yield from facts("note", *table.notes)
    yield from facts("runs", *of.older, *of.notes.values(), severity="warning")
    yield from facts("missing", table_facts.missing_runs(table, grid, results, of.shelf.failed, of.shelf.fresh).text)


def _left_over(table: Expansion, spare: Sequence[RunSpec], shelf: Shelf) -> tuple[list[RunSpec], list[str]]:
    """The finished runs with the settings of this table that it does not show, and sentences on other versions.

    `spare`: runs that `extra_rows` had no row for.
    """
    asked = [run for cell in table.cells for run in cell.needed]
    done = {id: stored.spec for id, stored in shelf.stored.items() if stored.failure is None}
    others = [run for run, what in differing_versions(asked, done.values()) if not what]
    return [*(run for run in spare if run.id in done), *others], outdated(asked, done.values())


def _mark_best(grid: Grid, table: Expansion) -> None:
    """Mark the best cells of each column: all whose printed number is the largest, with all their seeds or without."""
    for column in table.heads:
        rounded = {
            place: round(value.mean or 0.0, table.layout.decimals)
            for place, value in grid.items()
            if place[1] == column.id
            and not value.mixed
            and math.isfinite(math.nan if value.mean is None else value.mean)
        }
        if len(rounded) > 1:
            top = max(rounded.values())
            for place, mean in rounded.items():
                grid[place] = replace(grid[place], best=mean == top)
        peaks = {place: peak for place in rounded if (peak := grid[place].peak)}
        highest = {place: round(peak.best.mean or 0.0, table.layout.decimals) for place, peak in peaks.items()}
        for place, peak in peaks.items() if len(peaks) > 1 else ():
            best = replace(peak.best, best=highest[place] == max(highest.values()))
            grid[place] = replace(grid[place], peak=peak._replace(best=best))


def _rows(
    titles: Mapping[str, str],
    used: Sequence[ShownRun],
    grid: Grid,
    columns: Sequence[ColumnHead],
) -> tuple[Row, ...]:
    doubted = {u.row for u in used if u.stored.provenance.get("unchecked")}  # not held against the contract of methods
    return tuple(
        Row(
            id,
            f"{title} (unchecked)" if title in doubted else title,
            tuple(grid.get((id, column.id)) for column in columns),
        )
        for id, title in titles.items()
    )


def derive(table: Expansion, extra: Sequence[str], grid: Grid) -> tuple[tuple[ColumnHead, ...], Grid]:
    """The table's columns with those of differences in their places, and the values of all differences.

    `extra`: ids of the rows that the suite does not name; they have the columns of differences, too.
    """
    columns, found = list(table.heads), Grid()
    for one in table.derived:
        if one.axis == "rows":
            for head in table.heads:
                sides = [grid.get((row, head.id)) for row in one.of]
                _put(found, (one.id, head.id), sides, one, head.column.id, table)
            continue
        for head, of in _heads(one, table.heads):
            end = max(i for i, other in enumerate(columns) if other.column.group == head.column.group) + 1
            columns.insert(end, head)
            for row in (*(row.id for row in table.rows), *extra):
                _put(found, (row, head.id), [grid.get((row, id)) for id in of], one, row, table)
    return tuple(columns), found


def difference(a: CellValue, b: CellValue, reference: Reference | None, table: Expansion) -> CellValue:
    """The first minus the second, over the seeds that are done on both sides: its runs are those of these seeds."""
    common = [seed for seed in a.seeds if seed in b.seeds]
    empty = CellValue(
        method=" - ".join(dict.fromkeys((a.method, b.method))),
        stage=a.stage,
        rounds=a.rounds,
        done=len(common),
        expected=max(a.expected, b.expected),
        failed=max(a.failed, b.failed),
        runs={seed: tuple(dict.fromkeys((*a.runs[seed], *b.runs[seed]))) for seed in common},
        reference=reference,
        mixed=bool(common) and (a.mixed or b.mixed),
        rests_on={**b.rests_on, **a.rests_on},
    )
    means = {seed: np.array([a.seeds[seed] - b.seeds[seed]]) for seed in common}
    barred = next((other_rounds(cell.reading, table) for cell in table.cells), None)
    return settle(empty, means, table, within=MARGIN, barred=barred) if common else empty


def _put(
    found: Grid, place: tuple[str, str], sides: list[CellValue | None], one: Derived, across: str, table: Expansion
) -> None:
    a, b = sides
    if a is not None and b is not None:
        value = difference(a, b, one.references.get((across, a.stage)), table)
        found[place] = value if one.shows_spread else replace(value, spread=None)


def _heads(one: Derived, columns: Sequence[ColumnHead]) -> list[tuple[ColumnHead, tuple[str, str]]]:
    """The new columns, one per stage, each with the ids of the two it compares; they say what both have in common."""
    sides = [{head.stage: head for head in columns if head.column.id == id} for id in one.of]
    found = []
    for stage in [stage for stage in sides[0] if stage in sides[1]]:
        a, b = sides[0][stage], sides[1][stage]
        first, second = a.column, b.column
        common: dict[str, Any] = {
            key: getattr(first, key) if getattr(first, key) == getattr(second, key) else nothing
            for key, nothing in (("dataset", ""), ("partition", ""), ("model", ""), ("clients", 0))
        }
        column = TableColumn(id=one.id, group=first.group, title=one.title, rounds=first.rounds, **common)
        found.append((ColumnHead(column, stage, a.label), (a.id, b.id)))
    return found
