"""What the makers of figures share: a panel's cells, lines over seeds, and notes on what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pflbench.report.cells import summarize
from pflbench.report.figures.panels import Point, Series
from pflbench.report.reading import Shelf
from pflbench.report.text import grouped, ranges
from pflbench.report.used import packaged, runs_used
from pflbench.report.versions import mixtures
from pflbench.suite.cells import Cell, ColumnHead, Expansion
from pflbench.suite.schema import Spread

Remarks = list[tuple[str, str]]
"""What is missing, and in which column."""
Walk = Mapping[int, float]
"""A run's numbers, by round or by fine-tuning step."""


def in_a_line(panels: int) -> int:
    """How many of so many panels stand beside each other."""
    return panels if panels <= 3 else 2 if panels == 4 else 3


def cells_of(table: Expansion, head: ColumnHead) -> dict[str, Cell]:
    """The cells of a panel by their rows' titles, in the suite's order."""
    return {row.title: cell for row in table.rows if (cell := table.places.get((row.id, head.id)))}


def unevenly_scored(title: str, walks: Sequence[Walk]) -> list[str]:
    """What a curve lacks."""
    rounds = {round for walk in walks for round in walk}
    if len(rounds) == 1:
        return [f"{title} but after round {min(rounds)}"]
    return [f"{title} after some rounds of some seeds"] if any(len(walk) < len(rounds) for walk in walks) else []


def line(title: str, walks: Sequence[Walk], spread: Spread, numbers: Mapping[str, float], pace: float = 1.0) -> Series:
    """Mean and spread over seeds, at each place that one of their walks comes by; `pace`: the axis's unit in places."""
    points = []
    for x in sorted({x for walk in walks for x in walk}):
        summary = summarize(np.array([[walk[x]] for walk in walks if x in walk]), spread)
        points.append(Point(pace * x, summary.mean, summary.spread, summary.n))
    return Series(title, "line", tuple(points), numbers=numbers)


def not_done(table: Expansion, heads: Sequence[ColumnHead], shelf: Shelf) -> tuple[Remarks, set[int]]:
    """Which seeds of which rows are not done, and the seeds that are done of some row."""
    lacking: Remarks = []
    seeds: set[int] = set()
    for head in heads:
        for title, cell in cells_of(table, head).items():
            asked = {needed[0].seed for needed in cell.by_seed}
            done = {needed[0].seed for needed in cell.by_seed if all(shelf.read(run) for run in needed)}
            seeds |= done
            if left := asked - done:
                which = f" (seeds {ranges(left)})" if done else ""
                lacking.append((f"{title}{which}", head.column.setting))
    return lacking, seeds


def listed(title: str, remarks: Remarks, table: Expansion) -> str:
    """`round 1; FedAvg in A, B`: what, and in which columns unless in all; empty without remarks."""
    alike = grouped((tuple(columns), what) for what, columns in grouped(remarks).items())
    said = "; ".join(
        ", ".join(several) + ("" if len(columns) == len(table.columns) else f" in {', '.join(columns)}")
        for columns, several in alike.items()
    )
    return f"{title}: {said}." if said else ""


def mixed(table: Expansion, shelf: Shelf) -> list[str]:
    """Warnings of columns whose runs saw different data, or are of different versions of a method; what came along."""
    used = runs_used(table.places, {row.id: row.title for row in table.rows}, shelf.stored)
    return [*mixtures(table, used).values(), *filter(None, [packaged(used)])]
