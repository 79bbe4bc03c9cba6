"""Columns that rows are ranked over: independent ones, and those that the most rows have in full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from pflbench.report.table import CellValue
from pflbench.spec import RunSpec
from pflbench.suite.cells import ColumnHead


@dataclass(frozen=True)
class Ranking:
    """A column with the values of its rows by their ids, and one of its runs."""

    head: ColumnHead
    values: Mapping[str, CellValue]
    run: RunSpec

    @property
    def kin(self) -> tuple[str, ...]:
        """Columns that have this in common are not independent: they are of the same data, dealt in the same way."""
        dataset, partition = self.run.dataset, self.run.partition
        return dataset.name, dataset.content or "", partition.name, partition.content or ""

    @property
    def name(self) -> str:
        """Everything above it in one line."""
        return self.head.name

    @cached_property
    def whole(self) -> dict[str, CellValue]:
        """The values that have every seed and can be compared."""
        return {row: value for row, value in self.comparable.items() if value.complete}

    @cached_property
    def comparable(self) -> dict[str, CellValue]:
        """The values with a number that can be compared, whatever seeds are missing."""
        there = {row: value for row, value in self.values.items() if not value.mixed}
        return {row: value for row, value in there.items() if value.mean is not None and math.isfinite(value.mean)}


C = TypeVar("C", bound=Ranking)


class InCommon(NamedTuple):
    """Columns, and the rows that all of them have in full."""

    columns: int
    rows: frozenset[str]


def independent(columns: Sequence[C]) -> list[C]:
    """Of columns that are not independent the fullest alone; the fullest first."""
    by_fill = sorted(columns, key=lambda column: -len(column.whole))
    found = list({column.kin: column for column in reversed(by_fill)}.values())
    return sorted(found, key=by_fill.index)


def rows_in_common(columns: Sequence[Ranking]) -> list[InCommon]:
    """For the first, the first two, … of these columns the rows that have all of them."""
    found: list[InCommon] = []
    for n, column in enumerate(columns, 1):
        rows = frozenset(column.whole)
        found.append(InCommon(n, found[-1].rows & rows if found else rows))
    return found


def choose_columns(columns: Sequence[C], fewest: int = 2, rows: int = 2) -> list[C]:
    """The independent columns to rank over: at least `fewest`, such that rows times columns are the most.

    Empty where fewer columns share so many rows.
    """
    fullest = independent(columns)
    fit = [one for one in rows_in_common(fullest) if one.columns >= fewest and len(one.rows) >= rows]
    best = max(fit, key=lambda one: (one.columns * len(one.rows), one.columns), default=InCommon(0, frozenset()))
    return fullest[: best.columns]
