"""Explanation of one cell of a table: its runs, its settings with their sources, its trials and departures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pflbench.catalog import MethodInfo, shipped_method
from pflbench.errors import UsageError, unknown
from pflbench.names import Places, is_reference, split_reference, without_folder
from pflbench.report import table_facts
from pflbench.report.extra_rows import extra
from pflbench.report.holdings import FederationSummary
from pflbench.report.layout import lay_out
from pflbench.report.methods import Docstring, docstring_of, of_method
from pflbench.report.reading import Shelf, readable
from pflbench.report.table import CellValue
from pflbench.report.text import number
from pflbench.report.trials import StoredSearch, stored_searches
from pflbench.selection import EVERYTHING, Selection
from pflbench.spec import RunSpec
from pflbench.store import Store, Stored
from pflbench.store.requests import requests_of
from pflbench.suite.cells import Cell, ColumnHead, Expansion, unread
from pflbench.suite.document import Document, Suite
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.scoped import Departure


class Setting(NamedTuple):
    """Hyperparameter or setting of a run: its value, the source of that (empty: unknown), and its meaning."""

    name: str
    value: str
    source: str
    meaning: str = ""


@dataclass(frozen=True)
class Explanation:
    """Explanation of a cell.

    Attributes:
        suite: The suite that it stands in.
        part: Which runs of the suite are meant.
        whole: Its column, with all rows.
        cells: Those of its row there, one for each stage that the row is shown at.
        cell: Itself.
        value: Its number.
        shelf: The stored runs.
        federation: Summary of its federation; a text if it cannot be built here, None if it was not asked for.
        version: Which version of its method is shown, where there are several or its file has changed.
        shown: Number that the table shows: its last round's also where `value` is the best one's, as the paper's is.
    """

    suite: Suite
    part: Selection
    whole: Expansion
    cells: Sequence[Cell]
    cell: Cell
    value: CellValue
    shelf: Shelf
    federation: FederationSummary | str | None
    version: str = ""
    shown: CellValue | None = None

    @cached_property
    def table(self) -> Expansion:
        """The table, reduced to the cell."""
        return replace(self.whole, rows=(self.cell.row,), columns=(self.cell.column,), cells=(self.cell,), derived=())

    @property
    def head(self) -> ColumnHead:
        """The column."""
        return self.whole.head(self.cell)

    @property
    def named(self) -> bool:
        """True if the suite names the row; False for an extra row."""
        return self.cell.row in self.whole.rows

    @property
    def run(self) -> RunSpec:
        """The run of its first seed."""
        return self.cell.needed[0]

    @property
    def ran(self) -> list[Stored]:
        """Its runs that are stored. Where clients choose from a grid: those of all points."""
        return [self.shelf.stored[run.id] for run in self.cell.needed if run.id in self.shelf.stored]

    @property
    def missing(self) -> list[int]:
        """Seeds without a finished run."""
        return [runs[0].seed for runs in self.cell.by_seed if runs[0].seed not in self.value.seeds]

    @property
    def of_the_data_here(self) -> bool:
        """True if its runs were computed on the data of `federation`."""
        hashes = {str(one.provenance.get("data_hash") or "") for one in self.ran}
        return isinstance(self.federation, FederationSummary) and self.federation.hash in hashes

    @property
    def method(self) -> MethodInfo | None:
        """The runs' method; None if it is user-supplied."""
        return shipped_method(self.run.method.name)

    @property
    def docstring(self) -> Docstring | None:
        """The method's docstring, of a user-supplied one as stored; None if its source is not here."""
        name = self.run.method.name
        if not is_reference(name):
            return of_method(name)
        source = stored_source(self.cell, self.shelf)
        return None if source is None else docstring_of(source, split_reference(name)[1])

    @property
    def sends(self) -> bool:
        """True if clients send something to the server, as far as the method and the runs' costs tell."""
        if self.method is not None and self.method.stages.global_model in ("initial", "none"):
            return False
        return all(one.provenance.get("floats_up") != 0 for one in self.ran)

    @cached_property
    def reading(self) -> list[str]:
        """Sentences on how the number is read from the scores."""
        table, grid = self.table, dict.fromkeys(self.table.places, self.value)
        lines = [
            table_facts.scored_models(table.cells),
            table_facts.clients_line(table),
            table_facts.seed_line(table.cells, [self.value], table.spread if table.shows_spread else None),
            table_facts.rounds_trained(table),
            table_facts.unweighted_means(table, grid),
            table_facts.left_out(table, grid),
            *table_facts.choices(table),
        ]
        return [line for line in lines if line]

    @cached_property
    def hyper(self) -> list[Setting]:
        """The method's hyperparameters. A grid has all of its values."""
        return hyperparameters(self.cell, self.method)

    @cached_property
    def settings(self) -> list[Setting]:
        """Settings of the column, and of test-time fine-tuning if the cell is read after it."""
        return shared_settings(self.cell, self.method)

    def printed(self, mean: float, spread: float | None = None) -> str:
        """A number with the table's decimals."""
        return number(mean, spread, self.table.layout.decimals)

    def of_source(self, source: str) -> list[str]:
        """The names of the hyperparameters and settings whose values come from there."""
        return [one.name for one in (*self.hyper, *self.settings) if one.source == source]

    @cached_property
    def trials(self) -> list[StoredSearch]:
        """Stored searches behind the tuned values."""
        return stored_searches(self.cell, [cell.stage for cell in self.cells], self.of_source("tuned"), self.shelf)

    @cached_property
    def followed(self) -> bool:
        """True if federation, network and batches are those of the suite's whole protocol.

        Of others its departures do not hold, and none is listed.
        """
        if not self.named:
            return True
        paper = expand(self.suite, rows=[self.cell.row.id], columns=[self.cell.column.id])
        apart = {"seed", "rounds", "method", "scoring", "precision"}
        ours, whole = (cell.runs[0].model_dump(exclude=apart) for cell in (self.cell, paper.cells[0]))
        return ours == whole

    @cached_property
    def departures(self) -> list[Departure]:
        """Departures from the paper's text, as the suite lists them."""
        return self.whole.departures_of(self.cell) if self.named and self.followed else []

    @property
    def notes(self) -> tuple[str, ...]:
        """The suite's, on this row and column."""
        place = self.part.but(rows=[self.cell.row.id], columns=[self.cell.column.id])
        return expand(self.suite, place).notes if self.named else ()


_SHARED = (
    *("model", "clients", "training_clients", "cohort", "query", "arrival", "weights"),
    *("rounds", "batch", "batches", "augment", "tail", "tiny_client"),
)
"""Settings that a column's runs share, besides dataset and partition."""


def stored_source(cell: Cell, shelf: Shelf) -> str | None:
    """The source of a user's method as the first stored run of a cell has it; None if none has."""
    there = (shelf.stored[run.id].provenance for run in cell.needed if run.id in shelf.stored)
    return next((source for told in there if isinstance(source := told.get("method_source"), str)), None)


def hyperparameters(cell: Cell, method: MethodInfo | None) -> list[Setting]:
    """Hyperparameters of a cell's method with their sources. A grid has all of its values."""
    fields = method.fields if method else {}
    points = [choice.run.method.hyper for choice in cell.choices[0]] if cell.choices else []
    found = []
    for key in cell.needed[0].method.hyper:
        values = dict.fromkeys(value_text(point.get(key)) for point in points or [cell.needed[0].method.hyper])
        meaning = fields[key].doc if key in fields else ""
        found.append(Setting(key, " or ".join(values), cell.sources.get(key, ""), meaning))
    return found


def shared_settings(cell: Cell, method: MethodInfo | None) -> list[Setting]:
    """Settings of a cell's column, and of test-time fine-tuning if the cell is read after it."""
    run, sources, found = cell.needed[0], cell.sources, dict[str, Any]()
    for kind, named in (("dataset", run.dataset), ("partition", run.partition)):
        found |= {kind: named.name, **{f"{kind}.{key}": value for key, value in named.options.items()}}
    found |= {key: getattr(run, key) for key in _SHARED}
    if cell.stage == "finetuned" and run.scoring.finetune is not None:
        rule = run.scoring.finetune
        found |= {f"finetune.{key}": getattr(rule, key) for key in ("steps", "lr", "decay", "every")}
    left = unread(run, method)
    return [
        Setting(key, value_text(value), sources.get(key) or sources.get(key.partition(".")[0], ""))
        for key, value in found.items()
        if key not in left
    ]


def explain_cell(
    suite: str,
    row: str,
    column: str,
    store: Store,
    part: Selection = EVERYTHING,
    *,
    stage: str | None = None,
    root: Path | None = None,
    look: Callable[[RunSpec, Path, Places], FederationSummary | str] | None = None,
) -> Explanation:
    """Explanation of a cell.

    Args:
        suite: A suite's name, or its file.
        row: A row's id or title; of a row that the suite lacks, its title or its method, `file.py:Class`.
        column: A column's id, or its title with the group's.
        store: Where the runs are.
        part: Profile, rounds, seeds and overrides: which of its runs.
        stage: Where the table shows the row at several stages: one of them, by its name or by what the table calls it.
            Default: the first.
        root: Data root; None: only stored runs tell the content of data.
        look: Builds the federation of a run from the data root (`running.federations.facts`); None: no facts of it.

    Raises:
        UsageError: There is no such suite, row, column or stage, or what is set does not fit.
    """
    content = load(suite, readable(store, root))
    document = content.document(part.profile or "paper")
    if not document.row:
        raise UsageError(f"{content.name} has no cells of runs to explain.")
    for derived in document.derived:
        if derived.id in (row, column):
            raise UsageError(f"{derived.id} is the difference of {' and '.join(derived.of)}: explain these.")
    row = {one.title.lower(): one.id for one in document.row if one.name}.get(row.lower(), row)
    table = expand(content, part, columns=[_column(document, column)])
    shelf = Shelf(store)
    beside = extra(table, shelf.stored.values(), requests_of(store))
    cells = _cells_of(table, row, beside.cells)
    cell = next((one for one in cells if stage in (None, one.stage, table.head(one).label)), None)
    if cell is None:
        raise unknown("stage", str(stage), [one.stage for one in cells])
    finished = lay_out(table, store)
    (numbers,) = (one.cells for one in (*finished.rows, *finished.extra) if one.id == cell.row.id)
    value = numbers[finished.columns.index(table.head(cell))]
    assert value is not None  # since the cell's runs are scored at its stage
    run = cell.needed[0]
    found = look(run, root, table.locations.get(run.id, {})) if root and look else None
    note = beside.notes.get(run.method.name, "")
    return Explanation(content, part, table, cells, cell, value.compared, shelf, found, note, value)


def _column(document: Document, column: str) -> str:
    ids = [c.id for c in document.column]
    called = {f"{c.group} {c.title}".strip().lower(): c.id for c in document.column} | {id: id for id in ids}
    if column not in called and column.lower() not in called:
        raise unknown("column", column, ids)
    return called.get(column) or called[column.lower()]


def _cells_of(table: Expansion, row: str, extra: Sequence[Cell]) -> list[Cell]:
    """The cells of a row, one for each stage that it is shown at; `extra`: those of extra rows."""
    titles = {one.title.lower(): one.id for one in reversed(table.rows)}  # of several with a title, the first
    titles |= {one.id: one.id for one in table.rows}
    found = titles.get(row, titles.get(row.lower()))
    if found is not None:
        cells = [cell for cell in table.cells if cell.row.id == found and cell.has_scores]
        if not cells:
            raise UsageError(f"The table shows nothing of row {found} in this column.")
        return cells
    names = {row, without_folder(row)}
    alike = [cell.row for cell in extra if cell.row.title == row or cell.row.method in names]
    if not alike:
        raise unknown("row", row, [*(one.id for one in table.rows), *(cell.row.title for cell in extra)])
    return [cell for cell in extra if cell.row == alike[0]]


def value_text(value: Any) -> str:
    """A value as it is printed."""
    return f"{value:g}" if isinstance(value, float) else str(value)
