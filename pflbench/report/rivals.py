"""Beside a table's numbers, those of another suite's runs in the same places, and how the rows' order changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pflbench.commands import command, public_folder
from pflbench.errors import UsageError, unknown
from pflbench.report.cells import fill_cell, read_seeds
from pflbench.report.reading import Shelf
from pflbench.report.statistics import holm, paired
from pflbench.report.table import Against, Beside, CellValue, Grid, Row, Table, Versus
from pflbench.report.text import cell, grouped, ranges
from pflbench.selection import selection
from pflbench.suite.cells import Cell, ColumnHead, Expansion, ReadAs
from pflbench.suite.expand import expand
from pflbench.suite.load import available
from pflbench.suite.load import read as read_suite

OURS = "here"
THEIRS = "paper's protocol"
RANK = "rank"
LAST, BEST, LEAD = "last", "best", "best - last"


def suite_beside(table: Expansion) -> Expansion | None:
    """The suite that stands beside a table, if there is one: of the same profile, seeds, rounds and precision.

    Where it declares fewer seeds than the table has, its cells have the table's.
    """
    if table.layout.beside is None:
        return None
    suite, part = read_suite(table.layout.beside), table.part
    part = selection(profile=table.profile, seeds=part.seeds, rounds=part.rounds, precision=part.precision)
    other, wanted = expand(suite, part), {place: _seeds(cell) for place, cell in table.places.items()}
    if all(wanted.get(place, set()) <= _seeds(cell) for place, cell in other.places.items()):
        return other
    other = expand(suite, part, seeds=table.seeds)
    return replace(other, cells=tuple(cell.of_seeds(wanted.get(other.key_of(cell), set())) for cell in other.cells))


def _seeds(cell: Cell) -> set[int]:
    return {run.seed for run in cell.runs}


def with_other_suite(
    table: Expansion, other: Expansion | None, grid: Grid, shelf: Shelf, read_as: ReadAs
) -> tuple[Grid, list[str]]:
    """The grid with what the `other` suite's runs gave in the same places, and lines that say so.

    Ranks are over the seeds that both have of a row, among the rows that are done for the same of these, by the numbers
    as they are printed; equal ones share a rank.
    """
    if other is None:
        return grid, []
    cells = {place: one.read(read_as) for place, one in other.places.items() if place in grid and one.runs}
    theirs = {place: fill_cell(one, read_seeds(one, shelf), shelf, other, mixed=False) for place, one in cells.items()}
    alike = _alike(grid, theirs)
    here, there = (_ranks(some, alike, table.layout.decimals) for some in (grid, theirs))
    found = dict(grid)
    for place, value_ in theirs.items():
        ranked = Beside(value_, there.get(place), here.get(place), alike.get(place, ()))
        found[place] = replace(grid[place], beside=ranked)
    lacking = dict.fromkeys(cells[place].column.id for place, one in theirs.items() if one.done < one.expected)
    every = lacking.keys() == {cell.column.id for cell in other.cells}
    lines = _lines(table, other, [] if every else list(lacking), alike, lacks=bool(lacking), results=shelf.root)
    return found, lines


def _lines(
    table: Expansion,
    other: Expansion,
    columns: Sequence[str],
    alike: Mapping[Place, tuple[int, ...]],
    *,
    lacks: bool,
    results: Path,
) -> list[str]:
    """Sentences on the numbers beside the table's, and the command that makes the runs which these columns lack.

    `columns`: none where all of them do. `lacks`: whether one does.
    """
    path = other.path
    called = next((name for name, file in available().items() if file.resolve() == path.resolve()), str(path))
    profile = "" if table.profile == "paper" else f", profile {table.profile}"
    asked = table.part.but(
        suites=[called], rows=[], columns=columns, methods=[], overrides=[], like=None, seeds=other.part.seeds
    )
    names = {head.id: head.name for head in table.heads}
    over = grouped((f"{ranges(seeds)} (n = {len(seeds)})", names[head]) for (_, head), seeds in alike.items())
    ranked = "; ".join(f"{', '.join(columns)}: {seeds}" for seeds, columns in over.items())
    fills = command("run", asked.options, public_folder(results))
    return [
        f"Beside each number: what the paper's protocol gave (our runs of {called}{profile}), and the row's rank in "
        "the column there → here, over the seeds that both have, among the rows that are done for the same of these"
        f"{f' ({ranked})' * bool(ranked)}; equal numbers share a rank.",
        *[f"Places of the paper's protocol that lack runs are filled by `{fills}`."] * lacks,
    ]


def _alike(grid: Grid, theirs: Grid) -> dict[Place, tuple[int, ...]]:
    """In each column the places that have the same seeds in both tables, and these seeds.

    Of several such groups of at least two rows the one with the most seeds, then with the most rows.
    """
    groups: dict[tuple[str, tuple[int, ...]], list[Place]] = {}
    for place, one in grid.items():
        other = theirs.get(place)
        shared = tuple(sorted(one.seeds.keys() & other.seeds.keys())) if other is not None else ()
        if other is not None and shared and _there(one) and _there(other):
            groups.setdefault((place[1], shared), []).append(place)
    several = [(head, seeds, places) for (head, seeds), places in groups.items() if len(places) > 1]
    several.sort(key=lambda group: (len(group[1]), len(group[2])))
    best = {head: (seeds, places) for head, seeds, places in several}
    return {place: seeds for seeds, places in best.values() for place in places}


def _there(one: CellValue) -> bool:
    return one.mean is not None and math.isfinite(one.mean)


def _ranks(grid: Grid, alike: Mapping[Place, tuple[int, ...]], decimals: int) -> dict[Place, int]:
    """The rank of each place in its column by the mean over these seeds, the greatest first."""
    printed = {
        place: round(float(np.mean([grid[place].seeds[seed] for seed in seeds])), decimals)
        for place, seeds in alike.items()
    }
    return {
        place: 1 + sum(other > mean for (_, head), other in printed.items() if head == place[1])
        for place, mean in printed.items()
    }


def side_by_side(table: Table, *, peaks: bool = True) -> Table:
    """The table with two more columns behind each that has something beside it.

    That is another suite's number and the ranks or, unless `peaks` is False, a best round, with the paper's number, and
    its lead over the last one. Of the three each has a name below the column's title. Without its best round a cell
    has no paper's number, since the last round does not compare with it.
    """
    if not peaks:
        table = _last_alone(table)
    words = [_words([row.cells[i] for row in (*table.rows, *table.extra)], peaks) for i in range(len(table.columns))]
    if not any(words):
        return table

    def columns() -> Iterable[ColumnHead]:
        for head, names in zip(table.columns, words, strict=True):
            yield from (replace(head, label=f"{head.label}, {word}".removeprefix(", ")) for word in names)
            if not names:
                yield head

    def rows(some: Iterable[Row]) -> tuple[Row, ...]:
        return tuple(
            replace(
                row,
                cells=tuple(
                    cell
                    for one, names in zip(row.cells, words, strict=True)
                    for cell in (one, *(_behind(one, names, table.decimals) if names else ()))
                ),
            )
            for row in some
        )

    return replace(table, columns=tuple(columns()), rows=rows(table.rows), extra=rows(table.extra))


def _last_alone(table: Table) -> Table:
    """The table without the paper's numbers beside last rounds."""

    def last(value: CellValue | None) -> CellValue | None:
        return replace(value, reference=None, verdict=None) if value and value.peak else value

    rows, extra = (
        tuple(replace(row, cells=tuple(map(last, row.cells))) for row in some) for some in (table.rows, table.extra)
    )
    return replace(table, rows=rows, extra=extra)


def _words(values: Sequence[CellValue | None], peaks: bool) -> tuple[str, ...]:
    """Names of a column's three numbers; none where nothing stands beside its own."""
    if any(one and one.beside for one in values):
        return OURS, THEIRS, RANK
    return (LAST, BEST, LEAD) if peaks and any(one and one.peak for one in values) else ()


def _behind(one: CellValue | None, words: Sequence[str], decimals: int) -> tuple[CellValue | None, CellValue | None]:
    """The two cells behind one."""
    if LAST in words:
        peak = one.peak if one else None
        return (_bare(peak.best), _bare(peak.lead) if peak.lead else None) if peak else (None, None)
    beside = one.beside if one else None
    return _shown(beside, decimals), CellValue(told=beside.ranks) if beside and beside.ranks else None


def _bare(value: CellValue) -> CellValue:
    """The number without the marks, the runs and the place of the cell that it stands behind."""
    return replace(value, method="", mixed=False, rests_on={}, gap=None, done=0, failed=0, expected=0)


def _shown(beside: Beside | None, decimals: int) -> CellValue | None:
    """The other suite's number, without marks; an empty place where it has none."""
    if beside is None:
        return None
    theirs = replace(beside.value, rests_on={}, verdict=None)
    return CellValue(told="" if theirs.mean is None else cell(theirs, decimals))


Place = tuple[str, str]
"""The ids of a row and of a column head."""


def rival_row(table: Expansion, name: str) -> str:
    """The id of the row that a rival's name means: a row's, or a method's that one row shows.

    Raises `UsageError` where it means none, or several.
    """
    ids = [row.id for row in table.rows]
    if name in ids:
        return name
    found = [row.id for row in table.rows if row.method == name]
    if len(found) > 1:
        raise UsageError(f"--versus {name} has several rows in {table.suite}: name one, {' or '.join(found)}.")
    if not found:
        raise unknown("row", name, ids)
    return found[0]


def rival_rows(tables: Iterable[Expansion], name: str) -> list[str | None]:
    """The id of the rival's row in each table; None where a table has none.

    Raises `UsageError`, as `rival_row` does, where no table has one.
    """
    found: list[str | None] = []
    problem = None
    for table in tables:
        try:
            found.append(rival_row(table, name))
        except UsageError as error:
            found.append(None)
            problem = problem or error
    if problem and not any(found):
        raise problem
    return found


def held_against(name: str, table: Expansion, grid: Grid) -> Versus:
    """Every cell against the rival's in its column, where both have a seed in common and data are not mixed.

    Args:
        name: The rival's row, or its method.
        table: Whose columns these are.
        grid: The filled cells.

    Raises:
        UsageError: The name means no row, or several.
    """
    of = rival_row(table, name)
    compared: dict[Place, Against] = {}
    for head, places in grouped((head, (row, head)) for row, head in grid).items():
        theirs = of, head
        column: dict[Place, Against] = {}
        for place in places:
            mine = grid[place]
            if place == theirs or theirs not in grid or mine.mixed:
                continue
            common = [seed for seed in mine.seeds if seed in grid[theirs].seeds]
            if common:
                column[place] = Against(paired([mine.seeds[seed] - grid[theirs].seeds[seed] for seed in common]))
        compared |= _adjusted(column)
    (title,) = (row.title for row in table.rows if row.id == of)
    return Versus(title, compared)


def _adjusted(column: Mapping[Place, Against]) -> dict[Place, Against]:
    """The column with p-values adjusted over all of its comparisons that have one."""
    tested = {place: one.paired.p_t for place, one in column.items() if one.paired.p_t is not None}
    adjusted = dict(zip(tested, holm([*tested.values()]), strict=True))
    return {place: replace(one, p=adjusted.get(place)) for place, one in column.items()}
