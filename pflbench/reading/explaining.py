"""Everything that is known of one cell of a table: what its number rests on, and how it stands beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pflbench.catalog import MethodInfo, describe
from pflbench.errors import PflbenchError, UsageError, unknown
from pflbench.names import is_reference, split_reference, without_folder
from pflbench.reading import docstring
from pflbench.reading.docstring import Said
from pflbench.reading.facts import Facts, facts
from pflbench.reading.trials import Tried, tried
from pflbench.report import footer
from pflbench.report.layout import lay_out
from pflbench.report.reading import Shelf, readable
from pflbench.report.table import CellValue, Table
from pflbench.report.unlisted import extra_rows
from pflbench.selection import EVERYTHING, Selection
from pflbench.spec import RunSpec
from pflbench.store import Store, Stored
from pflbench.store.asked import askers
from pflbench.suite.cells import Cell, ColumnHead, Departure, Expansion
from pflbench.suite.document import Document, Suite
from pflbench.suite.expand import expand
from pflbench.suite.load import load


class Given(NamedTuple):
    """A hyperparameter or setting: its value, where that comes from (empty: nobody says), and what it is."""

    name: str
    value: str
    source: str
    meaning: str = ""


@dataclass(frozen=True)
class Explanation:
    """What is known of a cell.

    Attributes:
        table: What the cell is a part of, reduced to it; `cell` and `value` are its input and its number.
        head: The column.
        further: Other stages at which the row is shown in this column, by what the table calls them.
        ran: Its runs that are stored. Where clients choose from a grid: those of all points.
        reading: How the number is read from the scores, in sentences.
        hyper: The method's hyperparameters. A grid has all of its values.
        settings: All else that has a source.
        trials: Behind the tuned values.
        departures: From the paper's text, as the suite lists them.
        method: What the method's docstring says of the method's own paper; None if its source is not there.
        notes: The suite's, on this row and column.
        facts: Of the federation; a text says what is missing for them, None: nobody looked.
        named: Whether the suite names the row, as opposed to an extra row.
        sends: Whether clients send anything to the server, as far as the method and the runs' costs tell.
        part: Which runs of the suite are meant.
        followed: Whether federation, network and batches are those of the suite's whole protocol: of others its
            departures do not hold, and none is listed.
    """

    table: Expansion
    cell: Cell
    value: CellValue
    head: ColumnHead
    further: tuple[str, ...]
    ran: tuple[Stored, ...]
    reading: tuple[str, ...]
    hyper: tuple[Given, ...]
    settings: tuple[Given, ...]
    trials: tuple[Tried, ...]
    departures: tuple[Departure, ...]
    method: Said | None
    notes: tuple[str, ...]
    facts: Facts | str | None
    named: bool
    sends: bool
    part: Selection
    followed: bool

    @property
    def missing(self) -> list[int]:
        """Seeds without a finished run."""
        return [runs[0].seed for runs in self.cell.by_seed if runs[0].seed not in self.value.seeds]

    @property
    def data_hashes(self) -> set[str]:
        """What identifies the data that its runs were computed on."""
        return {str(one.provenance.get("data_hash") or "") for one in self.ran}

    @property
    def run(self) -> RunSpec:
        """The run of its first seed."""
        return self.cell.needed[0]

    def of_source(self, *sources: str) -> list[str]:
        """The names of the hyperparameters and settings whose values come from these."""
        return [given.name for given in (*self.hyper, *self.settings) if given.source in sources]


def explain(
    suite: str,
    row: str,
    column: str,
    store: Store,
    part: Selection = EVERYTHING,
    *,
    stage: str | None = None,
    root: Path | None = None,
) -> Explanation:
    """What is known of a cell.

    Args:
        suite: A suite's name, or its file.
        row: A row's id or title; of a row that the suite lacks, its title or its method, `file.py:Class`.
        column: A column's id, or its title with the group's.
        store: Where the runs are.
        part: Profile, rounds, seeds and overrides: which of its runs.
        stage: Where the table shows the row at several stages: one of them, by its name or by what the table calls it.
            Default: the first.
        root: Where the datasets are, to build the federation from; None: that is not done.

    Raises:
        UsageError: There is no such suite, row, column or stage, or what is set does not fit.
    """
    content = load(suite, readable(store, root))
    document = content.document(part.profile or "paper")
    _check_explainable(content.name, document, row, column)
    table = expand(content, part, columns=[_column(document, column)])
    shelf = Shelf(store)
    beside, _ = extra_rows(table, shelf.specs, askers(store))
    cells = _cells_of(table, row, beside)
    cell = _at_stage(table, cells, stage)
    value = _value(lay_out(table, store), table.place(cell))
    named = cell.row in table.rows
    reduced = replace(table, rows=(cell.row,), columns=(cell.column,), cells=(cell,), derived=())
    followed = not named or _followed(content, cell)
    departures, notes = _of_suite(content, part, cell) if named else ((), ())
    hyper, settings = _hyper(cell), _settings(cell)
    tuned = [given.name for given in (*hyper, *settings) if given.source == "tuned"]
    done = [run for run in cell.needed if run.id in shelf.stored]
    return Explanation(
        table=reduced,
        cell=cell,
        value=value,
        head=_head(table, cell),
        further=tuple(_head(table, c).label or c.stage for c in cells if c is not cell),
        ran=tuple(shelf.stored[run.id] for run in done),
        reading=_reading(reduced, value),
        hyper=hyper,
        settings=settings,
        trials=tuple(tried(cell, [c.stage for c in cells], tuned, shelf)),
        departures=departures if followed else (),
        method=_method(cell.needed[0], shelf),
        notes=notes,
        facts=facts(cell.needed[0], root, table.locations.get(cell.needed[0].id, {})) if root else None,
        named=named,
        sends=_sends(cell.needed[0], done, shelf),
        part=part,
        followed=followed,
    )


def _of_suite(content: Suite, part: Selection, cell: Cell) -> tuple[tuple[Departure, ...], tuple[str, ...]]:
    """The suite's departures that concern a cell of its own, and its notes on row and column."""
    table = expand(content, part, rows=[cell.row.id], columns=[cell.column.id])
    return tuple(one for one in table.departures if one.concerns(cell)), table.notes


def _check_explainable(name: str, document: Document, row: str, column: str) -> None:
    """Raise `UsageError` for a suite without runs, and for a row or column of differences."""
    if document.statistics is not None or not document.row:
        raise UsageError(f"{name} has no cells of runs to explain.")
    for derived in document.derived:
        if derived.id in (row, column):
            raise UsageError(f"{derived.id} is the difference of {' and '.join(derived.of)}: explain these.")


def _value(finished: Table, place: tuple[str, str]) -> CellValue:
    """The value at a place, by the ids of row and head. It is there where the cell's runs are scored at its stage."""
    row = next(row for row in (*finished.rows, *finished.extra) if row.id == place[0])
    value = next(value for head, value in zip(finished.columns, row.cells, strict=True) if head.id == place[1])
    assert value is not None
    return value


def _head(table: Expansion, cell: Cell) -> ColumnHead:
    id = table.place(cell)[1]
    return next(head for head in table.heads if head.id == id)


def _followed(content: Suite, told: Cell) -> bool:
    """Whether a cell's runs have the federation, network and batches of the suite's whole protocol."""
    cells = expand(content, rows=[told.row.id], columns=[told.column.id]).cells
    apart = {"seed", "rounds", "method", "scoring", "precision"}
    ours, whole = (cell.runs[0].model_dump(exclude=apart) for cell in (told, cells[0]))
    return ours == whole


def _sends(run: RunSpec, done: Sequence[RunSpec], shelf: Shelf) -> bool:
    """Whether somebody trains a global model, as far as the method is known and its runs' costs tell."""
    info = _described(run)
    if info is not None and info.stages.global_model == "none":
        return False
    return all(shelf.stored[run.id].provenance.get("floats_up") != 0 for run in done)


def _column(document: Document, column: str) -> str:
    called = {f"{c.group} {c.title}".strip().lower(): c.id for c in document.column}
    ids = [c.id for c in document.column]
    if column not in ids and column.lower() not in called:
        raise unknown("column", column, ids)
    return column if column in ids else called[column.lower()]


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


def _at_stage(table: Expansion, cells: Sequence[Cell], stage: str | None) -> Cell:
    """The one of a row's cells that shows a stage, by its name or by what the table calls it; None: the first."""
    if stage is None:
        return cells[0]
    for cell in cells:
        if stage in (cell.stage, _head(table, cell).label):
            return cell
    raise unknown("stage", stage, [cell.stage for cell in cells])


def _hyper(cell: Cell) -> tuple[Given, ...]:
    run = cell.needed[0]
    info = _described(run)
    meanings = {key: field.doc for key, field in info.fields.items()} if info else {}
    points = [choice.run.method.hyper for choice in cell.choices[0]] if cell.choices else [run.method.hyper]
    found = []
    for key in run.method.hyper:
        values = list(dict.fromkeys(written(point.get(key)) for point in points))
        found.append(Given(key, " or ".join(values), cell.sources.get(key, ""), meanings.get(key, "")))
    return tuple(found)


def _described(run: RunSpec) -> MethodInfo | None:
    """The run's method; None for a user's whose file is not here."""
    try:
        return describe(run.method.name)
    except PflbenchError:
        return None


def _settings(cell: Cell) -> tuple[Given, ...]:
    """What all methods of the column share, and test-time fine-tuning where the cell is read after it."""
    run, info = cell.needed[0], _described(cell.needed[0])
    unread = run.method.hyper.keys() | ({"batch"} if info and not info.minibatches else set())
    found: dict[str, Any] = {}
    for kind, named in (("dataset", run.dataset), ("partition", run.partition)):
        found[kind] = named.name
        found |= {f"{kind}.{key}": value for key, value in named.options.items()}
    of_clients = "clients", "training_clients", "cohort", "query", "arrival", "weights"
    for key in ("model", *of_clients, "rounds", "batch", "batches", "augment", "tail", "tiny_client"):
        found[key] = getattr(run, key)
    if cell.stage == "finetuned" and run.scoring.finetune is not None:
        rule = run.scoring.finetune
        found |= {f"finetune.{key}": getattr(rule, key) for key in ("steps", "lr", "decay", "every")}
    return tuple(
        Given(key, written(value), cell.sources.get(key) or cell.sources.get(key.partition(".")[0], ""))
        for key, value in found.items()
        if key not in unread  # a value of the method's own is named above
    )


def written(value: Any) -> str:
    """A value as it is printed."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _reading(table: Expansion, value: CellValue) -> tuple[str, ...]:
    grid = dict.fromkeys(table.places, value)
    lines = [
        footer.selection(table.cells),
        footer.clients(table),
        footer.seeds(table.cells, [value], table.spread if table.shows_spread else None),
        footer.rounds(table),
        footer.plain(table, grid),
        footer.left_out(table, grid),
        *footer.choices(table, grid),
    ]
    return tuple(line for line in lines if line)


def _method(run: RunSpec, shelf: Shelf) -> Said | None:
    """What the method's docstring says; a user's method is stored with its runs."""
    name = run.method.name
    stored = shelf.stored.get(run.id)
    if is_reference(name) and stored is not None and stored.provenance.get("method_source"):
        return docstring.of_source(str(stored.provenance["method_source"]), split_reference(name)[1])
    return docstring.of_method(name)
