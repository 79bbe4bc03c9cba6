"""Expansion of a suite to the cells of its table, the runs behind them, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from typing_extensions import Unpack

from pflbench import names
from pflbench.errors import UsageError
from pflbench.selection import EVERYTHING, Choices, Selection
from pflbench.spec import Link, MethodSpec, RunSpec, Scoring
from pflbench.suite import origins, resolve
from pflbench.suite.cells import Cell, Choice, Derived, Expansion, Reading, Reference, TableColumn, TableRow
from pflbench.suite.document import Document, Suite
from pflbench.suite.scoped import Note
from pflbench.suite.select import SelectedRow, select_columns, select_rows, suite_rows
from pflbench.suite.shortfall import shortfall, stand_in
from pflbench.suite.staging import staged
from pflbench.suite.strict import at


def expand(suite: Suite, part: Selection = EVERYTHING, **choices: Unpack[Choices]) -> Expansion:
    """The table of a suite, or the part of it that a selection leaves; `choices`: fields in place of those of `part`.

    Raises:
        UsageError: Something is unknown or does not fit, or the suite is one of statistics, which has no runs.
    """
    part = part.but(**choices)
    profile = part.profile or "paper"
    document = suite.document(profile)
    if document.statistics is not None:
        run = f"`pflbench run --suite {suite.called}`"
        raise UsageError(f"{suite.name} trains nothing: {run} counts the images of its datasets.")
    suite = replace(suite, own=suite.own.anew())
    rows, shown = _rows(suite, document, part), dict[str, TableColumn]()
    cells: list[Cell] = []
    locations: dict[str, names.Places] = {}
    indices = select_columns(suite, document, part)
    chosen = _seeds(document, indices, part)
    for index in indices:
        filler = _Filler(suite, document, index, chosen[index], part)
        shown[filler.column.id] = filler.column
        for selected in rows:
            row = filler.cells(selected)
            cells += row
            if places := filler.places(selected):
                locations |= dict.fromkeys((spec.id for spec in row[0].needed), places)
    head, layout = document.suite, document.layout
    defaults = [f"Defaults, as the suite sets no others: {', '.join(suite.defaults)}."] if suite.defaults else []
    of_table, columns = tuple(selected.row for selected in rows), tuple(shown.values())
    everywhere = [(row, column) for row in of_table or (None,) for column in shown]
    return Expansion(
        suite=suite.name,
        title=head.title,
        paper=head.paper,
        protocol=origins.protocol(document, of_table, columns),
        profile=profile,
        seeds=tuple(dict.fromkeys(chain.from_iterable(chosen.values()))),
        spread=head.spread,
        stages=dict(layout.stages),
        layout=layout,
        shows_spread=layout.spread,
        notes=(*(note.text for note in document.layer.anywhere(Note, everywhere)), *suite.own.remarks, *defaults),
        rows=of_table,
        columns=columns,
        derived=_derived(document, of_table, list(shown)),
        cells=tuple(cells),
        runs=tuple({spec.id: spec for cell in cells for spec in cell.needed}.values()),
        locations=locations,
        path=suite.path,
        extends=suite.path.parent / head.extends if head.extends else None,
        shortfall=shortfall(suite.document(), document, chosen, part.rounds),
        part=part.but(suites=[suite.called], profile=profile),
        layer=document.layer,
    )


def _seeds(document: Document, indices: Iterable[int], part: Selection) -> dict[int, tuple[int, ...]]:
    """The seeds of these columns, by index."""
    return {index: part.seeds or document.seeds(document.column[index]) for index in indices}


def _rows(suite: Suite, document: Document, part: Selection) -> list[SelectedRow]:
    """The selected rows at their stages, with the selection's rounds and overrides."""
    every = suite_rows(suite, document)
    resolve.check_method_keys(suite, document, every)
    rows = select_rows(every, part, document, suite.own)
    if part.rounds is not None:
        rows = [_cut(row, part.rounds) for row in rows]
    return [staged(suite, document, row) for row in resolve.overridden(document, part.overrides, rows)]


def _cut(row: SelectedRow, most: int) -> SelectedRow:
    """The row, and those before it, with at most so many rounds, where they have rounds of their own."""
    before = tuple(_cut(one, most) for one in row.before)
    return replace(row, before=before, rounds=min(row.rounds, most) if row.rounds else None)


@dataclass(frozen=True)
class _Filler:
    """Makes the cells of a column, the `index`-th of the document."""

    suite: Suite
    document: Document
    index: int
    seeds: tuple[int, ...]
    part: Selection

    @cached_property
    def shared(self) -> dict[str, Any]:
        """Settings of all its runs; a row may have other rounds."""
        shared = resolve.shared(self.suite, self.document, self.index) | {"precision": self.part.precision or "fp32"}
        return shared | ({"rounds": self.part.rounds} if self.part.rounds else {})

    @cached_property
    def column(self) -> TableColumn:
        """The column as the table has it."""
        c, whole, shared = self.document.column[self.index], self.suite.document().column[self.index], self.shared
        instead = stand_in(whole, c)
        group = f"{instead} for {c.group or whole.dataset.name}" if instead else c.group
        smallest = c.subset.smallest if c.subset else None
        named = shared["dataset"].name, shared["partition"].name, shared["model"]
        return TableColumn(c.id, group, c.title, *named, shared["clients"], shared["rounds"], smallest, instead)

    @cached_property
    def told(self) -> dict[str, str]:
        """The sources of its values."""
        return origins.of_column(self.suite, self.document, self.index, self.shared)

    def places(self, selected: SelectedRow) -> names.Places:
        """Paths of user-supplied code and data of a row's runs."""
        below = resolve.places(self.suite, self.document, self.index)
        return {**below, "methods": selected.location} if selected.location else below

    def cells(self, selected: SelectedRow) -> list[Cell]:
        """One row in the column: a cell for each stage that the row shows."""
        where = self.suite, self.document, self.index, selected
        points, values = resolve.hyperparameters(*where)
        finetune, tuning = resolve.finetuning(*where) if "finetuned" in selected.scored else (None, {})
        own = self.shared | ({} if selected.rounds is None else {"rounds": selected.rounds})
        own["after"], of_links = self._links(selected)
        rule = self.document.evaluation
        plain = rule.model_dump(include={"clients", "first", "average", "global_on", "moment", "features"})
        last = max(1, min(rule.last, own["rounds"]))
        own["scoring"] = Scoring(stages=selected.scored, finetune=finetune, last=last, **plain)
        runs, choices = self._runs(selected, points, own)
        settings = dict(self.told)
        if selected.rounds is not None:
            settings.pop("rounds", None)
        own_rounds = selected.rounds == selected.entry.rounds
        settings |= {key: source for key, source in selected.entry.given.items() if own_rounds or key != "rounds"}
        unread = origins.unread(runs[0], selected.info)
        sources = {key: source for key, source in settings.items() if key not in unread} | values | of_links
        followed = origins.follows(self.document, selected.row, self.column.id)
        read = self.document.tune.read
        by = read.get(selected.row.id) or read.get(selected.key, "last")
        cells = []
        for stage in selected.row.stages:
            steps = None
            if stage == "finetuned" and finetune:
                steps = resolve.reported_steps(self.suite, self.document, self.index, finetune)
            reading = Reading(stage, steps, self.column.smallest, rule.mean)
            reference = resolve.printed(self.document, selected.row.id, self.column.id, stage)
            own_sources = sources | tuning if stage == "finetuned" else sources
            cells.append(Cell(selected.row, self.column, reading, runs, reference, own_sources, choices, followed, by))
        return cells

    def _links(self, selected: SelectedRow) -> tuple[tuple[Link, ...], dict[str, str]]:
        """Links trained before a row's own method, and the sources of the values, by method and hyperparameter."""
        links, sources = list[Link](), dict[str, str]()
        for one in selected.before:
            points, told = resolve.hyperparameters(self.suite, self.document, self.index, one)
            method = MethodSpec(name=one.info.name, version=one.info.version, hyper=points[0])
            links.append(Link(method=method, rounds=one.rounds or self.shared["rounds"]))
            sources |= {f"{one.info.name}.{key}": source for key, source in told.items()}
        return tuple(links), sources

    def _runs(
        self, selected: SelectedRow, points: Sequence[Mapping[str, Any]], own: Mapping[str, Any]
    ) -> tuple[tuple[RunSpec, ...], tuple[tuple[Choice, ...], ...]]:
        """A cell's runs and choices; `own`: what its runs have in common."""
        read, places = self.suite.own.contents, self.places(selected)
        of_seeds = [{"seed": seed, **read(own, places, seed)} for seed in self.seeds]

        def runs(hyper: Mapping[str, Any], validation: float = 0.0) -> tuple[RunSpec, ...]:
            method = MethodSpec(name=selected.info.name, version=selected.info.version, hyper=dict(hyper))
            with at("run"):
                first = RunSpec(method=method, validation=validation, **{**own, **of_seeds[0]})
            assert first.id  # copies with another seed share what it is hashed from
            every = (first, *(first.model_copy(update=change) for change in of_seeds[1:]))
            return tuple(self.suite.own.standing_for(run, places) for run in every) if places else every

        if selected.entry.validation is None:
            return runs(points[0]), ()
        pairs = [zip(runs(point), runs(point, selected.entry.validation), strict=True) for point in points]
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


class Part(NamedTuple):
    """The selected part of a suite. `labels`: by run id, the run's name beside its column and seed."""

    table: Expansion
    labels: Mapping[str, str]


def parts(suites: Iterable[Suite], part: Selection) -> list[Part]:
    """The selected part of each suite that has runs, as suites of statistics do not. Raises `UsageError`."""
    return [labelled(suite, expand(suite, part)) for suite in suites if suite.document().statistics is None]


def labelled(suite: Suite, table: Expansion) -> Part:
    """A table of a suite with the names of its runs. A run of several rows has the first one's."""
    rows, labels = row_labels(suite, table.profile), dict[str, str]()
    for cell in table.cells:
        for spec in cell.needed:
            labels.setdefault(spec.id, rows.get(cell.row.id, cell.row.method))
    return Part(table, labels)


def row_labels(suite: Suite, profile: str) -> dict[str, str]:
    """The name of the runs of each row of a suite, by the row's id, whatever part of the suite is selected.

    It is their method, or the row's id where another row has other runs of the same method.
    """
    table = expand(suite, profile=profile, seeds=suite.document(profile).suite.seeds[:1])
    runs: dict[str, set[str]] = {}
    for cell in table.cells:
        runs.setdefault(cell.row.id, set()).update(spec.id for spec in cell.needed)
    several = {a.method for a in table.rows for b in table.rows if a.method == b.method and runs[a.id] != runs[b.id]}
    several |= {cell.row.method for cell in table.cells if cell.runs[0].after}
    return {row.id: row.id if row.method in several else row.method for row in table.rows}


def with_columns(parts: Iterable[Part]) -> dict[str, str]:
    """By run id, the run's column and its name there; of several columns, the first."""
    found: dict[str, str] = {}
    for table, labels in parts:
        for cell in table.cells:
            for spec in cell.needed:
                found.setdefault(spec.id, f"{cell.column.called} · {labels[spec.id]}")
    return found
