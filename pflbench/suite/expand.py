"""From a suite to the cells of its table and the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pflbench import names
from pflbench.errors import UsageError
from pflbench.spec import Finetune, MethodSpec, Precision, RunSpec, Scoring
from pflbench.stages import Shown
from pflbench.suite import origins, resolve
from pflbench.suite.cells import Cell, Choice, Departure, Derived, Expansion, Reference, TableColumn, TableRow
from pflbench.suite.document import Document, Suite
from pflbench.suite.select import Line, select_columns, select_lines, suite_lines
from pflbench.suite.shortfall import shortfall, stand_in
from pflbench.suite.staging import staged
from pflbench.suite.strict import at

__all__ = [
    "Cell",
    "Choice",
    "Departure",
    "Derived",
    "Expansion",
    "Reference",
    "TableColumn",
    "TableRow",
    "expand",
    "parse_seeds",
]


def parse_seeds(text: str) -> tuple[int, ...]:
    """`"0-4"`, `"0,2,5"` or a mixture → the seeds, in that order."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = (p.strip() for p in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise UsageError(f"{text!r} is not a list of seeds: write 0-4 or 0,2,5.")
        seeds += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(seeds))


def expand(
    suite: Suite,
    *,
    profile: str = "paper",
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    clients: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    sets: Sequence[str] = (),
    methods: Sequence[str] | None = None,
    precision: Precision = "fp32",
) -> Expansion:
    """The table of a suite, or the part of it that the selectors leave.

    Args:
        suite: The suite, from `load.load`.
        profile: Which of its profiles.
        rows: Keeps these rows, by id.
        columns: Keeps these columns, by id.
        datasets: Keeps the columns on these datasets (the paper's or the profile's).
        partitions: Keeps the columns with these partitions.
        clients: Keeps the columns with these numbers of clients.
        seeds: Instead of the suite's.
        rounds: Instead of each column's; a row that has its own keeps them if they are not more.
        sets: `method.key=value` (a method's id or class name) and `finetune.key=value`, stronger than the file. On a
            hyperparameter of a grid it leaves the grid this one value.
        methods: Keeps rows by method or row id; `file.py:Class` or `module:Class` stands for a row of its own.
        precision: Of the runs.

    Raises:
        UsageError: Something is unknown or does not fit, or the suite is one of statistics, which has no runs.
    """
    document = suite.document(profile)
    if document.statistics is not None:
        prints = f"`pflbench report --suite {suite.called or suite.path}`"
        raise UsageError(f"{suite.name} trains nothing: {prints} counts the examples of its datasets.")
    suite = replace(suite, own=suite.own.anew())
    for index in range(len(document.column)):
        suite.own.choose(**resolve.references(suite, document, index))
    every = suite_lines(suite, document)
    resolve.check_method_keys(suite, document, every)
    lines = [_at_most(rounds, line) for line in select_lines(every, rows, methods, document, suite.own)]
    chosen = tuple(document.suite.seeds if seeds is None else seeds)
    overrides = resolve.settings(document, sets, lines)
    lines = [staged(suite, document, line, overrides) for line in lines]
    filler = _Filler(suite, document, overrides, chosen)

    shown: list[TableColumn] = []
    cells: list[Cell] = []
    locations: dict[str, names.Places] = {}
    indices = select_columns(suite, document, columns, datasets, partitions, clients)
    for index in indices:
        shared = resolve.shared(suite, document, index) | {"precision": precision}
        if rounds is not None:
            shared["rounds"] = rounds
        column = _table_column(suite.document(), document, index, shared)
        shown.append(column)
        told = origins.of_column(suite, document, index, shared)
        for line in lines:
            found = filler.cells(index, column, line, shared, told)
            cells += found
            places = filler.places(index, line)
            if places:
                locations |= dict.fromkeys((spec.id for spec in found[0].needed), places)
    head, layout = document.suite, document.layout
    named = [(line.row.id, line.key) for line in lines], [column.id for column in shown]
    return Expansion(
        suite=suite.name,
        title=head.title,
        paper=head.paper,
        protocol=origins.protocol(document, lines, shown),
        profile=profile,
        seeds=chosen,
        spread=head.spread,
        mean=document.evaluation.mean,
        decimals=layout.decimals,
        bold=layout.bold,
        stages=dict(layout.stages),
        blocks=layout.blocks == "group",
        costs=layout.costs,
        shows_spread=layout.spread,
        notes=(*origins.notes(document, *named), *suite.own.remarks),
        departures=origins.departures(document, *named),
        rows=tuple(line.row for line in lines),
        columns=tuple(shown),
        derived=_derived(document, [line.row for line in lines], [column.id for column in shown]),
        cells=tuple(cells),
        runs=tuple({spec.id: spec for cell in cells for spec in cell.needed}.values()),
        locations=locations,
        path=suite.path,
        extends=suite.path.parent / head.extends if head.extends else None,
        shortfall=shortfall(suite.document(), document, indices, rounds, chosen),
    )


def _at_most(rounds: int | None, line: Line) -> Line:
    return line if rounds is None or line.rounds is None else replace(line, rounds=min(line.rounds, rounds))


def _table_column(paper: Document, document: Document, index: int, shared: Mapping[str, Any]) -> TableColumn:
    c, whole = document.column[index], paper.column[index]
    instead = stand_in(whole, c)
    group = f"{instead} for {c.group or whole.dataset.name}" if instead else c.group
    smallest = c.subset.smallest if c.subset else None
    named = shared["dataset"].name, shared["partition"].name, shared["model"]
    return TableColumn(c.id, group, c.title, *named, shared["clients"], shared["rounds"], smallest, instead)


@dataclass(frozen=True)
class _Filler:
    """Fills a table's places, under what the command line sets."""

    suite: Suite
    document: Document
    overrides: Sequence[resolve.Setting]
    seeds: tuple[int, ...]

    def cells(
        self, index: int, column: TableColumn, line: Line, shared: Mapping[str, Any], told: Mapping[str, str]
    ) -> list[Cell]:
        """One row in one column: a cell for each stage that the row shows. `told`: the column's sources."""
        where = self.suite, self.document, index, line, self.overrides
        points, values = resolve.hyperparameters(*where)
        finetune = resolve.finetuning(*where) if "finetuned" in line.scored else None
        own = dict(shared) if line.rounds is None else dict(shared, rounds=line.rounds)
        own["scoring"] = self._scoring(line, finetune, own["rounds"])
        runs, choices = self._runs(line, points, own, self.places(index, line))
        settings = origins.settings(self.document, line, told)
        # A method's own batch, say, stands in place of the column's.
        sources = {key: source for key, source in settings.items() if key not in points[0]} | values
        fixed = {key for target, key, _ in self.overrides if target == "finetune"}
        tuning = origins.finetuning(self.document, index, line, fixed) if finetune else {}
        followed = origins.follows(self.document, line.row, line.key, column.id)
        cells = []
        for stage in line.row.stages:
            steps: tuple[int, ...] = (0,)
            if stage == "finetuned" and finetune:
                steps = resolve.reported_steps(self.suite, self.document, index, finetune)
            reference = resolve.printed(self.document, line.row.id, column.id, stage)
            own_sources = sources | tuning if stage == "finetuned" else sources
            cells.append(Cell(line.row, column, stage, steps, runs, reference, own_sources, choices, followed))
        return cells

    def places(self, index: int, line: Line) -> names.Places:
        """Where the code of a row in a column is, as far as it is the user's own."""
        method: names.Places = {"methods": line.location} if line.location else {}
        return {**resolve.places(self.suite, self.document, index), **method}

    def _scoring(self, line: Line, finetune: Finetune | None, rounds: int) -> Scoring:
        rule = self.document.evaluation
        return Scoring(
            clients=rule.clients,
            first=rule.first,
            stages=line.scored,
            average=rule.average,
            finetune=finetune,
            global_on=rule.global_on,
            moment=rule.moment,
            last=max(1, min(rule.last, rounds)),
            features=rule.features,
        )

    def _runs(
        self, line: Line, points: Sequence[Mapping[str, Any]], own: Mapping[str, Any], places: names.Places
    ) -> tuple[tuple[RunSpec, ...], tuple[tuple[Choice, ...], ...]]:
        """A cell's runs and choices; `own`: what its runs have in common; `places`: of `places`."""

        def runs(hyper: Mapping[str, Any], validation: float = 0.0) -> tuple[RunSpec, ...]:
            method = MethodSpec(name=line.info.name, version=line.info.version, hyper=dict(hyper))
            with at("run"):
                own_of = [dict(own, seed=seed) | self.suite.own.contents(own, places, seed) for seed in self.seeds]
                first = RunSpec(method=method, validation=validation, **own_of[0])
            assert first.id  # copies with another seed share what it is hashed from
            changes = [{key: value for key, value in one.items() if value is not own_of[0][key]} for one in own_of[1:]]
            return first, *(first.model_copy(update=change) for change in changes)

        if line.validation is None:
            return runs(points[0]), ()
        pairs = [zip(runs(point), runs(point, line.validation), strict=True) for point in points]
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
        references: dict[tuple[str, Shown], Reference] = {}
        for other, stage, row, column in places:
            if printed := resolve.printed(document, row, column, stage):
                references[other, stage] = printed
        found.append(Derived(d.id, d.title, d.axis, d.of, references, d.spread and document.layout.spread))
    return tuple(found)
