"""From a suite to the cells of its table and the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import Unpack

from pflbench import names
from pflbench.errors import UsageError
from pflbench.selection import EVERYTHING, Choices, Selection
from pflbench.spec import Finetune, MethodSpec, RunSpec, Scoring
from pflbench.suite import origins, resolve
from pflbench.suite.cells import Cell, Choice, Derived, Expansion, Reading, Reference, TableColumn, TableRow
from pflbench.suite.document import Document, Suite
from pflbench.suite.select import SelectedRow, references, select_columns, select_rows, suite_rows
from pflbench.suite.shortfall import shortfall, stand_in
from pflbench.suite.staging import staged
from pflbench.suite.strict import at


def _chosen(suite: Suite, document: Document) -> Suite:
    """The suite with the versions chosen of what is the user's own and not on this machine, column by column."""
    suite = replace(suite, own=suite.own.anew())
    for index in range(len(document.column)):
        suite.own.choose(references(suite, document, index))
    return suite


def expand(suite: Suite, part: Selection = EVERYTHING, **choices: Unpack[Choices]) -> Expansion:
    """The table of a suite, or the part of it that a selection leaves.

    Args:
        suite: The suite, from `load.load`.
        part: The part of it; its `suites` are ignored.
        **choices: Fields in place of those of `part`.

    Raises:
        UsageError: Something is unknown or does not fit, or the suite is one of statistics, which has no runs.
    """
    part = part.but(**choices)
    profile, rounds = part.profile or "paper", part.rounds
    document = suite.document(profile)
    if document.statistics is not None:
        run = f"`pflbench run --suite {suite.called or suite.path}`"
        raise UsageError(f"{suite.name} trains nothing: {run} counts the images of its datasets.")
    suite = _chosen(suite, document)
    chosen = part.seeds or tuple(document.suite.seeds)
    rows, overrides = _rows(suite, document, part)
    filler = _Filler(suite, document, overrides, chosen, part.precision or "fp32", rounds)

    shown: list[TableColumn] = []
    cells: list[Cell] = []
    locations: dict[str, names.Places] = {}
    indices = select_columns(suite, document, part)
    for index in indices:
        column, filled, places = filler.column(index, rows)
        shown.append(column)
        cells += filled
        locations |= places
    head, layout = document.suite, document.layout
    named = [(selected.row.id, selected.key) for selected in rows], [column.id for column in shown]
    return Expansion(
        suite=suite.name,
        title=head.title,
        paper=head.paper,
        protocol=origins.protocol(document, rows, shown),
        profile=profile,
        seeds=chosen,
        spread=head.spread,
        decimals=layout.decimals,
        bold=layout.bold,
        stages=dict(layout.stages),
        blocks=layout.blocks == "group",
        costs=layout.costs,
        shows_spread=layout.spread,
        notes=(*origins.notes(document, *named), *suite.own.remarks),
        departures=origins.departures(document, *named),
        rows=tuple(selected.row for selected in rows),
        columns=tuple(shown),
        derived=_derived(document, [selected.row for selected in rows], [column.id for column in shown]),
        cells=tuple(cells),
        runs=tuple({spec.id: spec for cell in cells for spec in cell.needed}.values()),
        locations=locations,
        path=suite.path,
        extends=suite.path.parent / head.extends if head.extends else None,
        shortfall=shortfall(suite.document(), document, indices, rounds, chosen),
        part=part.but(suites=[suite.called or str(suite.path)], profile=profile),
    )


def _rows(suite: Suite, document: Document, part: Selection) -> tuple[list[SelectedRow], Sequence[resolve.Setting]]:
    """The selected rows, at their stages, and the selection's overrides."""
    every = suite_rows(suite, document)
    resolve.check_method_keys(suite, document, every)
    rows = select_rows(every, part, document, suite.own)
    if part.rounds is not None:
        rows = [replace(row, rounds=min(row.rounds, part.rounds)) if row.rounds else row for row in rows]
    overrides = resolve.settings(document, part.overrides, rows)
    return [staged(suite, document, selected, overrides) for selected in rows], overrides


def _table_column(paper: Document, document: Document, index: int, shared: Mapping[str, Any]) -> TableColumn:
    c, whole = document.column[index], paper.column[index]
    instead = stand_in(whole, c)
    group = f"{instead} for {c.group or whole.dataset.name}" if instead else c.group
    smallest = c.subset.smallest if c.subset else None
    named = shared["dataset"].name, shared["partition"].name, shared["model"]
    return TableColumn(c.id, group, c.title, *named, shared["clients"], shared["rounds"], smallest, instead)


@dataclass(frozen=True)
class _Filler:
    """Makes the cells of a table."""

    suite: Suite
    document: Document
    overrides: Sequence[resolve.Setting]
    seeds: tuple[int, ...]
    precision: str
    rounds: int | None
    """Instead of the columns' own."""

    def column(
        self, index: int, rows: Sequence[SelectedRow]
    ) -> tuple[TableColumn, list[Cell], dict[str, names.Places]]:
        """A column, its cells in these rows, and where the user's own code is of each run's id that has any."""
        shared = resolve.shared(self.suite, self.document, index) | {"precision": self.precision}
        if self.rounds is not None:
            shared["rounds"] = self.rounds
        column = _table_column(self.suite.document(), self.document, index, shared)
        told = origins.of_column(self.suite, self.document, index, shared)
        below = resolve.places(self.suite, self.document, index)
        cells: list[Cell] = []
        locations: dict[str, names.Places] = {}
        for selected in rows:
            places: names.Places = {**below, "methods": selected.location} if selected.location else below
            row = self.cells(index, column, selected, shared, told, places)
            cells += row
            if places:
                locations |= dict.fromkeys((spec.id for spec in row[0].needed), places)
        return column, cells, locations

    def cells(
        self,
        index: int,
        column: TableColumn,
        selected: SelectedRow,
        shared: Mapping[str, Any],
        told: Mapping[str, str],
        places: names.Places,
    ) -> list[Cell]:
        """One row in one column: a cell for each stage that the row shows.

        `told`: the sources of the column's values; `places`: where the code is of what in it is the user's own.
        """
        where = self.suite, self.document, index, selected, self.overrides
        points, values = resolve.hyperparameters(*where)
        finetune, tuning = resolve.finetuning(*where) if "finetuned" in selected.scored else (None, {})
        own = dict(shared) if selected.rounds is None else dict(shared, rounds=selected.rounds)
        own["scoring"] = self._scoring(selected, finetune, own["rounds"])
        runs, choices = self._runs(selected, points, own, places)
        settings = origins.settings(selected, told)
        # A method's own batch, say, stands in place of the column's, and some methods draw no minibatches.
        unread = points[0].keys() | (set() if selected.info.minibatches else {"batch"})
        sources = {key: source for key, source in settings.items() if key not in unread} | values
        followed = origins.follows(self.document, selected.row, selected.key, column.id)
        cells = []
        for stage in selected.row.stages:
            steps = None
            if stage == "finetuned" and finetune:
                steps = resolve.reported_steps(self.suite, self.document, index, finetune)
            reading = Reading(stage, steps, column.smallest, self.document.evaluation.mean)
            reference = resolve.printed(self.document, selected.row.id, column.id, stage)
            own_sources = sources | tuning if stage == "finetuned" else sources
            cells.append(Cell(selected.row, column, reading, runs, reference, own_sources, choices, followed))
        return cells

    def _scoring(self, selected: SelectedRow, finetune: Finetune | None, rounds: int) -> Scoring:
        rule = self.document.evaluation
        return Scoring(
            clients=rule.clients,
            first=rule.first,
            stages=selected.scored,
            average=rule.average,
            finetune=finetune,
            global_on=rule.global_on,
            moment=rule.moment,
            last=max(1, min(rule.last, rounds)),
            features=rule.features,
        )

    def _runs(
        self, selected: SelectedRow, points: Sequence[Mapping[str, Any]], own: Mapping[str, Any], places: names.Places
    ) -> tuple[tuple[RunSpec, ...], tuple[tuple[Choice, ...], ...]]:
        """A cell's runs and choices; `own`: what its runs have in common; `places`: as `cells` has them."""
        read = self.suite.own.contents
        of_seeds = [{"seed": seed, **read(own, places, seed)} for seed in self.seeds]

        def runs(hyper: Mapping[str, Any], validation: float = 0.0) -> tuple[RunSpec, ...]:
            method = MethodSpec(name=selected.info.name, version=selected.info.version, hyper=dict(hyper))
            with at("run"):
                first = RunSpec(method=method, validation=validation, **{**own, **of_seeds[0]})
            assert first.id  # copies with another seed share what it is hashed from
            return first, *(first.model_copy(update=change) for change in of_seeds[1:])

        if selected.said.validation is None:
            return runs(points[0]), ()
        pairs = [zip(runs(point), runs(point, selected.said.validation), strict=True) for point in points]
        choices = tuple(tuple(Choice(*pair) for pair in of_seed) for of_seed in zip(*pairs, strict=True))
        return tuple(first.run for first, *_ in choices), choices


def _derived(document: Document, rows: Sequence[TableRow], columns: Sequence[str]) -> tuple[Derived, ...]:
    """The derived rows and columns whose two parts are there."""
    stages = {row.id: row.stages for row in rows}
    found = []
    for d in document.derived:
        first, second = d.of
        if d.axis == "rows" and {first, second} <= stages.keys():
            places = [(column, stage, d.id, column) for column in columns for stage in stages[first]]
        elif d.axis == "columns" and {first, second} <= set(columns):
            places = [(row, stage, row, d.id) for row in stages for stage in stages[row]]
        else:
            continue
        references: dict[tuple[str, str], Reference] = {}
        for other, stage, row, column in places:
            if printed := resolve.printed(document, row, column, stage):
                references[other, stage] = printed
        found.append(Derived(d.id, d.title, d.axis, d.of, references, d.spread and document.layout.spread))
    return tuple(found)
