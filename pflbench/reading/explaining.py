"""Everything that is known of one cell of a table: what its number rests on, and how it stands beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pflbench.catalog import describe
from pflbench.errors import PflbenchError, UsageError, unknown
from pflbench.names import is_reference, split_reference
from pflbench.reading import docstring
from pflbench.reading.docstring import Said
from pflbench.reading.facts import Facts, facts
from pflbench.reading.runs import Listed, listed
from pflbench.reading.trials import Tried, tried
from pflbench.report import rules
from pflbench.report.extra import extra_rows
from pflbench.report.inputs import readable, table_input
from pflbench.report.layout import lay_out
from pflbench.report.shelf import Shelf
from pflbench.report.table import CellInput, CellValue, ColumnHead, RowHead, TableInput
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.cells import Cell, Departure
from pflbench.suite.document import Document
from pflbench.suite.expand import expand
from pflbench.suite.family import named_by_family
from pflbench.suite.load import load


class Given(NamedTuple):
    """A hyperparameter or setting: its value, where that comes from (empty: nobody says), and what it is."""

    name: str
    value: str
    source: str
    meaning: str = ""


class Ran(NamedTuple):
    """A stored run of the cell, its device and data, and the accuracy of its seed in percent if it counts."""

    seed: int
    accuracy: float | None
    run: Listed
    device: str
    data_hash: str


@dataclass(frozen=True)
class Explanation:
    """What is known of a cell.

    Attributes:
        table: What the cell is a part of, reduced to it; `cell` and `value` are its input and its number.
        row: Id and title.
        head: The column.
        further: Other stages at which the row is shown in this column, by what the table calls them.
        missing: Seeds without a finished run.
        ran: Its runs that are stored. Where clients choose from a grid: those of all points.
        reading: How the number is read from the scores, in sentences.
        hyper: The method's hyperparameters. A grid has all of its values.
        settings: All else that has a source.
        trials: Behind the tuned values.
        follows: What the runs follow, in words.
        departures: From the paper's text, as the suite lists them.
        method: What the method's docstring says of the method's own paper; None if its source is not there.
        notes: The suite's, on this row and column.
        facts: Of the federation; a text says what is missing for them, None: nobody looked.
        named: Whether the suite names the row, as opposed to one of the user's.
        printed: What the ± that the paper printed is; empty if the suite does not say.
        sends: Whether clients send anything to the server, as far as the costs stored with the runs tell.
    """

    table: TableInput
    cell: CellInput
    value: CellValue
    row: RowHead
    head: ColumnHead
    further: tuple[str, ...]
    missing: tuple[int, ...]
    ran: tuple[Ran, ...]
    reading: tuple[str, ...]
    hyper: tuple[Given, ...]
    settings: tuple[Given, ...]
    trials: tuple[Tried, ...]
    follows: str
    departures: tuple[Departure, ...]
    method: Said | None
    notes: tuple[str, ...]
    facts: Facts | str | None
    named: bool
    printed: str
    sends: bool

    @property
    def run(self) -> RunSpec:
        """The run of its first seed."""
        return self.cell.asked[0]

    def of_source(self, *sources: str) -> list[str]:
        """The names of the hyperparameters and settings whose values come from these."""
        return [given.name for given in (*self.hyper, *self.settings) if given.source in sources]


def explain(
    suite: str,
    row: str,
    column: str,
    store: Store,
    *,
    profile: str = "paper",
    stage: str | None = None,
    root: Path | None = None,
) -> Explanation:
    """What is known of a cell.

    Args:
        suite: A suite's name, or its file.
        row: A row's id or title; of a row that the suite lacks, its title or its method, `file.py:Class`.
        column: A column's id, or its title with the group's.
        store: Where the runs are.
        profile: Of the suite.
        stage: Where the table shows the row at several stages: one of them, by its name or by what the table calls it.
            Default: the first.
        root: Where the datasets are, to build the federation from; None: that is not done.

    Raises:
        UsageError: There is no such suite, row, column or stage.
    """
    asked = load(suite, readable(store, root))
    document = asked.document(profile)
    if document.statistics is not None or not document.row:
        raise UsageError(f"{asked.name} has no cells of runs to explain.")
    for derived in document.derived:
        if derived.id in (row, column):
            raise UsageError(f"{derived.id} is the difference of {' and '.join(derived.of)}: explain these.")
    id = _column(document, column)
    whole = expand(asked, profile=profile, columns=[id])
    table = table_input(whole, elsewhere=named_by_family(whole, asked.own))
    shelf = Shelf(store)
    cells = _cells_of(table, row, shelf)
    heads = {head.id: head for head in table.columns}
    cell = _at_stage(cells, heads, stage)
    rows = {**{r.id: r.title for r in table.rows}, **{c.row: t for c, t in _extra(table, shelf)}}
    mine = RowHead(cell.row, rows[cell.row])
    finished = lay_out(table, store)
    place = next(number for number, head in enumerate(finished.columns) if head.id == cell.column)
    value = next(r.cells[place] for r in (*finished.rows, *finished.extra) if r.id == cell.row)
    assert value is not None  # the cell has scores
    named = cell.row in {r.id for r in table.rows}
    own = expand(asked, profile=profile, rows=[cell.row] if named else None, columns=[id])
    told = next((c for c in own.cells if named and c.stage == cell.reading.stage), None)
    reduced = replace(
        table, rows=(mine,), columns=(heads[cell.column],), cells={(cell.row, cell.column): cell}, derived=()
    )
    known = None if root is None else facts(cell.asked[0], root, whole.locations.get(cell.asked[0].id, {}))
    hyper, settings = _hyper(cell, told), _settings(cell, told)
    if isinstance(known, Facts) and not known.minibatches:
        settings = tuple(given for given in settings if given.name != "batch")
    tuned = [given.name for given in (*hyper, *settings) if given.source == "tuned"]
    done = [run for runs in cell.needed for run in runs if run.id in shelf.stored]
    return Explanation(
        table=reduced,
        cell=cell,
        value=value,
        row=mine,
        head=heads[cell.column],
        further=tuple(heads[c.column].label or c.reading.stage for c in cells if c is not cell),
        missing=tuple(runs[0].seed for runs in cell.needed if runs[0].seed not in value.seeds),
        ran=tuple(_ran(run, value, store, shelf) for run in done),
        reading=_reading(reduced, value),
        hyper=hyper,
        settings=settings,
        trials=tuple(tried(cell, [c.reading.stage for c in cells], tuned, shelf)) if tuned else (),
        follows=told.follows if told else "",
        departures=tuple(d for d in own.departures if told and d.concerns(told)),
        method=_method(cell.asked[0], shelf),
        notes=own.notes if named else (),
        facts=known,
        named=named,
        printed=whole.spread.paper,
        sends=all(shelf.stored[run.id].provenance.get("floats_up") != 0 for run in done),
    )


def _column(document: Document, column: str) -> str:
    called = {c.id: c.id for c in document.column}
    called |= {f"{c.group} {c.title}".strip().lower(): c.id for c in document.column}
    found = called.get(column) or called.get(column.lower())
    if found is None:
        raise unknown("column", column, [c.id for c in document.column])
    return found


def _extra(table: TableInput, shelf: Shelf) -> list[tuple[CellInput, str]]:
    """The cells of rows that the suite lacks, each with the row's title."""
    rows, _ = extra_rows(table, [stored.spec for stored in shelf.stored.values()])
    return [(cell, row.title) for row in rows for cell in row.cells.values()]


def _cells_of(table: TableInput, row: str, shelf: Shelf) -> list[CellInput]:
    """The cells of a row, one for each stage that it is shown at."""
    titles: dict[str, list[str]] = {}
    for one in table.rows:
        titles.setdefault(one.title.lower(), []).append(one.id)
    ids = {one.id for one in table.rows}
    found = row if row in ids else next(iter(titles.get(row.lower(), ())), None)
    if found is not None:
        cells = [cell for cell in table.cells.values() if cell.row == found and cell.has_scores]
        if not cells:
            raise UsageError(f"The table shows nothing of row {found} in this column.")
        return cells
    others = _extra(table, shelf)
    last = f"{split_reference(row)[0].rpartition('/')[2]}:{split_reference(row)[1]}" if is_reference(row) else row
    own = [
        cell for cell, title in others if row in (title, cell.asked[0].method.name) or last == cell.asked[0].method.name
    ]
    if not own:
        raise unknown("row", row, [*ids, *(title for _, title in others)])
    return [cell for cell in own if cell.row == own[0].row]


def _at_stage(cells: Sequence[CellInput], heads: Mapping[str, ColumnHead], stage: str | None) -> CellInput:
    if stage is None:
        return cells[0]
    for cell in cells:
        if stage in (cell.reading.stage, heads[cell.column].label):
            return cell
    raise unknown("stage", stage, [cell.reading.stage for cell in cells])


def _hyper(cell: CellInput, told: Cell | None) -> tuple[Given, ...]:
    run = cell.asked[0]
    sources = told.sources if told else {}
    try:
        meanings = {key: field.doc for key, field in describe(run.method.name).fields.items()}
    except PflbenchError:  # a user's file that is not here
        meanings = {}
    points = [choice.run.method.hyper for choice in cell.choices[0]] if cell.choices else [run.method.hyper]
    found = []
    for key in run.method.hyper:
        values = list(dict.fromkeys(_text(point.get(key)) for point in points))
        found.append(Given(key, " or ".join(values), sources.get(key, ""), meanings.get(key, "")))
    return tuple(found)


def _settings(cell: CellInput, told: Cell | None) -> tuple[Given, ...]:
    """What all methods of the column share, and test-time fine-tuning where the cell is read after it."""
    run = cell.asked[0]
    sources = told.sources if told else {}
    found: dict[str, Any] = {}
    for kind, named in (("dataset", run.dataset), ("partition", run.partition)):
        found[kind] = named.name
        found |= {f"{kind}.{key}": value for key, value in named.options.items()}
    for key in ("model", "clients", "training_clients", "cohort", "query", "arrival", "weights"):
        found[key] = getattr(run, key)
    for key in ("rounds", "batch", "batches", "augment", "tail", "tiny_client"):
        found[key] = getattr(run, key)
    if cell.reading.stage == "finetuned" and run.scoring.finetune is not None:
        rule = run.scoring.finetune
        found |= {f"finetune.{key}": getattr(rule, key) for key in ("steps", "lr", "decay", "every")}
    return tuple(
        Given(key, _text(value), sources.get(key) or sources.get(key.partition(".")[0], ""))
        for key, value in found.items()
        if key not in run.method.hyper  # the method's own value is used, and named above
    )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _reading(table: TableInput, value: CellValue) -> tuple[str, ...]:
    grid = dict.fromkeys(table.cells, value)
    lines = [
        rules.selection(table.cells),
        rules.clients(table),
        rules.seeds(table.cells, [value], table.spread if table.with_spread else None),
        rules.rounds(table),
        rules.plain(table, grid),
        rules.left_out(table, grid),
        *rules.choices(table, grid),
    ]
    return tuple(line for line in lines if line)


def _ran(run: RunSpec, value: CellValue, store: Store, shelf: Shelf) -> Ran:
    stored = shelf.stored[run.id]
    counts = run.id in value.runs.get(run.seed, ())
    told = [str(stored.provenance.get(key) or "") for key in ("device", "data_hash")]
    return Ran(run.seed, value.seeds.get(run.seed) if counts else None, listed(stored, store), *told)


def _method(run: RunSpec, shelf: Shelf) -> Said | None:
    """What the method's docstring says; a user's method is stored with its runs."""
    name = run.method.name
    stored = shelf.stored.get(run.id)
    if is_reference(name) and stored is not None and stored.provenance.get("method_source"):
        return docstring.of_source(str(stored.provenance["method_source"]), split_reference(name)[1])
    return docstring.of_method(name)
