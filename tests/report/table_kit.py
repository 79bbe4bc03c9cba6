"""Small expanded suites that are put together by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pflbench.report.table import Row, Table
from pflbench.selection import EVERYTHING
from pflbench.suite.cells import Cell, Expansion, Shortfall, TableRow
from pflbench.suite.schema import LayoutTable, Spread


def row(id: str, title: str = "") -> TableRow:
    """A row that is called so, of the method of its name."""
    return TableRow(id, title or id, id, ())


def expansion(**changes: Any) -> Expansion:
    """An expanded suite of no paper, without anything in it."""
    layout = LayoutTable(**{key: changes.pop(key) for key in ("decimals", "bold", "blocks", "costs") if key in changes})
    return Expansion(**(_EXPANSION | {"layout": layout} | changes))


def with_cells(table: Expansion, *cells: Cell) -> Expansion:
    """The table with these cells in the places of its own."""
    return replace(table, cells=tuple((table.places | {table.key_of(cell): cell for cell in cells}).values()))


def without_paper(table: Table) -> Table:
    """The table without the paper's numbers."""

    def cells(row: Row) -> Row:
        cells = (value and replace(value, reference=None, verdict=None) for value in row.cells)
        return replace(row, cells=tuple(cells))

    return replace(table, rows=tuple(map(cells, table.rows)), extra=tuple(map(cells, table.extra)))


_EXPANSION: dict[str, Any] = {
    "suite": "demo",
    "title": "Demo",
    "paper": "none",
    "profile": "paper",
    "spread": Spread(kind="std", ddof=0),
    "shows_spread": True,
    "notes": (),
    "shortfall": Shortfall(),
    "protocol": "not said",
    "seeds": (0,),
    "stages": {},
    "rows": (),
    "columns": (),
    "cells": (),
    "derived": (),
    "runs": (),
    "locations": {},
    "path": Path("demo.toml"),
    "extends": None,
    "part": EVERYTHING,
}
