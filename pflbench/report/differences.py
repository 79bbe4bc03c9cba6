"""Rows and columns of differences between two others, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pflbench.report.cells import settle
from pflbench.report.table import CellValue, Grid
from pflbench.suite.cells import Caption, ColumnHead, Derived, Expansion, Reference, TableColumn


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


def difference(a: CellValue, b: CellValue, reference: Reference | None, table: Caption) -> CellValue:
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
    return settle(empty, {s: np.array([a.seeds[s] - b.seeds[s]]) for s in common}, table) if common else empty


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
