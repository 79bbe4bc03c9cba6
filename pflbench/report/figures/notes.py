"""The lines under a figure: what is missing, and where; what cannot be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pflbench.report.mixtures import mixtures, runs_used
from pflbench.report.reading import Shelf
from pflbench.suite.cells import Expansion

Places = list[tuple[str, str]]
"""What is to be said, and of which column."""


def grouped(places: Places, everywhere: int) -> str:
    """`round 1; FedAvg in A, B`: what, and in which columns unless in all; `everywhere`: how many there are."""
    found: dict[str, dict[str, None]] = {}
    for what, column in places:
        found.setdefault(what, {})[column] = None
    by_where: dict[tuple[str, ...], list[str]] = {}
    for what, columns in found.items():
        by_where.setdefault(tuple(columns), []).append(what)
    return "; ".join(_listed(what, columns, everywhere) for columns, what in by_where.items())


def _listed(what: Iterable[str], columns: Sequence[str], everywhere: int) -> str:
    where = "" if len(columns) == everywhere else f" in {', '.join(columns)}"
    return f"{', '.join(what)}{where}"


def mixed(table: Expansion, shelf: Shelf) -> list[str]:
    """Warnings of columns whose runs saw different data, or are of different versions of a method."""
    used = runs_used(table.places, {row.id: row.title for row in table.rows}, shelf.stored)
    return list(mixtures(table, used).values())
