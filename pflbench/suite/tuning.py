"""The trials of `pflbench tune`: a grid of a method's hyperparameters, in columns of a suite, on a seed of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from typing_extensions import Unpack

from pflbench.catalog import MethodInfo, parse
from pflbench.errors import UsageError
from pflbench.names import Places
from pflbench.selection import EVERYTHING, Choices, Selection
from pflbench.spec import RunSpec
from pflbench.stages import Shown
from pflbench.suite import resolve
from pflbench.suite.cells import Reading, TableColumn
from pflbench.suite.document import Document, Suite
from pflbench.suite.expand import expand
from pflbench.suite.own import Own
from pflbench.suite.select import SelectedRow, all_known, select_rows, suite_rows
from pflbench.suite.strict import at

Grid = dict[str, list[Any]]

_PREFERRED: tuple[str, ...] = ("personalized", "global", "finetuned", "stored", "sampled", "local")
"""The stage of a row whose scores choose its values is the first of these that it has."""


class Trial(NamedTuple):
    """A point of the grid, and the run that is scored on the validation rows."""

    values: Mapping[str, Any]
    run: RunSpec


@dataclass(frozen=True)
class Search:
    """The trials of a method in a column, the first key of the grid changing slowest.

    They are compared by their scores, read as `reading` says.
    `selected` is the method's row; `guest`: it is none of the suite's. `places`: where the user's own code is.
    """

    column: TableColumn
    selected: SelectedRow
    guest: bool
    grid: Mapping[str, Sequence[Any]]
    reading: Reading
    trials: list[Trial]
    places: Places

    @property
    def name(self) -> str:
        """What the suite's tables call the method."""
        return self.selected.info.name if self.guest else self.selected.key

    @property
    def own(self) -> set[str]:
        """Hyperparameters of which the row has values of its own, stronger than the column's."""
        return set(self.selected.said.hyper)


def check_tuning(suite: Suite) -> None:
    """Reject grids of unknown rows or methods, and values that a method does not take. Raises `UsageError`."""
    document = suite.document()
    rows = suite_rows(suite, document)
    named = {selected.key: selected for selected in rows} | {selected.row.id: selected for selected in rows}
    with at(f"{suite.path}: tune.grid"):
        all_known("method", document.tune.grid, named)
    for name in document.tune.grid:
        _suites_grid(suite, document, named[name])


def searches(
    suite: Suite,
    method: str,
    part: Selection = EVERYTHING,
    *,
    full: bool = False,
    grid: Sequence[str] = (),
    seed: int | None = None,
    **choices: Unpack[Choices],
) -> list[Search]:
    """The searches for a method, one in each column.

    Args:
        suite: The suite.
        method: A row's id, a method that has a single row, or `file.py:Class`.
        part: Columns instead of those that the suite tunes, profile, rounds, precision, and overrides: what these fix
            of the suite's grid is not varied.
        full: All keys of the suite's grid, not only those of its reduced one.
        grid: `key=value,value`, instead of the suite's grid.
        seed: Instead of the suite's for tuning; none of those that it reports.
        **choices: Fields in place of those of `part`.
    """
    part = part.but(**choices)
    document = suite.document(part.profile or "paper")
    tune = document.tune
    seed = tune.seed if seed is None else seed
    if seed in (*document.suite.seeds, *suite.document().suite.seeds):
        raise UsageError(f"Nothing is chosen on seed {seed}, which the suite reports: take another with --seed.")
    if not (part.columns or tune.columns):
        raise UsageError(f"{suite.path} does not say which columns it tunes: name one with --column.")
    own = suite_rows(suite, document)
    selected = _row(own, method, document, suite.own)
    guest = selected not in own
    fixed = set(resolve.overridden(document, part.overrides, [selected])[0].hyper)
    varied = _asked(selected.info, grid, fixed) if grid else _suggested(suite, document, selected, full, fixed)

    rows, methods = ((), (method,)) if guest else ((selected.row.id,), ())
    asked = part.but(rows=rows, methods=methods, columns=part.columns or tune.columns, seeds=[seed])
    found: dict[str, Search] = {}
    for values in product(*varied.values()):
        point = dict(zip(varied, values, strict=True))
        sets = [f"{selected.info.name}.{key}={text(value)}" for key, value in point.items()]
        table = expand(suite, asked, overrides=[*asked.overrides, *sets])
        for column in table.columns:
            cells = {cell.stage: cell for cell in table.cells if cell.column.id == column.id}
            cell = cells[judged_by(list(cells))]
            run, places = cell.runs[0], table.locations.get(cell.runs[0].id, {})
            search = found.setdefault(column.id, Search(column, selected, guest, varied, cell.reading, [], places))
            search.trials.append(Trial(point, run.model_copy(update={"validation": tune.validation})))
    return list(found.values())


def judged_by(stages: Sequence[Shown]) -> Shown:
    """The one of a row's stages whose scores choose its values."""
    return min(stages, key=_PREFERRED.index)


def _row(rows: list[SelectedRow], method: str, document: Document, own: Own) -> SelectedRow:
    is_row = any(selected.row.id == method for selected in rows)
    part = Selection(rows=(method,)) if is_row else Selection(methods=(method,))
    found = select_rows(rows, part, document, own)
    if len(found) > 1:
        raise UsageError(f"{method} has several rows: name one, {' or '.join(selected.row.id for selected in found)}.")
    (selected,) = found
    if selected.said.grid:
        chosen = f"in row {selected.row.id} each client chooses {' and '.join(selected.said.grid)} for itself"
        raise UsageError(f"There is nothing to tune: {chosen}.")
    return selected


def _asked(info: MethodInfo, texts: Sequence[str], fixed: set[str]) -> Grid:
    """The grid of the command line."""
    grid: Grid = {}
    for text in texts:
        with at(f"--grid {text}"):
            key, _, values = (part.strip() for part in text.partition("="))
            if not (key and values):
                raise UsageError("Write key=value,value.")
            if key in grid or key in fixed:
                raise UsageError(f"{key} is given twice.")
            grid[key] = [parse(info, key, value.strip()) for value in values.split(",")]
            resolve.check_distinct(grid[key])
    return grid


def _suggested(suite: Suite, document: Document, selected: SelectedRow, full: bool, fixed: set[str]) -> Grid:
    """The suite's grid of a method, or the part of it that its reduced search varies."""
    tune, give = document.tune, "Give one with --grid key=value,value"
    name, whole = _suites_grid(suite, document, selected)
    if not whole:
        raise UsageError(f"{suite.path} has no grid for {selected.info.name}. {give}.")
    if not full and name not in tune.reduced:
        raise UsageError(
            f"{suite.path} has no reduced grid for {selected.info.name}. {give}, or take all of it: --full."
        )
    varied = {key: whole[key] for key in (whole if full else tune.reduced[name]) if key not in fixed}
    if not varied:
        raise UsageError("There is nothing to tune: --set fixes all of it.")
    return varied


def _suites_grid(suite: Suite, document: Document, selected: SelectedRow) -> tuple[str, Grid]:
    """The key of a row's grid, its id if there is a grid of that name, else its method; and the grid, maybe empty."""
    grids = document.tune.grid
    name = selected.row.id if selected.row.id in grids else selected.key
    return name, resolve.candidates(selected.info, grids.get(name, {}), f"{suite.path}: tune.grid.{name}")


def text(value: Any) -> str:
    """The value as `--set` takes it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
