"""Expansion of a suite to the cells of its table, the runs behind them, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

from typing_extensions import Unpack

from pflbench.selection import EVERYTHING, Choices, Selection
from pflbench.spec import Finetune, MethodSpec, RunSpec, Scoring
from pflbench.stages import Shown
from pflbench.suite.cells import (
    Cell,
    Choice,
    CountedColumn,
    Derived,
    Expansion,
    Reading,
    Reference,
    TableColumn,
    TableRow,
    unread,
)
from pflbench.suite.document import Document, Suite
from pflbench.suite.figure import Statistics
from pflbench.suite.layers import (
    ColumnLayers,
    Override,
    check_method_keys,
    every_column,
    parse_overrides,
    select_columns,
)
from pflbench.suite.row_stages import staged
from pflbench.suite.rows import SelectedRow, select_rows, suite_rows
from pflbench.suite.scoped import Follows, Inference, Note, Suspicion, anywhere, holding
from pflbench.suite.shortfall import shortfall
from pflbench.suite.strict import at
from pflbench.suite.user_supplied import Place


def expand(
    suite: Suite, part: Selection = EVERYTHING, *, values: Sequence[Override] = (), **choices: Unpack[Choices]
) -> Expansion:
    """The table of a suite, or the part of it that a selection leaves.

    Args:
        suite: The suite.
        part: The selection.
        values: Values over those of the suite and the selection.
        **choices: Fields in place of those of `part`.

    Raises:
        UsageError: Something is unknown or does not fit.
    """
    part = part.but(**choices)
    profile = part.profile or "paper"
    document = suite.document(profile)
    selected, every = _selected(suite, part, values)
    chosen = select_columns(every, part)
    columns, rows = tuple(map(_table_column, chosen)), tuple(row.row for row in selected)
    cells, locations = list[Cell](), dict[str, Mapping[str, str]]()
    for column, shown in zip(chosen, columns, strict=True):
        for row in selected:
            result = _cells(column, shown, row)
            cells += result
            if places := _places(column, row):
                locations |= dict.fromkeys((spec.id for spec in result[0].needed), places)
    head, layout = document.suite, document.layout
    return Expansion(
        suite=suite.name,
        title=head.title,
        paper=head.paper,
        protocol=_protocol(document, rows, columns),
        profile=profile,
        seeds=tuple(dict.fromkeys(chain.from_iterable(column.seeds for column in chosen))),
        spread=head.spread,
        stages=dict(layout.stages),
        layout=layout,
        shows_spread=layout.spread or document.statistics is not None,
        paper_round=head.paper_round,
        notes=_notes(suite, document, rows, columns),
        rows=rows,
        columns=columns,
        derived=_derived(document, rows, columns),
        cells=tuple(cells),
        runs=tuple({spec.id: spec for cell in cells for spec in cell.needed}.values()),
        locations=locations,
        path=suite.path,
        extends=suite.path.parent / head.extends if head.extends else None,
        shortfall=shortfall(chosen),
        part=part.but(suites=[suite.called], profile=profile),
        remarks=document.remarks,
        counted=_counted(document.statistics, chosen, columns) if document.statistics else (),
    )


def _selected(
    suite: Suite, part: Selection, values: Sequence[Override] = ()
) -> tuple[list[SelectedRow], list[ColumnLayers]]:
    """The selected rows at their stages, and every column below the selection."""
    document = suite.document(part.profile or "paper")
    rows = suite_rows(suite, document)
    check_method_keys(suite, document, rows)
    rows = select_rows(rows, part, document, suite.supplied)
    overrides = [*parse_overrides(document, part.overrides, rows), *values]
    columns = every_column(suite, document, part, overrides)
    return [staged(row, document, columns) for row in rows], columns


def _notes(
    suite: Suite, document: Document, rows: Sequence[TableRow], columns: Sequence[TableColumn]
) -> tuple[str, ...]:
    """Notes that hold in some cell, and the defaults in force."""
    # What a suite of statistics inherits of single columns is about runs.
    ids = (None,) if document.statistics else tuple(column.id for column in columns)
    notes = anywhere(document.remarks, Note, [(one, id_) for one in rows or (None,) for id_ in ids])
    defaults = [f"Defaults, as the suite sets no others: {', '.join(suite.defaults)}."] if suite.defaults else []
    return (*(note.text for note in notes), *defaults)


def _counted(
    statistics: Statistics, chosen: Sequence[ColumnLayers], columns: Sequence[TableColumn]
) -> tuple[CountedColumn, ...]:
    """The columns of a suite of statistics."""
    return tuple(
        CountedColumn(shown, column.federations(), column.places, statistics.reference.get(shown.id))
        for column, shown in zip(chosen, columns, strict=True)
    )


def _table_column(column: ColumnLayers) -> TableColumn:
    """The column as the table has it."""
    entry, whole, settings = column.entry, column.whole.entry, column.settings
    instead = column.stand_in
    group = f"{instead} for {entry.group or whole.dataset.name}" if instead else entry.group
    smallest = entry.subset.smallest if entry.subset else None
    named = settings["dataset"].name, settings["partition"].name, settings["model"]
    numbers = settings["clients"], settings["rounds"], smallest
    return TableColumn(entry.id, group, entry.title, *named, *numbers, instead)


def _fields(column: ColumnLayers, row: SelectedRow, finetune: Finetune | None) -> dict[str, Any]:
    """The fields of a row's runs in a column, but for the method and the seed."""
    rule, rounds = column.document.evaluation, column.rounds(row) or column.settings["rounds"]
    plain = rule.model_dump(include={"clients", "first", "average", "global_on", "features"})
    plain["moment"] = row.entry.scored_at(rule)
    scoring = Scoring(stages=row.scored, finetune=finetune, last=max(1, min(rule.last, rounds)), **plain)
    return column.settings | {"rounds": rounds, "scoring": scoring}


def _cells(column: ColumnLayers, shown: TableColumn, row: SelectedRow) -> list[Cell]:
    """One row in a column: a cell for each stage that the row shows."""
    document, rounds = column.document, column.rounds(row)
    points, of_points = column.hyperparameters(row)
    finetune, of_finetuning = column.finetuning(row) if "finetuned" in row.scored else (None, {})
    runs, choices = _runs(column, row, points, _fields(column, row, finetune))
    sources = {key: source for key, source in column.sources.items() if key != "rounds" or rounds is None}
    sources |= {k: source for k, source in row.entry.given.items() if k != "rounds" or rounds == row.entry.rounds}
    unused = unread(runs[0], row.info)
    sources = {key: source for key, source in sources.items() if key not in unused} | of_points
    read = document.tune.read
    return [
        Cell(
            row=row.row,
            column=shown,
            reading=Reading(
                stage,
                column.reported_steps(finetune) if stage == "finetuned" and finetune else None,
                shown.smallest,
                document.evaluation.mean,
            ),
            runs=runs,
            reference=_printed(document, row.row.id, shown.id, stage),
            sources=sources | of_finetuning if stage == "finetuned" else sources,
            choices=choices,
            follows=_follows(document, row.row, shown.id),
            tuned_by=read.get(row.row.id) or read.get(row.key, "last"),
            every=_interval(row.entry.every, document.evaluation.every),
        )
        for stage in row.row.stages
    ]


def _interval(of_row: int | Literal["last"] | None, of_suite: int | None) -> int | None:
    """Interval of a row's scored rounds; None: only the last ones."""
    return None if of_row == "last" else of_row or of_suite


def _places(column: ColumnLayers, row: SelectedRow) -> dict[str, str]:
    """Paths of user-supplied code and data of a row's runs."""
    return {**column.places, **({"methods": row.location} if row.location else {})}


def _runs(
    column: ColumnLayers, row: SelectedRow, points: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
) -> tuple[tuple[RunSpec, ...], tuple[tuple[Choice, ...], ...]]:
    """A cell's runs and choices."""
    suite, places = column.suite, _places(column, row)
    where = Place(suite.name, column.profile, suite.file, row.row.id, column.entry.id)
    of_seeds = [{"seed": seed, **column.contents(fields, places, seed)} for seed in column.seeds]

    def runs(hyper: Mapping[str, Any], validation: float = 0.0) -> tuple[RunSpec, ...]:
        method = MethodSpec(name=row.info.name, version=row.info.version, hyper=dict(hyper))
        with at("run"):
            first = RunSpec(method=method, validation=validation, **{**fields, **of_seeds[0]})
        assert first.id  # copies with another seed share what it is hashed from
        every = (first, *(first.model_copy(update=change) for change in of_seeds[1:]))
        return tuple(suite.supplied.requested(every, where))

    if row.entry.validation is None:
        return runs(points[0]), ()
    pairs = [zip(runs(point), runs(point, row.entry.validation), strict=True) for point in points]
    choices = tuple(tuple(Choice(*pair) for pair in of_seed) for of_seed in zip(*pairs, strict=True))
    return tuple(first.run for first, *_ in choices), choices


def _printed(document: Document, row: str, column: str, stage: Shown) -> Reference | None:
    """Number that the paper printed there. Without a stage it is that of the one stage that the row shows."""
    printed = document.reference.get(row, {}).get(column, [])
    numbers = printed.get(stage, []) if isinstance(printed, dict) else printed
    if not numbers:
        return None
    suspect, inferred = _doubts(document, row, column)
    mean, spread = (*numbers, None)[:2]
    text = mean if isinstance(mean, str) else None
    return Reference(float(mean or 0), None if spread is None else float(spread), suspect, text, inferred)


def _doubts(document: Document, row: str, column: str) -> tuple[str | None, str | None]:
    """Reasons why the paper's number in a cell may be wrong, and settings that were inferred from it.

    What holds in either of the two cells of a derived row or column, holds there.
    """
    both = {derived.id: derived.of for derived in document.derived}
    rows = [one for one in document.row if one.id in both.get(row, (row,))]
    columns = [one for one in document.column if one.id in both.get(column, (column,))]
    cells = [(one, other.id) for one in rows for other in columns]
    why = [*(one.suspect for one in rows), *(one.suspect for one in columns)]
    tables = anywhere(document.remarks, Suspicion, [cell for cell in cells if cell[0].suspect is None])
    why += [one.why for one in tables]
    inferred = dict.fromkeys(one.what for one in anywhere(document.remarks, Inference, cells))
    return "; ".join(dict.fromkeys(filter(None, why))) or None, "; ".join(inferred) or None


def _follows(document: Document, row: TableRow, column: str) -> str:
    """Protocol of a cell's runs, in words."""
    return next((one.text for one in holding(document.remarks, Follows, row, column)), document.suite.protocol)


def _protocol(document: Document, rows: Sequence[TableRow], columns: Sequence[TableColumn]) -> str:
    """Protocols of the cells in one line: exceptions with their rows and columns, then the suite's."""
    cells = [(row, column.id) for row in rows for column in columns]
    exceptions = anywhere(document.remarks, Follows, cells)
    texts = {_follows(document, *cell) for cell in cells} if exceptions else set[str]()
    if len(texts) < 2:
        return next(iter(texts), document.suite.protocol)
    parts = [f"{', '.join(one.names)}: {one.text}" for one in exceptions]
    return "; ".join([*parts, f"all else: {document.suite.protocol}"])


def _derived(document: Document, rows: Sequence[TableRow], columns: Sequence[TableColumn]) -> tuple[Derived, ...]:
    """The derived rows and columns whose two parts are there."""
    stages, ids = {row.id: row.stages for row in rows}, [column.id for column in columns]
    result = []
    for d in document.derived:
        first, second = d.of
        if d.axis == "rows" and {first, second} <= stages.keys():
            places = [(column, stage, d.id, column) for column in ids for stage in stages[first]]
        elif d.axis == "columns" and {first, second} <= set(ids):
            places = [(row, stage, row, d.id) for row in stages for stage in stages[row]]
        else:
            continue
        references: dict[tuple[str, str], Reference] = {}
        for other, stage, row, column in places:
            if printed := _printed(document, row, column, stage):
                references[other, stage] = printed
        result.append(Derived(d.id, d.title, d.axis, d.of, references, d.spread and document.layout.spread))
    return tuple(result)


class Part(NamedTuple):
    """The selected part of a suite. `labels`: by run id, the run's name beside its column and seed."""

    table: Expansion
    labels: Mapping[str, str]


def parts(suites: Iterable[Suite], part: Selection) -> list[Part]:
    """The selected part of each suite. Raises `UsageError`."""
    tables = [expand(suite, part) for suite in suites]
    return [Part(table, labels(table)) for table in tables]


def labels(table: Expansion) -> dict[str, str]:
    """By run id, the id of the run's row; of several rows, the first."""
    return {spec.id: cell.row.id for cell in reversed(table.cells) for spec in cell.needed}


def with_columns(parts: Iterable[Part]) -> dict[str, str]:
    """By run id, the run's column and its name there; of several columns, the first."""
    result: dict[str, str] = {}
    for table, labels in parts:
        for cell in table.cells:
            for spec in cell.needed:
                result.setdefault(spec.id, f"{cell.column.called} · {labels[spec.id]}")
    return result
