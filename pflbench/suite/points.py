"""Points of `pflbench tune`: a grid of a suite or of the command line, or points that a suite lists."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any

from pflbench.catalog import Info, MethodInfo, coerce, parse
from pflbench.errors import UsageError
from pflbench.suite import resolve
from pflbench.suite.document import Document, Suite
from pflbench.suite.select import SelectedRow
from pflbench.suite.strict import at

Grid = dict[str, list[Any]]
Points = list[dict[str, Any]]
"""The values of each trial."""
FINETUNE = "finetune."
"""Prefix of a grid's keys that are fine-tuning's, not the method's."""
_GIVE = "Give one with --grid key=value,value"


@dataclass(frozen=True)
class Varied:
    """Points of a row's trials; `fixed`: keys that the selection gives a value."""

    suite: Suite
    document: Document
    selected: SelectedRow
    fixed: set[str]

    @property
    def name(self) -> str:
        """Key of the row's grid in the suite."""
        return suites_points(self.suite, self.document, self.selected)[0]

    def asked(self, texts: Sequence[str]) -> Points:
        """The grid of the command line."""
        grid: Grid = {}
        for text in texts:
            with at(f"--grid {text}"):
                key, _, values = (part.strip() for part in text.partition("="))
                if not (key and values):
                    raise UsageError("Write key=value,value.")
                if key in grid or key in self.fixed:
                    raise UsageError(f"{key} is given twice.")
                info, plain = _of(self.selected.info, self.document, key)
                grid[key] = [parse(info, plain, value.strip()) for value in values.split(",")]
                resolve.check_distinct(grid[key])
        return _product(grid)

    def suggested(self, full: bool) -> Points:
        """The suite's trials of the row, or those of its reduced grid, without what is fixed."""
        name, points = suites_points(self.suite, self.document, self.selected)
        if not points:
            raise UsageError(f"{self.suite.path} has no grid for {self.selected.info.name}. {_GIVE}.")
        keys = [key for key in self._keys(name, list(points[0]), full) if key not in self.fixed]
        if not keys:
            raise UsageError("There is nothing to tune: --set fixes all of it.")
        if name in self.document.tune.grid:
            return _product({key: list(dict.fromkeys(point[key] for point in points)) for key in keys})
        left = [{key: point[key] for key in keys} for point in points]
        return [point for i, point in enumerate(left) if point not in left[:i]]

    def _keys(self, name: str, every: list[str], full: bool) -> list[str]:
        """Keys that a search varies, of all that the suite has trials of."""
        tune = self.document.tune
        if full or name in tune.points or (tune.halving and name not in tune.reduced):
            return every
        if name not in tune.reduced:
            method = self.selected.info.name
            raise UsageError(f"{self.suite.path} has no reduced grid for {method}. {_GIVE}, or take all of it: --full.")
        return tune.reduced[name]


def _product(grid: Grid) -> Points:
    """All points of a grid, the first key changing slowest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def suites_points(suite: Suite, document: Document, selected: SelectedRow) -> tuple[str, Points]:
    """The key of a row's grid or points, its id if there are some of that name, else its method; and the points.

    There may be none. With halving, rows are tuned each for itself: what goes by the id of one is not another's.
    """
    tune = document.tune
    others = {row.id for row in document.row} if tune.halving else set()
    own = selected.row.id in {*tune.grid, *tune.points} or selected.key in others
    name = selected.row.id if own else selected.key
    place, grid, points = f"{suite.path}: tune.grid.{name}", Grid(), []
    for key, entry in tune.grid.get(name, {}).items():
        prefix, _, plain = key.rpartition(".")
        with at(place) if prefix else nullcontext():
            info, _ = _of(selected.info, document, key)
        grid[key] = resolve.candidates(info, {plain: entry}, f"{place}.{prefix}" if prefix else place)[plain]
    for i, point in enumerate(tune.points.get(name, ())):
        values = {}
        for key, value in point.items():
            with at(f"{suite.path}: tune.points.{name}[{i}].{key}"):
                info, plain = _of(selected.info, document, key)
                values[key] = coerce(info, plain, value)
        points.append(values)
    return name, points or (_product(grid) if grid else [])


def _of(info: MethodInfo, document: Document, key: str) -> tuple[Info, str]:
    """Whose a key of a grid is, the method's or fine-tuning's, and what it is called there."""
    if not key.startswith(FINETUNE):
        return info, key
    if document.evaluation.finetune is None:
        raise UsageError("The suite has no fine-tuning.")
    return resolve.FINETUNE, key.removeprefix(FINETUNE)
