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
from pflbench.suite.strict import validated
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
    columns, shown_rows = tuple(column.shown for column in chosen), tuple(row.row for row in selected)
    cells, locations = list[Cell](), dict[str, Mapping[str, str]]()
    for column in chosen:
        for row in selected:
            result = _cells(column, row)
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
            CountedColumn(one.shown, one.federations(), one.places, document.statistics.reference.get(one.entry.id))
            for one in chosen
            if document.statistics
        ),
    )


def _notes(document: Document, rows: Sequence[TableRow], columns: Sequence[TableColumn]) -> tuple[str, ...]:
    """Notes that hold in some cell."""
    # What a suite of statistics inherits of single columns is about runs.
    ids = (None,) if document.statistics else tuple(column.id for column in columns)
    notes = anywhere(document.remarks, Note, [(one, id_) for one in rows or (None,) for id_ in ids])
    return tuple(note.text for note in notes)


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


def _cells(column: SuiteColumn, row: SelectedRow) -> list[Cell]:
    """One row in a column: a cell for each stage that the row shows."""
    document, shown = column.document, column.shown
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
    suite = column.suite
    cell = CellPath(suite.name, column.selection.profile or "paper", suite.file, row.row.id, column.entry.id)
    of_seeds = [{"seed": seed, **suite.supplied.contents(fields, column.places, seed)} for seed in column.seeds]

    def runs(hyper: Mapping[str, Any], validation: float = 0.0) -> tuple[RunSpec, ...]:
        method = MethodSpec(name=row.info.name, version=row.info.version, hyper=dict(hyper))
        first = validated(RunSpec, {"method": method, "validation": validation, **fields, **of_seeds[0]}, "run.")
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
    rows = [one for one in document.row if one.id in both.get(row, (row,))]
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
        printed = {(other, stage): _printed(document, row, column, stage) for other, stage, row, column in places}
        references: dict[tuple[str, str], Reference] = {key: one for key, one in printed.items() if one}
        result.append(Derived(d.id, d.title, d.axis, d.of, references, d.spread and document.layout.spread))
    return tuple(result)


_COMPARED = (*(key for key in FederationKeys.model_fields if key != "clients"), "partition", "model", "batch", "hyper")
"""Keys of a column that change its runs, but for those that are counted."""


def _shortfall(columns: Sequence[SuiteColumn]) -> Shortfall:
    """The differences of these columns, under their profile and selection, from the whole suite."""
    paper = columns[0].suite.document()
    rounds = [(one.settings["rounds"], one.whole.rounds) for one in columns if paper.row]
    seeds = [(len(one.seeds), len(one.whole.seeds or ())) for one in columns]
    return Shortfall(
        rounds=_counts(rounds, "rounds"),
        seeds=_counts([(few, every) for few, every in seeds if few < every], "seeds"),
        columns=f"{len(columns)} of {len(paper.column)} columns" if len(columns) < len(paper.column) else "",
        longer=any(number > whole for number, whole in rounds),
        other=_other(columns),
    )


def _other(columns: Sequence[SuiteColumn]) -> tuple[str, ...]:
    """Differences of these columns other than numbers of rounds, seeds and columns, in words."""
    clients = [(one.entry.clients or 0, one.whole.clients or 0) for one in columns]
    replaced = dict.fromkeys(f"{one.stand_in} for {one.whole.dataset.name}" for one in columns if one.stand_in)
    changed = ", ".join(dict.fromkeys(key for one in columns for key in _changed(one)))
    texts = ", ".join(replaced), _counts(clients, "clients"), f"other {changed}" if changed else ""
    return tuple(filter(None, texts))


def _changed(column: SuiteColumn) -> Iterable[str]:
    """Keys of a column and of the suite's tables that the profile changes."""
    here, whole, document, paper = column.entry, column.whole, column.document, column.suite.document()
    yield from (key for key in _COMPARED if getattr(here, key) != getattr(whole, key))
    if here.dataset != whole.dataset and not column.stand_in:
        yield "dataset"
    if document.hyper != paper.hyper:
        yield "hyper"
    if paper.row:
        before, after = dict(paper.evaluation), dict(document.evaluation)
        yield from (f"evaluation.{key}" for key in before if key != "report" and before[key] != after[key])
        if here.finetune != whole.finetune:
            yield "finetune"


def _counts(pairs: Iterable[tuple[int, int]], what: str) -> str:
    """`10 of 1000, 50 of 200 rounds` for those pairs that differ; `4 instead of 2 rounds` where they are more."""
    different = dict.fromkeys(
        f"{number} {'instead of' if number > whole else 'of'} {whole}" for number, whole in pairs if number != whole
    )
    return f"{', '.join(different)} {what}" if different else ""
