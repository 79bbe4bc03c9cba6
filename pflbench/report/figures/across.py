"""Accuracy against the columns of a suite: a group of bars for each column, or a line through all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pflbench.report.cells import read, summarize
from pflbench.report.figures.panels import PRINTED, Point, Series
from pflbench.report.reading import Shelf
from pflbench.suite.cells import Cell, ColumnHead, Expansion
from pflbench.suite.figure import Across

_GROUP = 0.8
"""The width of a group of bars; columns are 1 apart."""


def across(table: Expansion, figure: Across, heads: Sequence[ColumnHead], shelf: Shelf) -> tuple[Series, ...]:
    """For each row its numbers in these columns, as far as they are done, then those that the paper printed."""
    compared = not table.shortfall.runs
    width = _GROUP / max(1, len(table.rows)) if figure.mark == "bars" else 0.0
    ours, printed = [], []
    for i, row in enumerate(table.rows):
        shift = (i - (len(table.rows) - 1) / 2) * width
        points, theirs = [], []
        for place, head in enumerate(heads):
            cell = table.places.get((row.id, head.id))
            x = (figure.at[place] if figure.at else place) + shift
            if cell is not None and (point := _point(cell, x, shelf, table)) is not None:
                points.append(point)
            if cell is not None and cell.reference is not None and compared:
                theirs.append(Point(x, cell.reference.mean, cell.reference.spread))
        if points:
            ours.append(Series(row.title, "bars" if width else "line", tuple(points), width, row=row.title))
        if theirs:
            label = PRINTED if points else f"{row.title}, {PRINTED}"
            printed.append(Series(label, "printed", tuple(theirs), like=row.title, row=row.title))
    return *ours, *printed


def _point(cell: Cell, x: float, shelf: Shelf, table: Expansion) -> Point | None:
    """Mean and spread of a cell's finished seeds."""
    done = read(cell, shelf)
    if not done:
        return None
    found = summarize(np.array([one.average(cell.reading) for one in done]), table.spread)
    return Point(x, found.mean, found.spread, found.n)


def span(figure: Across, series: Sequence[Series]) -> tuple[float, float] | None:
    """The accuracies that the figure asks to show, where every bar and marker is within them; else None, for all."""
    if figure.y is None:
        return None
    low, high = figure.y
    ends = [
        point.y + side * (point.spread or 0.0)
        for one in series
        for point in one.points
        if point.y is not None
        for side in (-1, 1)
    ]
    return (low, high) if all(low <= end <= high for end in ends) else None


def shown_in(table: Expansion, figure: Across, heads: Sequence[ColumnHead], series: Sequence[Series]) -> list[Cell]:
    """The cells that have a bar or marker."""
    at = figure.at or range(len(heads))
    rows = {row.title: row.id for row in table.rows}
    nearest = [
        (rows[one.row], heads[min(range(len(heads)), key=lambda i: abs(at[i] - point.x))].id)
        for one in series
        for point in one.points
    ]
    return [table.places[place] for place in nearest]
