"""A finished table as rows and columns of a page: what stands above the columns, and what stands in each place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from pflbench.report import text
from pflbench.report.table import CellValue, Row, Table

OURS = "ours"
"""Above a column that has nothing of its own above it."""


class Head(NamedTuple):
    """Text above several columns, or above one: then `column` is its number in the table."""

    text: str
    wide: int
    column: int | None = None


class Block(NamedTuple):
    """Columns that all rows are printed with: what stands above them, level by level, and their numbers."""

    corner: str
    levels: tuple[tuple[Head, ...], ...]
    columns: tuple[int, ...]
    extra: tuple[Row, ...]
    """Rows that the suite does not name, if they have something in these columns."""


def blocks(table: Table) -> list[Block]:
    """The table in the paper's layout: one block or, for a table in blocks, one for each group."""
    found = []
    for view in text.views(table):
        columns = tuple(view.columns)
        found.append(Block(view.corner, tuple(_levels(table, columns)), columns, view.extra))
    return found


def _levels(table: Table, columns: Sequence[int]) -> Iterator[tuple[Head, ...]]:
    """Groups (in blocks they are the corner) and titles over all columns that share them, and labels below."""
    heads = [table.columns[i] for i in columns]
    paths = [("" if table.blocks else head.column.group, head.column.title, head.label) for head in heads]
    depths = [depth for depth in range(3) if any(path[depth] for path in paths)] or [1]
    for depth in depths[:-1]:
        same = groupby(path[: depth + 1] for path in paths)
        yield tuple(Head(path[-1], len(list(some))) for path, some in same)
    yield tuple(Head(path[depths[-1]] or OURS, 1, column) for path, column in zip(paths, columns, strict=True))


def keys(table: Table) -> list[str]:
    """Names of the columns in an address: the head's id, with a number behind it if it is not the first."""
    ids = [head.id for head in table.columns]
    before = (ids[:i].count(id) for i, id in enumerate(ids))
    return [f"{id}~{again}" if again else id for id, again in zip(ids, before, strict=True)]


@dataclass(frozen=True)
class GridCell:
    """A place of a table: its row and its column by number, and its value."""

    row: int
    column: int
    value: CellValue

    @property
    def key(self) -> str:
        """Name in the page."""
        return f"{self.row},{self.column}"


def grid_cells(table: Table) -> Iterator[GridCell]:
    """Every place that has something, row by row, the suite's rows first."""
    for number, row in enumerate((*table.rows, *table.extra)):
        for column, value in enumerate(row.cells):
            if value is not None:
                yield GridCell(number, column, value)
