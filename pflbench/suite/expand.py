"""Expansion of a suite to the cells of its table, the runs behind them, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from typing_extensions import Unpack

from pflbench.errors import UsageError
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
    Shortfall,
    TableColumn,
    TableRow,
    unread,
)
from pflbench.suite.columns import (
    SuiteColumn,
    every_column,
    parse_overrides,
    select_columns,
    staged,
)
from pflbench.suite.document import Document, Suite
from pflbench.suite.rows import SelectedRow, select_rows, suite_rows
from pflbench.suite.schema import FederationKeys
from pflbench.suite.scoped import Follows, Inference, Note, Suspicion, anywhere, holding
from pflbench.suite.strict import at
from pflbench.suite.user_supplied import CellPath


def expand(suite: Suite, part: Selection = EVERYTHING, **choices: Unpack[Choices]) -> Expansion:
    """The table of a suite, or the part of it that a selection leaves.

    Args:
        suite: The suite.
        part: The selection.
        **choices: Fields in place of those of `part`.

    Raises:
        UsageError: Something is unknown or does not fit.
    """
    part = part.but(**choices)
    profile = part.profile or "paper"
    document = suite.document(profile)
    rows = select_rows(suite_rows(suite, document), part, document, suite.supplied)
    every = every_column(suite, document, part, parse_overrides(document, part.overrides, rows))
    selected = [staged(row, document, every) for row in rows]
    chosen = select_columns(every, part)
    columns, shown_rows = tuple(map(_table_column, chosen)), tuple(row.row for row in selected)
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
        protocol=_protocol(document, shown_rows, columns),
        profile=profile,
        seeds=tuple(dict.fromkeys(chain.from_iterable(column.seeds for column in chosen))),
        spread=head.spread,
        stages=dict(layout.stages),
        layout=layout,
        shows_spread=layout.spread or document.statistics is not None,
        paper_round=head.paper_round,
        notes=_notes(document, shown_rows, columns),
        rows=shown_rows,
        columns=columns,
        derived=_derived(document, shown_rows, columns),
        cells=tuple(cells),
        runs=tuple({spec.id: spec for cell in cells for spec in cell.needed}.values()),
        locations=locations,
        path=suite.path,
        extends=suite.path.parent / head.extends if head.extends else None,
        shortfall=_shortfall(chosen),
        part=part.but(suites=[suite.called], profile=profile),
        remarks=document.remarks,
        counted=tuple(
            CountedColumn(shown, column.federations(), column.places, document.statistics.reference.get(shown.id))
            for column, shown in zip(chosen, columns, strict=True)
            if document.statistics
        ),
    )


def _notes(document: Document, rows: Sequence[TableRow], columns: Sequence[TableColumn]) -> tuple[str, ...]:
    """Notes that hold in some cell."""
    # What a suite of statistics inherits of single columns is about runs.
    ids = (None,) if document.statistics else tuple(column.id for column in columns)
    notes = anywhere(document.remarks, Note, [(one, id_) for one in rows or (None,) for id_ in ids])
    return tuple(note.text for note in notes)


def _table_column(column: SuiteColumn) -> TableColumn:
    """The column as the table has it."""
    entry, whole, settings = column.entry, column.whole.entry, column.settings
    instead = column.stand_in
    group = f"{instead} for {entry.group or whole.dataset.name}" if instead else entry.group
    smallest = entry.subset.smallest if entry.subset else None
    named = settings["dataset"].name, settings["partition"].name, settings["model"]
    numbers = settings["clients"], settings["rounds"], smallest
    return TableColumn(entry.id, group, entry.title, *named, *numbers, instead)


def _fields(column: SuiteColumn, row: SelectedRow, finetune: Finetune | None) -> dict[str, Any]:
    """The fields of a row's runs in a column, but for the method and the seed."""
    rule, rounds = column.document.evaluation, column.rounds(row) or column.settings["rounds"]
    plain = rule.model_dump(include={"clients", "first", "average", "global_on", "features"})
    plain["moment"] = row.entry.moment or rule.moment
    scoring = Scoring(stages=row.scored, finetune=finetune, last=max(1, min(rule.last, rounds)), **plain)
    return column.settings | {"rounds": rounds, "scoring": scoring}


def _sources(column: SuiteColumn, row: SelectedRow) -> dict[str, str]:
    """Sources of a column's settings, with that of the row's own rounds."""
    rounds = column.rounds(row)
    sources = {key: source for key, source in column.sources.items() if key != "rounds" or rounds is None}
    if rounds is not None and rounds == row.entry.rounds:
        source = column.document.origins.get(f"row[{column.document.row.index(row.entry)}].rounds")
        sources |= {"rounds": source} if source else {}
    return sources


def _cells(column: SuiteColumn, shown: TableColumn, row: SelectedRow) -> list[Cell]:
    """One row in a column: a cell for each stage that the row shows."""
    document = column.document
    points, of_points = column.hyperparameters(row)
    finetune, of_finetuning = column.finetuning(row) if "finetuned" in row.scored else (None, {})
    _check_subset(column, row)
    runs, choices = _runs(column, row, points, _fields(column, row, finetune))
    unused = unread(runs[0], row.info)
    sources = {key: source for key, source in _sources(column, row).items() if key not in unused} | of_points
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
            tuned_by=read.get(row.row.id) or read.get(row.entry.method, "last"),
            every=None if row.entry.every == "last" else row.entry.every or document.evaluation.every,
        )
        for stage in row.row.stages
    ]


def _check_subset(column: SuiteColumn, row: SelectedRow) -> None:
    """Reject a subset of clients of which the runs do not tell which have the fewest examples."""
    of_clients = column.document.evaluation.global_on == "clients" or row.row.stages != ("global",)
    if column.entry.subset and of_clients and "personalized" not in row.scored:
        raise UsageError(
            f"{column.where}.subset: the runs of row {row.row.id!r} have no personalized models, and only runs "
            "with them store each client's number of examples. List other rows, or leave `subset` out."
        )


def _places(column: SuiteColumn, row: SelectedRow) -> dict[str, str]:
    """Paths of user-supplied code and data of a row's runs."""
    return {**column.places, **({"methods": row.location} if row.location else {})}


def _runs(
    column: SuiteColumn, row: SelectedRow, points: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]
) -> tuple[tuple[RunSpec, ...], tuple[tuple[Choice, ...], ...]]:
    """A cell's runs and choices."""
    suite, places = column.suite, _places(column, row)
    cell = CellPath(suite.name, column.selection.profile or "paper", suite.file, row.row.id, column.entry.id)
    of_seeds = [{"seed": seed, **suite.supplied.contents(fields, places, seed)} for seed in column.seeds]

    def runs(hyper: Mapping[str, Any], validation: float = 0.0) -> tuple[RunSpec, ...]:
        method = MethodSpec(name=row.info.name, version=row.info.version, hyper=dict(hyper))
        with at("run"):
            first = RunSpec(method=method, validation=validation, **{**fields, **of_seeds[0]})
        assert first.id  # copies with another seed share what it is hashed from
        every = (first, *(first.model_copy(update=change) for change in of_seeds[1:]))
        return tuple(suite.supplied.requested(every, cell))

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
    rows = [TableRow(one.id, one.title, one.method, ()) for one in document.row if one.id in both.get(row, (row,))]
    columns = [one for one in document.column if one.id in both.get(column, (column,))]
    cells = [(one, other.id) for one in rows for other in columns]
    why = dict.fromkeys(one.why for one in anywhere(document.remarks, Suspicion, cells))
    inferred = dict.fromkeys(one.what for one in anywhere(document.remarks, Inference, cells))
    return "; ".join(why) or None, "; ".join(inferred) or None


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
    scopes = [[*(one.rows or ()), *(one.methods or ()), *(one.columns or ())] for one in exceptions]
    parts = [f"{', '.join(names)}: {one.text}" for names, one in zip(scopes, exceptions, strict=True)]
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


_COMPARED = (*(key for key in FederationKeys.model_fields if key != "clients"), "partition", "model", "batch", "hyper")
"""Keys of a column that change its runs, but for those that are counted."""


def _shortfall(columns: Sequence[SuiteColumn]) -> Shortfall:
    """The differences of these columns, under their profile and selection, from the whole suite."""
    paper, pairs = columns[0].whole.document, [(one, one.whole) for one in columns]
    rounds = [(one.settings["rounds"], whole.entry.rounds) for one, whole in pairs if paper.row]
    seeds = [(len(one.seeds), len(whole.entry.seeds or ())) for one, whole in pairs]
    clients = [(one.entry.clients or 0, whole.entry.clients or 0) for one, whole in pairs]
    return Shortfall(
        rounds=_counts(rounds, "rounds"),
        seeds=_counts([(few, every) for few, every in seeds if few < every], "seeds"),
        columns=f"{len(columns)} of {len(paper.column)} columns" if len(columns) < len(paper.column) else "",
        longer=any(number > whole for number, whole in rounds),
        other=tuple(filter(None, [_replaced(pairs), _counts(clients, "clients"), _other(pairs)])),
    )


def _replaced(pairs: Sequence[tuple[SuiteColumn, SuiteColumn]]) -> str:
    """Datasets in the place of others, in words; empty if there are none."""
    return ", ".join({f"{one.stand_in} for {whole.entry.dataset.name}": None for one, whole in pairs if one.stand_in})


def _other(pairs: Sequence[tuple[SuiteColumn, SuiteColumn]]) -> str:
    """Settings that differ otherwise, in words; empty if there are none."""
    changed = dict.fromkeys([key for pair in pairs for key in _changed(*pair)])
    return f"other {', '.join(changed)}" if changed else ""


def _changed(one: SuiteColumn, whole: SuiteColumn) -> Iterable[str]:
    """Keys of a column and of the suite's tables in which the two differ."""
    yield from (key for key in _COMPARED if getattr(one.entry, key) != getattr(whole.entry, key))
    if one.entry.dataset != whole.entry.dataset and not one.stand_in:
        yield "dataset"
    if one.document.hyper != whole.document.hyper:
        yield "hyper"
    if whole.document.row:
        here, paper = dict(one.document.evaluation), dict(whole.document.evaluation)
        yield from (f"evaluation.{key}" for key in paper if key != "report" and here[key] != paper[key])
        if one.entry.finetune != whole.entry.finetune:
            yield "finetune"


def _counts(pairs: Iterable[tuple[int, int]], what: str) -> str:
    """`10 of 1000, 50 of 200 rounds` for those pairs that differ; `4 instead of 2 rounds` where they are more."""
    different = dict.fromkeys(
        f"{number} {'instead of' if number > whole else 'of'} {whole}" for number, whole in pairs if number != whole
    )
    return f"{', '.join(different)} {what}" if different else ""
