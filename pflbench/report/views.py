"""Which columns of a table stand side by side, and what stands above them."""

from __future__ import annotations

from textwrap import wrap
from typing import NamedTuple

from pflbench.report.table import Row, Table

_WIDEST = 16
"""Characters of a group in one line above its columns."""


class View(NamedTuple):
    """Columns that all rows are printed with: what stands above the rows' titles, and above each column in lines."""

    corner: str
    columns: dict[int, tuple[str, ...]]
    """By the column's number in the table."""
    extra: tuple[Row, ...]
    """Rows that the suite does not name, if they have something in these columns."""


def views(table: Table) -> list[View]:
    """One view with all columns or, for a table in blocks, one per group with the group in the corner."""
    groups: dict[str, dict[int, tuple[str, ...]]] = {}
    for i, c in enumerate(table.columns):
        corner, above = (c.group, "") if table.blocks else ("", c.group)
        groups.setdefault(corner, {})[i] = tuple(line for line in (*wrap(above, _WIDEST), c.title, c.label) if line)
    return [
        View(corner, columns, tuple(row for row in table.extra if any(row.cells[i] for i in columns)))
        for corner, columns in groups.items()
    ]
