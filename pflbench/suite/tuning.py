"""The trials of `pflbench tune`: a grid of a method's hyperparameters, in columns of a suite, on a seed of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from typing_extensions import Unpack

from pflbench.catalog import Info, MethodInfo, coerce, parse
from pflbench.errors import UsageError
from pflbench.names import Places
from pflbench.selection import EVERYTHING, Choices, Selection
from pflbench.spec import RunSpec
from pflbench.stages import Shown
from pflbench.suite.cells import Expansion, Reading, TableColumn
from pflbench.suite.columns import FINETUNE_OPTIONS
from pflbench.suite.document import Document, Suite
from pflbench.suite.expand import expand
from pflbench.suite.rows import SelectedRow, select_rows, suite_rows
from pflbench.suite.strict import at
from pflbench.suite.user_supplied import UserSupplied

Points = list[dict[str, Any]]
"""The values of each trial."""
FINETUNE = "finetune."
"""Prefix of a grid's keys that are fine-tuning's, not the method's."""
_PREFERRED: tuple[str, ...] = ("personalized", "global", "finetuned", "stored", "sampled", "local")
"""The stage of a row whose scores choose its values is the first of these that it has."""


class Trial(NamedTuple):
    """A point of the grid, and the runs that are scored on the validation rows: one for each seed."""

    values: Mapping[str, Any]
    runs: tuple[RunSpec, ...]

    @property
    def run(self) -> RunSpec:
        """The first."""
        return self.runs[0]


@dataclass(frozen=True)
class Search:
    """The trials of a method in a column, of a grid with its first key changing slowest.

    They are compared by their scores, read as `reading` says. `selected`: the method's row. `places`:
    paths of user-supplied code.
    """

    column: TableColumn
    selected: SelectedRow
    reading: Reading
    trials: list[Trial]
    places: Places

    @property
    def guest(self) -> bool:
        """True if its row is none of the suite's."""
        return not self.selected.where

    @property
    def grid(self) -> dict[str, list[Any]]:
        """Values of each key that are tried."""
        points = [trial.values for trial in self.trials]
        return {key: list(dict.fromkeys(point[key] for point in points)) for key in points[0]}

    @property
    def name(self) -> str:
        """Name of the method in the suite's tables."""
        return self.selected.info.name if self.guest else self.selected.entry.method

    @property
    def read(self) -> str:
        """The stage and the rounds whose scores choose, for tables."""
        return f"{self.reading.stage}{', last ten scored rounds' if self.reading.read_as == 'last-10' else ''}"


def tuned_rows(suite: Suite, profile: str | None = None) -> list[str]:
    """The ids of the rows that a suite has trials for, in the table's order; of several with one grid, the first.

    Raises `UsageError` if there are none.
    """
    document = suite.document(profile or "paper")
    result: dict[str, str] = {}
    for one in suite_rows(suite, document):
        name, points = suites_points(suite, document, one)
        if points and not one.entry.grid:
            result.setdefault(name, one.row.id)
    if not result:
        raise UsageError("Which method? Write --method ID, a row or method of the suite, or file.py:Class.")
    return list(result.values())


def searches(
    suite: Suite,
    method: str,
    part: Selection = EVERYTHING,
    *,
    grid: Sequence[str] = (),
    **choices: Unpack[Choices],
) -> list[Search]:
    """The searches for a method, one in each column.

    Args:
        suite: The suite.
        method: A row's id, a method that has a single row, or `file.py:Class`.
        part: Columns instead of those that the suite tunes, seeds instead of those for tuning, profile, rounds,
            precision, and overrides: what these fix of the suite's grid is not varied.
        grid: `key=value,value`, instead of the suite's grid. It is tried whole.
        **choices: Fields in place of those of `part`.

    Raises:
        UsageError: Something is unknown or does not fit, or a seed is one that the suite reports.
    """
    part = part.but(**choices)
    document = suite.document(part.profile or "paper")
    tune = document.tune
    seeds = part.seeds or (tune.seed,)
    if reported := {*seeds} & {*document.all_seeds, *suite.document().all_seeds}:
        raise UsageError(
            f"Nothing is chosen on seed {min(reported)}, which the suite reports: take another with --seeds."
        )
    if not (columns := part.columns or tune.columns):
        raise UsageError(f"{suite.path} does not say which columns it tunes: name one with --column.")
    selected = _row(suite_rows(suite, document), method, document, suite.supplied)
    paths = [text.partition("=")[0].strip() for text in part.overrides]
    fixed = {path if path.startswith(FINETUNE) else path.rpartition(".")[2] for path in paths}
    points = _typed(grid, selected, document) if grid else suites_points(suite, document, selected)[1]
    if not points:
        raise UsageError(f"{suite.path} has no grid for {selected.info.name}. Give one with --grid key=value,value.")
    points = _varied(points, fixed)
    rows, methods = ((selected.row.id,), ()) if selected.where else ((), (method,))
    part = part.but(rows=rows, methods=methods, columns=columns, seeds=seeds)
    tables = [expand(suite, part, overrides=(*part.overrides, *_settings(selected, point))) for point in points]
    return [_search(column, selected, points, tables, tune.validation) for column in tables[0].columns]


def _search(
    column: TableColumn, selected: SelectedRow, points: Points, tables: Sequence[Expansion], validation: float
) -> Search:
    """The trials of a row in a column; `tables`: those of each point."""
    stage = judged_by(tables[0].rows[0].stages, selected.entry.stage)
    cells = [next(one for one in table.cells if (one.column, one.stage) == (column, stage)) for table in tables]
    runs = [tuple(run.model_copy(update={"validation": validation}) for run in cell.runs) for cell in cells]
    reading = replace(cells[0].reading, read_as=cells[0].tuned_by)
    places = tables[0].locations.get(cells[0].runs[0].id, {})
    return Search(column, selected, reading, list(map(Trial, points, runs)), places)


def _settings(selected: SelectedRow, point: Mapping[str, Any]) -> list[str]:
    """The values of a point as texts of `--set`."""
    paths = {key: key if key.startswith(FINETUNE) else f"{selected.info.name}.{key}" for key in point}
    return [f"{paths[key]}={set_text(value)}" for key, value in point.items()]


def judged_by(stages: Sequence[Shown], named: Shown | None = None) -> Shown:
    """The one of a row's stages whose scores choose its values: the one that the suite says, if it says one."""
    return named if named is not None and named in stages else min(stages, key=_PREFERRED.index)


def _row(rows: list[SelectedRow], method: str, document: Document, supplied: UserSupplied) -> SelectedRow:
    is_row = any(selected.row.id == method for selected in rows)
    part = Selection(rows=(method,)) if is_row else Selection(methods=(method,))
    result = select_rows(rows, part, document, supplied)
    if len(result) > 1:
        raise UsageError(f"{method} has several rows: name one, {' or '.join(selected.row.id for selected in result)}.")
    (selected,) = result
    if selected.entry.grid:
        chosen = f"in row {selected.row.id} each client chooses {' and '.join(selected.entry.grid)} for itself"
        raise UsageError(f"There is nothing to tune: {chosen}.")
    return selected


def set_text(value: Any) -> str:
    """The value as `--set` takes it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _typed(texts: Sequence[str], selected: SelectedRow, document: Document) -> Points:
    """The points of a grid of the command line, `key=value,value`."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        with at(f"--grid {text}"):
            key, _, values = (part.strip() for part in text.partition("="))
            if not (key and values) or key in grid:
                raise UsageError("Write key=value,value, each key once.")
            info, plain = _of(selected.info, document, key)
            grid[key] = list(dict.fromkeys(parse(info, plain, value.strip()) for value in values.split(",")))
    return _product(grid)


def _varied(points: Points, fixed: set[str]) -> Points:
    """The points without the fixed keys, each once. Raises `UsageError` if all keys are fixed."""
    if fixed.issuperset(points[0]):
        raise UsageError("There is nothing to tune: --set fixes all of it.")
    remaining = [{key: value for key, value in point.items() if key not in fixed} for point in points]
    return [point for i, point in enumerate(remaining) if point not in remaining[:i]]


def _product(grid: Mapping[str, Sequence[Any]]) -> Points:
    """All points of a grid, the first key changing slowest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def suites_points(suite: Suite, document: Document, selected: SelectedRow) -> tuple[str, Points]:
    """The key of a row's grid or points, its id if there are some of that name, else its method; and the points.

    There may be none.
    """
    tune = document.tune
    name = selected.row.id if selected.row.id in {*tune.grid, *tune.points} else selected.entry.method
    kind = "points" if name in tune.points else "grid"
    points = []
    for point in tune.points.get(name) or (_product(tune.grid[name]) if name in tune.grid else ()):
        with at(f"{suite.path}: tune.{kind}.{name}"):
            points.append({key: coerce(*_of(selected.info, document, key), value) for key, value in point.items()})
    return name, points


def _of(info: MethodInfo, document: Document, key: str) -> tuple[Info, str]:
    """Whose a key of a grid is, the method's or fine-tuning's, and what it is called there."""
    if not key.startswith(FINETUNE):
        return info, key
    if document.evaluation.finetune is None:
        raise UsageError("The suite has no fine-tuning.")
    return FINETUNE_OPTIONS, key.removeprefix(FINETUNE)
