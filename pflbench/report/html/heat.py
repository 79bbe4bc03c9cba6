"""Heat maps of who is best: a paper's methods by independent columns, each number with the ranks that it may have.

Rows are compared within a column alone, so columns of several of a paper's tables may stand beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pflbench.report import text
from pflbench.report.html.data import Sheet, located, paper_name
from pflbench.report.ranking import Ranking
from pflbench.report.statistics import paired
from pflbench.report.table import CellValue
from pflbench.report.text import grouped

FEWEST_COLUMNS = 2
FEWEST_SEEDS = 3
"""Common seeds below which no row beats another."""
ERROR = 0.05
"""One-sided error of the comparisons of one row with all others of its column (Bonferroni)."""
SHADES = 5


class Spot(NamedTuple):
    """A number of a map: its text, the ranks it may have, its shade (0 to 4, the best), and the cell that it opens."""

    text: str
    ranks: str
    shade: int
    whole: bool
    table: str
    cell: str


class HeatRow(NamedTuple):
    """A row: in how many columns no row beats it, its numbers, and the table and row id of its comparison."""

    title: str
    first: str
    spots: tuple[Spot | None, ...]
    versus: tuple[str, str] | None


class HeatMap(NamedTuple):
    """The columns of a paper's tables of one profile, on its own terms or on equal ones."""

    title: str
    profile: str
    columns: tuple[str, ...]
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True)
class _Column(Ranking):
    """A column, its table, and the titles and cells of its rows there, by row id."""

    sheet: Sheet
    titles: Mapping[str, str]
    cells: Mapping[str, str]


def heat_maps(sheets: Iterable[Sheet]) -> list[HeatMap]:
    """A map for each paper and profile, on its own and on equal terms, that has two independent columns."""
    kept = {sheet.key: sheet for sheet in sheets if sheet.fills}
    found = grouped(((one.paper, one.table.profile, one.beside is None), key) for key, one in kept.items())
    made = [_map([kept[key] for key in keys]) for keys in found.values()]
    return sorted(filter(None, made), key=lambda one: (one.profile != "paper", -len(one.rows) * len(one.columns)))


def _map(sheets: Sequence[Sheet]) -> HeatMap | None:
    chosen = _fullest([one for one in _columns(sheets) if len(one.comparable) > 1])
    if len({one.kin for one in chosen}) < FEWEST_COLUMNS:
        return None
    titles = {row: title for one in reversed(chosen) for row, title in one.titles.items()}
    ranges = [rank_ranges(one.comparable) for one in chosen]
    order = {row: -sum(of[row][0] == 1 for of in ranges if row in of) for row in titles}
    rows = [_row(row, titles[row], chosen, ranges) for row in sorted(titles, key=lambda row: order[row])]
    return HeatMap(
        title=paper_name(sheets) + (", equal terms" if sheets[0].beside else ""),
        profile=sheets[0].table.profile,
        columns=tuple(one.name for one in chosen),
        rows=tuple(row for row in rows if any(row.spots)),
    )


def _columns(sheets: Sequence[Sheet]) -> list[_Column]:
    """The columns of these tables, each setting once, those of a paper's own table first."""
    found: dict[tuple[str, frozenset[str]], _Column] = {}
    for sheet in sorted(sheets, key=lambda sheet: not sheet.is_main):
        filled = sheet.fills["last"]
        keys = {of: place.key for place, of, main in located(sheet.table) if main}
        titles = {row.id: row.title for row in sheet.table.rows}
        for head in filled.table.heads:
            cells = {row: filled.grid[row, head.id] for row in titles if (row, head.id) in filled.cells}
            settings = frozenset(filled.cells[row, head.id].needed[0].setting() for row in cells)
            if cells and (head.id, settings) not in found:
                run = filled.cells[next(iter(cells)), head.id].needed[0]
                places = {row: keys[row, head.id] for row in cells if (row, head.id) in keys}
                found[head.id, settings] = _Column(head, cells, run, sheet, titles, places)
    return list(found.values())


def _fullest(columns: Iterable[_Column]) -> list[_Column]:
    """Of columns of the same data, dealt in the same way, with the same stage, the one with the most rows.

    One of a paper's own table goes before those of tables that extend it, which may have further rows.
    """
    found: dict[tuple[str, ...], list[_Column]] = {}
    for one in columns:
        found.setdefault((*one.kin, one.head.label), []).append(one)
    return [max(some, key=lambda one: (one.sheet.is_main, len(one.comparable))) for some in found.values()]


def rank_ranges(values: Mapping[str, CellValue]) -> dict[str, tuple[int, int]]:
    """The best and the worst rank that each row of a column may have.

    The best is one more than the number of rows that beat it, the worst the number of rows that it does not beat.
    """
    beaten = {row: {other for other in values if other != row and _beats(values, row, other)} for row in values}
    return {row: (1 + sum(row in of for of in beaten.values()), len(values) - len(beaten[row])) for row in values}


def _beats(values: Mapping[str, CellValue], row: str, other: str) -> bool:
    ours, theirs = values[row].seeds, values[other].seeds
    shared = sorted(ours.keys() & theirs.keys())
    if len(shared) < FEWEST_SEEDS:
        return False
    found = paired([ours[seed] - theirs[seed] for seed in shared], tested=False)
    return found.mean > 0 and found.p_t is not None and found.p_t / 2 <= ERROR / (len(values) - 1)


def _row(row: str, title: str, columns: Sequence[_Column], ranges: Sequence[Mapping[str, tuple[int, int]]]) -> HeatRow:
    there = [of[row] for of in ranges if row in of]
    table = next((one.sheet for one in columns if row in one.sheet.versus.get("last", {})), None)
    return HeatRow(
        title,
        f"in {sum(best == 1 for best, _ in there)} of {len(there)}",
        tuple(_spot(row, column, of) for column, of in zip(columns, ranges, strict=True)),
        (table.key, row) if table else None,
    )


def _spot(row: str, column: _Column, ranges: Mapping[str, tuple[int, int]]) -> Spot | None:
    value = column.comparable.get(row)
    if value is None or value.mean is None:
        return None
    means = [one.mean for one in column.comparable.values() if one.mean is not None]
    low, high = min(means), max(means)
    best, worst = ranges[row]
    return Spot(
        text=text.number(value.mean, None, column.sheet.table.decimals) + text.marks(value),
        ranks=f"{best}–{worst}" if best < worst else f"{best}",
        shade=round((SHADES - 1) * ((value.mean - low) / (high - low) if high > low else 1.0)),
        whole=value.complete,
        table=column.sheet.key,
        cell=column.cells[row],
    )
