"""Small expanded suites that are put together by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pflbench.selection import EVERYTHING
from pflbench.suite.cells import Caption, Cell, Expansion, TableRow
from pflbench.suite.schema import LayoutTable, Spread
from pflbench.suite.shortfall import Shortfall


def row(id: str, title: str = "") -> TableRow:
    """A row that is called so, of the method of its name."""
    return TableRow(id, title or id, id, ())


def caption(**changes: Any) -> Caption:
    """A table of no paper, without anything in it."""
    return Caption(**(_CAPTION | changes))


def expansion(**changes: Any) -> Expansion:
    """The same as an expanded suite; rows, columns and cells are for the test to say."""
    layout = LayoutTable(**{key: changes.pop(key) for key in ("decimals", "bold", "blocks", "costs") if key in changes})
    return Expansion(**(_CAPTION | _EXPANSION | {"layout": layout} | changes))


def with_cells(table: Expansion, *cells: Cell) -> Expansion:
    """The table with these cells in the places of its own."""
    return replace(table, cells=tuple((table.places | {table.place(cell): cell for cell in cells}).values()))


_CAPTION: dict[str, Any] = {
    "suite": "demo",
    "title": "Demo",
    "paper": "none",
    "profile": "paper",
    "spread": Spread(kind="std", ddof=0),
    "shows_spread": True,
    "notes": (),
    "shortfall": Shortfall(),
}
_EXPANSION: dict[str, Any] = {
    "protocol": "not said",
    "seeds": (0,),
    "stages": {},
    "derived": (),
    "runs": (),
    "locations": {},
    "path": Path("demo.toml"),
    "extends": None,
    "part": EVERYTHING,
}
