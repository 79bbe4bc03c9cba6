"""A critical-difference diagram: which rows' mean ranks over independent columns are not apart (Demšar 2006)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from pflbench.errors import UsageError
from pflbench.report.cells import fill_cell, read_seeds
from pflbench.report.facts import Fact, facts
from pflbench.report.figures.panels import DIFFERENCE, Drawing, Panel, Point, Series
from pflbench.report.figures.parts import comma_list, facts_of, mixed
from pflbench.report.provenance import mixtures, shown_runs
from pflbench.report.ranking import Ranking, choose_columns, independent, rows_in_common
from pflbench.report.reading import Shelf
from pflbench.report.statistics import Floats, critical_difference, friedman, rank_intervals, ranks
from pflbench.report.text import grouped
from pflbench.suite.cells import Expansion
from pflbench.units import count

FEWEST, ROWS = 10, 3
"""Columns below which there is no such picture, as the test's approximation is poor; and rows."""


def critical(table: Expansion, shelf: Shelf) -> Drawing:
    """The rows' mean ranks over the columns that they share, with their intervals, and the critical difference.

    Raises:
        UsageError: Fewer than ten independent columns have three rows in common.
    """
    columns = _columns(table, shelf)
    ranked_over = choose_columns(columns, FEWEST, ROWS)
    if not ranked_over:
        raise UsageError(_too_few(table, columns))
    titles = {row.id: row.title for row in table.rows}
    rows = [row for row in titles if all(row in column.whole for column in ranked_over)]
    scores = np.array([[column.whole[row].mean for row in rows] for column in ranked_over], dtype=np.float64)
    cells = [table.places[row, column.head.id] for column in ranked_over for row in rows]
    notes = (
        *mixed(table, shelf),
        *facts("scores", *_notes(scores, ranked_over, columns)),
        *_left_out([titles[row] for row in titles if row not in rows]),
        *facts_of(table, {run.seed for cell in cells for run in cell.needed}, cells),
    )
    series = tuple(_series([titles[row] for row in rows], scores, ranked_over))
    panel = Panel("", series)
    axes = "mean rank", "place"
    return Drawing(
        *(table.suite, f"{table.heading}: mean ranks", table.profile, *axes, (panel,), 1),
        notes,
        tuple(titles[row] for row in rows),
    )


def _columns(table: Expansion, shelf: Shelf) -> list[Ranking]:
    """The table's columns with the values of their rows."""
    used = shown_runs(table.places, {row.id: row.title for row in table.rows}, shelf.stored)
    several = mixtures(table, used)
    found = []
    for head in table.heads:
        cells = {
            row.id: cell for row in table.rows if (cell := table.places.get((row.id, head.id))) and cell.has_scores
        }
        values = {
            row: fill_cell(cell, read_seeds(cell, shelf), shelf, table, mixed=cell.column.id in several)
            for row, cell in cells.items()
        }
        if cells:
            found.append(Ranking(head, values, next(iter(cells.values())).needed[0]))
    return found


def _too_few(table: Expansion, columns: Sequence[Ranking]) -> str:
    """Why there is no picture, in a sentence."""
    fullest = independent(columns)
    there = max((one.columns for one in rows_in_common(fullest) if len(one.rows) >= ROWS), default=0)
    said = (
        f"A critical-difference picture takes {FEWEST} independent columns in which the same {ROWS} rows have all "
        f"their seeds, and {table.suite} has {there} of {count(len(columns), 'column')}"
    )
    merged = _merged(columns)
    return f"{said}; of the same data dealt alike, so one column, are {merged}." if merged else f"{said}."


def _merged(columns: Sequence[Ranking]) -> str:
    """Columns that count as one, in words."""
    kin = grouped((column.kin, column.name) for column in columns).values()
    return "; and ".join(comma_list(names) for names in kin if len(names) > 1)


def _notes(scores: Floats, over: Sequence[Ranking], columns: Sequence[Ranking]) -> Iterator[str]:
    test, difference = friedman(scores), critical_difference(scores.shape[1], len(over))
    yield (
        f"Mean ranks over {len(over)} independent columns, 1 being the best: {comma_list(one.name for one in over)}. "
        f"Rows that a bar joins are not apart: their mean ranks differ by less than {difference:.2f}, the critical "
        "difference (Nemenyi, 5 %)."
    )
    if test is not None:
        p = "< 0.001" if test.p < 0.001 else f"= {test.p:.3f}"
        yield f"Friedman's test: p {p}." + (" So the ranks as a whole are not beyond chance." if test.p >= 0.05 else "")
    merged = _merged(columns)
    yield f"Of the same data dealt alike, so that one of them counts: {merged}." if merged else ""
    alike = {column.kin for column in over}
    absent = [column.name for column in independent(columns) if column.kin not in alike]
    yield f"Not ranked over, as too few rows have them in full: {comma_list(absent)}." if absent else ""


def _left_out(titles: Sequence[str]) -> list[Fact]:
    text = f"Left out, as they lack some of these columns: {comma_list(titles)}."
    return [Fact("left out", text)] if titles else []


def _series(titles: Sequence[str], scores: Floats, columns: Sequence[Ranking]) -> Iterator[Series]:
    """A series for each row, from the best on: its mean rank, its place, and with what it was ranked."""
    found, difference = ranks(scores), critical_difference(len(titles), len(columns))
    ids = " ".join(id for column in columns for one in column.whole.values() for ids in one.runs.values() for id in ids)
    seed = int(hashlib.sha256(ids.encode()).hexdigest()[:16], 16)
    intervals = rank_intervals(scores, np.random.default_rng(seed))
    assert intervals is not None
    for place, i in enumerate(np.argsort(found.mean(0), kind="stable"), 1):
        numbers = {
            DIFFERENCE: difference,
            "interval from": max(1.0, intervals[i].low),
            "interval to": min(float(len(titles)), intervals[i].high),
            **{f"rank in {column.name}": float(rank) for column, rank in zip(columns, found[:, i], strict=True)},
        }
        point = Point(float(found[:, i].mean()), float(place), None, len(columns))
        yield Series(titles[i], "rank", (point,), numbers=numbers)
