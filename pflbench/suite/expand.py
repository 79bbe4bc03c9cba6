"""From a suite to the cells of its table and the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pflbench.errors import UsageError
from pflbench.spec import MethodSpec, Precision, RunSpec, Scoring, Stage
from pflbench.suite import resolve
from pflbench.suite.schema import Document, Spread, Suite, at
from pflbench.suite.select import TableRow, select_columns, select_lines, suite_lines

__all__ = ["Cell", "Expansion", "Reference", "TableColumn", "TableRow", "expand", "parse_seeds"]


class Reference(NamedTuple):
    """What the paper printed, in percent."""

    mean: float
    spread: float


@dataclass(frozen=True)
class TableColumn:
    """A column, as the profile sets it."""

    id: str
    group: str
    title: str
    dataset: str
    partition: str
    model: str
    clients: int
    rounds: int


@dataclass(frozen=True)
class Cell:
    """A place in the table: the runs (one per seed), and which of their scores it averages.

    `steps` are fine-tuning steps, `(0,)` for the other stages. `sources` says where a hyperparameter's value comes from
    (`paper`, `code`, …), for those the suite file says it of.
    """

    row: TableRow
    column: TableColumn
    stage: Stage
    steps: tuple[int, ...]
    runs: tuple[RunSpec, ...]
    reference: Reference | None
    sources: Mapping[str, str]


@dataclass(frozen=True)
class Expansion:
    """A table to fill: cells in the order column → row, and every run once in the order column → row → seed.

    `locations` tells where the code of a user's method lives, by run id; it is no part of a run's identity.
    """

    suite: str
    title: str
    paper: str
    protocol: str
    profile: str
    seeds: tuple[int, ...]
    spread: Spread
    decimals: int
    bold: str
    notes: tuple[str, ...]
    rows: tuple[TableRow, ...]
    columns: tuple[TableColumn, ...]
    cells: tuple[Cell, ...]
    runs: tuple[RunSpec, ...]
    locations: Mapping[str, str]


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
        rounds: Instead of each column's.
        sets: `method.key=value` (a method's id or class name) and `finetune.key=value`, stronger than the file.
        methods: Keeps rows by method or row id; `file.py:Class` or `module:Class` stands for a row of its own.
        precision: Of the runs.
    """
    document = suite.document(profile)
    every = suite_lines(suite, document)
    resolve.check_method_keys(suite, document, every)
    lines = select_lines(every, rows, methods, "finetuned" if document.evaluation.finetune else "global")
    overrides = resolve.settings(document, sets, lines)
    chosen = tuple(document.suite.seeds if seeds is None else seeds)

    shown: list[TableColumn] = []
    cells: list[Cell] = []
    runs: dict[str, RunSpec] = {}
    locations: dict[str, str] = {}
    for index in select_columns(suite, document, columns, datasets, partitions, clients):
        shared = resolve.shared(suite, document, index) | {"precision": precision}
        if rounds is not None:
            shared["rounds"] = rounds
        column = _table_column(document, index, shared["clients"], shared["rounds"])
        shown.append(column)
        for line in lines:
            values, sources = resolve.hyperparameters(suite, document, index, line, overrides)
            finetune = resolve.finetuning(suite, document, index, line, overrides)
            method = MethodSpec(name=line.info.name, version=line.info.version, hyper=values)
            scoring = Scoring(
                clients=document.evaluation.clients,
                first=document.evaluation.first,
                stages=document.stages,
                average=document.evaluation.average,
                finetune=finetune,
            )
            with at("run"):
                specs = tuple(RunSpec(method=method, scoring=scoring, seed=seed, **shared) for seed in chosen)
            stage = line.row.stage
            steps: tuple[int, ...] = (0,)
            if stage == "finetuned" and finetune:
                steps = resolve.reported_steps(suite, document, finetune)
            printed = document.reference.get(line.row.id, {}).get(column.id)
            reference = Reference(*printed) if printed else None
            cells.append(Cell(line.row, column, stage, steps, specs, reference, sources))
            runs |= {spec.id: spec for spec in specs}
            if line.location:
                locations |= dict.fromkeys((spec.id for spec in specs), line.location)
    return Expansion(
        suite=suite.name,
        title=document.suite.title,
        paper=document.suite.paper,
        protocol=document.suite.protocol,
        profile=profile,
        seeds=chosen,
        spread=document.suite.spread,
        decimals=document.layout.decimals,
        bold=document.layout.bold,
        notes=tuple(document.suite.notes),
        rows=tuple(line.row for line in lines),
        columns=tuple(shown),
        cells=tuple(cells),
        runs=tuple(runs.values()),
        locations=locations,
    )


def _table_column(document: Document, index: int, clients: int, rounds: int) -> TableColumn:
    c = document.column[index]
    return TableColumn(c.id, c.group, c.title, c.dataset.name, c.partition.name, c.model, clients, rounds)
