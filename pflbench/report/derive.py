"""Rows and columns of differences between two others, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from pflbench.report.table import CellValue, ColumnHead, Derived, Reference, RowHead, TableInput
from pflbench.report.values import settle

Grid = dict[tuple[str, str], CellValue]
T = TypeVar("T")


def derive(
    table: TableInput, extra: Sequence[str], grid: Grid
) -> tuple[tuple[RowHead, ...], tuple[ColumnHead, ...], Grid]:
    """The table's rows and columns with those of differences in their places, and the values of these.

    `extra`: ids of the rows that the suite does not name; they have the columns of differences, too.
    """
    rows, columns, found = list(table.rows), list(table.columns), Grid()
    for one in table.derived:
        if one.axis == "rows":
            rows.append(RowHead(one.id, one.title))
            for head in table.columns:
                sides = [grid.get((row, head.id)) for row in one.of]
                _put(found, (one.id, head.id), sides, one, head.column, table)
            continue
        for head, of in _heads(one, table.columns):
            columns.insert(_end(columns, head.group), head)
            for row in (*(row.id for row in table.rows), *extra):
                _put(found, (row, head.id), [grid.get((row, id)) for id in of], one, row, table)
    return tuple(rows), tuple(columns), found


def difference(a: CellValue, b: CellValue, reference: Reference | None, table: TableInput) -> CellValue:
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
    found: Grid, place: tuple[str, str], sides: list[CellValue | None], one: Derived, across: str, table: TableInput
) -> None:
    a, b = sides
    if a is not None and b is not None:
        value = difference(a, b, one.references.get((across, a.stage)), table)
        found[place] = value if one.with_spread else replace(value, spread=None)


def _heads(one: Derived, columns: Sequence[ColumnHead]) -> list[tuple[ColumnHead, tuple[str, str]]]:
    """The new columns, one per stage, each with the ids of the two it compares."""
    sides = [{head.stage: head for head in columns if head.column == id} for id in one.of]
    found = []
    for stage in [stage for stage in sides[0] if stage in sides[1]]:
        a, b = sides[0][stage], sides[1][stage]
        head = ColumnHead(
            id=one.id if stage is None else f"{one.id}/{stage}",
            title=one.title,
            group=a.group,
            column=one.id,
            dataset=_shared(a.dataset, b.dataset) or "",
            partition=_shared(a.partition, b.partition) or "",
            clients=_shared(a.clients, b.clients),
            rounds=a.rounds,
            stage=stage,
            label=a.label,
        )
        found.append((head, (a.id, b.id)))
    return found


def _shared(a: T, b: T) -> T | None:
    return a if a == b else None


def _end(columns: Sequence[ColumnHead], group: str) -> int:
    return max(i for i, head in enumerate(columns) if head.group == group) + 1
