"""The leaderboard: mean ranks over the tables of one protocol, among the rows that all of the chosen columns have."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pflbench.commands import command
from pflbench.report import text
from pflbench.report.html.data import Sheet
from pflbench.report.html.escape import discreet, web_link
from pflbench.report.html.grid import grid_cells
from pflbench.report.methods import MethodDescription
from pflbench.report.ranking import Ranking, choose_columns
from pflbench.report.rivals import side_by_side
from pflbench.report.statistics import Floats, friedman, rank_intervals, ranks
from pflbench.report.table import CellValue
from pflbench.report.text import grouped

FEWEST = 3
"""Columns below which a mean rank has no interval: a bootstrap of two says nothing."""


class Ranked(NamedTuple):
    """A row with its place: mean rank, its interval, over how many cells, and its mean accuracy in each column."""

    title: str
    rank: str
    interval: str
    cells: int
    means: tuple[str, ...]


class Lacking(NamedTuple):
    """A row without a rank: in which of the chosen columns it has no finished cell, and the commands that fill them."""

    title: str
    columns: str
    commands: tuple[str, ...]
    nowhere: str
    """Columns in which no table has the row, so that no command fills them."""


class Board(NamedTuple):
    """The tables of one protocol and profile: the columns that are ranked over, and who has all of them."""

    title: str
    """Of one of its tables, the one that is called by the fewest letters."""
    protocol: str
    profile: str
    tables: tuple[tuple[str, str], ...]
    """Keys and titles."""
    columns: tuple[str, ...]
    ranked: tuple[Ranked, ...]
    lacking: tuple[Lacking, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Column(Ranking):
    """A column and the table that it stands in."""

    sheet: Sheet


def boards(sheets: Iterable[Sheet]) -> list[Board]:
    """A board for each protocol of a paper under each profile that has two columns to rank over, the fullest first."""
    found = grouped(((sheet.protocol, sheet.paper, sheet.table.profile), sheet.key) for sheet in sheets if sheet.fills)
    by_key = {sheet.key: sheet for sheet in sheets}
    made = [_board([by_key[key] for key in keys]) for keys in found.values()]
    return sorted(filter(None, made), key=lambda one: (one.profile != "paper", -len(one.ranked) * len(one.columns)))


def _board(sheets: Sequence[Sheet]) -> Board | None:
    columns, titles = _columns(sheets)
    ranked_over = choose_columns(columns, led=True)
    if not ranked_over:
        return None
    complete = [column.whole for column in ranked_over]
    rows = [row for row in titles if all(row in some for some in complete)]
    scores = np.array([[some[row].mean for row in rows] for some in complete], dtype=np.float64)
    first, decimals = sheets[0], sheets[0].table.decimals
    means = _means(rows, complete, decimals)
    return Board(
        title=discreet(min((sheet.table.title for sheet in sheets), key=len)),
        protocol=discreet(first.protocol),
        profile=first.table.profile,
        tables=tuple((sheet.key, discreet(sheet.table.title)) for sheet in sheets),
        columns=tuple(column.name for column in ranked_over),
        ranked=_ranked([titles[row] for row in rows], scores, _ids(complete, rows), means),
        lacking=tuple(
            _lacking(row, title, ranked_over, complete)
            for row, title in titles.items()
            if row not in rows and any(row in column.values for column in ranked_over)
        ),
        notes=_notes(scores, columns, ranked_over),
    )


def _columns(sheets: Sequence[Sheet]) -> tuple[list[_Column], dict[str, str]]:
    """The columns of these tables, each setting once, and the titles of their rows by id.

    A paper's own table goes first: a table of readings has the same columns with further rows.
    """
    found: dict[tuple[str, frozenset[str]], _Column] = {}
    titles: dict[str, str] = {}
    for sheet in sorted(sheets, key=lambda sheet: not sheet.is_main):
        filled = sheet.fills["last"]
        ids = [row.id for row in sheet.table.rows if any(id == row.id for id, _ in filled.table.places)]
        titles = {row.id: row.title for row in sheet.table.rows if row.id in ids} | titles
        for head in filled.table.heads:
            cells = {row: filled.grid[row, head.id] for row in ids if (row, head.id) in filled.grid}
            settings = frozenset(filled.cells[row, head.id].needed[0].setting() for row in cells)
            if cells:
                run = filled.cells[next(iter(cells)), head.id].needed[0]
                found.setdefault((head.id, settings), _Column(head, cells, run, sheet))
    return list(found.values()), titles


def _means(rows: Sequence[str], complete: Sequence[Mapping[str, CellValue]], decimals: int) -> list[list[str]]:
    """For each row its mean in each of these columns, with the marks of what it rests on."""
    found = [[some[row] for some in complete] for row in rows]
    return [[text.number(one.mean or 0.0, None, decimals) + text.marks(one) for one in cells] for cells in found]


def _ranked(titles: Sequence[str], scores: Floats, ids: str, shown: Sequence[Sequence[str]]) -> tuple[Ranked, ...]:
    seed = int(hashlib.sha256(ids.encode()).hexdigest()[:16], 16)
    intervals = rank_intervals(scores, np.random.default_rng(seed)) if len(scores) >= FEWEST else None
    places = ranks(scores).mean(0)
    found = []
    for i in np.argsort(places, kind="stable"):
        told = ""
        if intervals is not None:  # no rank is outside of 1 to the number of rows
            low, high = max(1.0, intervals[i].low), min(float(len(titles)), intervals[i].high)
            told = f"{low:.1f} to {high:.1f}"
        found.append(Ranked(titles[i], f"{places[i]:.2f}", told, len(scores), tuple(shown[i])))
    return tuple(found)


def _ids(complete: Sequence[Mapping[str, CellValue]], rows: Collection[str]) -> str:
    return " ".join(id for some in complete for row in rows for ids in some[row].runs.values() for id in ids)


def _lacking(row: str, title: str, chosen: Sequence[_Column], complete: Sequence[Mapping[str, CellValue]]) -> Lacking:
    empty = [column for column, some in zip(chosen, complete, strict=True) if row not in some]
    fillable = [column for column in empty if row in column.values]
    by_sheet = dict[str, list[_Column]]()
    for column in fillable:
        by_sheet.setdefault(column.sheet.key, []).append(column)
    commands = tuple(discreet(_fills(row, columns)) for columns in by_sheet.values())
    nowhere = ", ".join(column.name for column in empty if row not in column.values)
    return Lacking(title, ", ".join(column.name for column in empty), commands, nowhere)


def _fills(row: str, columns: Sequence[_Column]) -> str:
    """The command that makes what these columns of one table lack of a row."""
    sheet, ids = columns[0].sheet, list(dict.fromkeys(column.head.column.id for column in columns))
    failed = any(column.values[row].failed for column in columns)
    part = sheet.part.but(columns=ids, methods=[row])
    return command("run", part.options + " --redo failed" * failed, sheet.results)


def _notes(scores: Floats, columns: Sequence[_Column], chosen: Sequence[_Column]) -> tuple[str, ...]:
    found = friedman(scores)
    p = "" if found is None else "< 0.001" if found.p < 0.001 else f"= {found.p:.3f}"
    test = f"Friedman's test over these columns: p {p}." if p else ""
    left = len(columns) - len(chosen)
    others = (
        f"{left} other column{'s' if left > 1 else ''} of these tables not counted: of the same data dealt in the same "
        "way as a column that counts, or finished for too few rows."
    )
    few = f"With fewer than {FEWEST} columns a mean rank has no interval." if len(scores) < FEWEST else ""
    return tuple(filter(None, (test, few, others if left else "")))


class Result(NamedTuple):
    """A cell of a method: where it stands, and what it says."""

    table: str
    title: str
    cell: str
    row: str
    column: str
    ours: str
    paper: str
    difference: str
    verdict: str


class Section(NamedTuple):
    """A method of the tables; `about` is None for one of a user's."""

    name: str
    key: str
    about: MethodDescription | None
    links: tuple[tuple[str, str], ...]
    results: tuple[Result, ...]


def sections(sheets: Iterable[Sheet], described: Mapping[str, MethodDescription]) -> list[Section]:
    """A section for each method that has a result, by name."""
    found: dict[str, list[Result]] = {}
    for sheet in sheets:
        for name, result in _results(sheet):
            found.setdefault(name, []).append(result)
    made = []
    for name in sorted(found):
        about, key = described.get(name), re.sub(r"[^\w.-]+", "-", name)
        cited = re.findall(r"arXiv:? ?\d{4}\.\d{4,5}", about.citation) if about else []
        links = [(one, web_link("arXiv:" + one[-10:].lstrip(": "))) for one in dict.fromkeys(cited)]
        made.append(
            Section(discreet(name), key, about, tuple((one, to) for one, to in links if to), tuple(found[name]))
        )
    return made


def _results(sheet: Sheet) -> Iterable[tuple[str, Result]]:
    table = side_by_side(sheet.table)
    rows = (*table.rows, *table.extra)
    for place in grid_cells(table):
        value, head = place.value, table.columns[place.column]
        if not value.there or value.told is not None or " - " in value.method:
            continue
        printed = value.reference
        paper = "" if printed is None else printed.text or text.number(printed.mean, printed.spread, table.decimals)
        apart = (
            "" if value.difference is None else text.difference_text(value.difference, value.verdict, table.decimals)
        )
        yield (
            value.method,
            Result(
                table=sheet.key,
                title=discreet(table.title),
                cell=place.key,
                row=rows[place.row].title,
                column=head.name,
                ours=text.cell(value, table.decimals),
                paper=paper,
                difference=apart,
                verdict=value.judged,
            ),
        )
