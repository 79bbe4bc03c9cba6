"""Cells of a suite's table, and the runs behind them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from pflbench.catalog import MethodInfo
from pflbench.names import Places
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.stages import Shown, canonical
from pflbench.suite.figure import Sizes
from pflbench.suite.schema import LayoutTable, Mean, Spread
from pflbench.suite.scoped import Departure, Note, Remarks, anywhere, holding

UNPRINTED = ("guess", "tuned")
"""Sources of values that neither the paper nor its code gives: guessed, or tuned by us."""


ReadAs = Literal["last", "last-10", "best"]
"""Scored rounds of a run that a cell reads: those that the suite names, the last ten, or the best."""


class Reference(NamedTuple):
    """Number that the paper printed, in percent. `spread`: None if it printed none; `suspect`: why it may be wrong.

    `text`: the mean as it stands there, where it has other decimals than the table. `inferred`: the setting that was
    inferred from this number, which then compares with nothing.
    """

    mean: float
    spread: float | None = None
    suspect: str | None = None
    text: str | None = None
    inferred: str | None = None


@dataclass(frozen=True)
class TableRow:
    """A row: `method` is the name in the runs' specs; `stages` are those the table shows, in its order.

    `like`: id of the row whose hyperparameters it takes (`--like`); empty for a row of the suite.
    """

    id: str
    title: str
    method: str
    stages: tuple[Shown, ...]
    like: str = ""


@dataclass(frozen=True)
class TableColumn:
    """A column, as the profile sets it. `smallest`: it reads so many clients, those with the fewest examples.

    Where the profile puts another dataset in the place of the paper's, `group` says so, and `replacement` is that one.
    """

    id: str
    group: str
    title: str
    dataset: str
    partition: str
    model: str
    clients: int
    rounds: int
    smallest: int | None = None
    replacement: str = ""

    @property
    def called(self) -> str:
        """Its id and, where that speaks of another dataset, the one that it has."""
        return f"{self.id} (on {self.replacement})" if self.replacement else self.id

    @property
    def setting(self) -> str:
        """Group and title in one line."""
        return f"{self.group} {self.title}".strip()


@dataclass(frozen=True)
class ColumnHead:
    """A column as the table shows it: once or, where the table shows several stages, once for each of them.

    `label` is what the paper calls the stage; `stage` is None where each row has its own.
    """

    column: TableColumn
    stage: Shown | None = None
    label: str = ""

    @property
    def id(self) -> str:
        """Its id: the column's, with the stage if there is one."""
        return self.column.id if self.stage is None else f"{self.column.id}/{self.stage}"

    @property
    def name(self) -> str:
        """Everything above it in one line."""
        return f"{self.column.setting} {self.label}".strip()


@dataclass(frozen=True)
class Reading:
    """Reading of a run's scores by a cell: the stage, and the fine-tuning steps to average (None: the last one).

    `smallest`: only the so many clients with the fewest support examples count (ties: the lower client number). `mean`:
    each client counts the same, or is weighted by its number of test examples. `read_as`: in which rounds.
    """

    stage: Shown
    steps: tuple[int, ...] | None = None
    smallest: int | None = None
    mean: Mean = "clients"
    read_as: ReadAs = "last"


class Choice(NamedTuple):
    """A grid's point: the run on all data, and the one that holds the validation share out and is scored on it."""

    run: RunSpec
    validation: RunSpec


@dataclass(frozen=True)
class Cell:
    """A cell of the table: its runs, and which of their scores it averages.

    Attributes:
        runs: One per seed; in a row with a grid those of the first point.
        sources: Where values come from (`paper`, `code`, …), by hyperparameter and setting, as far as the suite says.
        choices: Per seed, the points of the row's grid, of which each client takes the one with the best validation
            accuracy; empty without a grid.
        follows: What its runs follow, in words.
        tuned_by: Scored rounds of the trials that chose its tuned values, as far as trials have so many.
        every: Interval of rounds after which its runs are scored, too; None: none.
    """

    row: TableRow
    column: TableColumn
    reading: Reading
    runs: tuple[RunSpec, ...]
    reference: Reference | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[tuple[Choice, ...], ...] = ()
    follows: str = ""
    tuned_by: ReadAs = "last"
    every: int | None = None

    @property
    def stage(self) -> Shown:
        """The stage that it shows."""
        return self.reading.stage

    def read(self, as_: ReadAs) -> Cell:
        """The same, read in other rounds."""
        return self if self.reading.read_as == as_ else replace(self, reading=replace(self.reading, read_as=as_))

    def of_seeds(self, seeds: Collection[int]) -> Cell:
        """The same with the runs of these seeds alone."""
        choices = tuple(points for points in self.choices if points[0].run.seed in seeds)
        return replace(self, runs=tuple(run for run in self.runs if run.seed in seeds), choices=choices)

    @cached_property
    def by_seed(self) -> tuple[tuple[RunSpec, ...], ...]:
        """For each seed all its runs, those of its choices included."""
        if self.choices:
            return tuple(tuple(run for choice in points for run in choice) for points in self.choices)
        return tuple((run,) for run in self.runs)

    @cached_property
    def needed(self) -> tuple[RunSpec, ...]:
        """All its runs, of all seeds."""
        return tuple(run for runs in self.by_seed for run in runs)

    @property
    def has_scores(self) -> bool:
        """True if its runs are scored at its stage."""
        return set(canonical([self.stage])) <= set(self.needed[0].scoring.stages)

    @property
    def rests_on(self) -> dict[str, str]:
        """The settings and hyperparameters whose source is one of `UNPRINTED`, with their source."""
        return {key: source for key, source in self.sources.items() if source in UNPRINTED}


def unread(run: RunSpec, info: MethodInfo | None) -> set[str]:
    """The settings of a column that one of its runs does not read; `info`: its method, None if that is not known.

    A method's own value, its batch say, stands in place of the column's. Some methods draw no minibatches. Passes that
    are drawn anew have a short last minibatch or none, whatever `tail` says.
    """
    result = set(run.method.hyper)
    if info and not info.minibatches:
        result.add("batch")
    if run.keeps_tail != (run.tail == "keep"):
        result.add("tail")
    return result


@dataclass(frozen=True)
class Derived:
    """A further row or column, the difference of two: the first minus the second.

    `references` go by the id on the other axis (of a derived row: the column) and the stage.
    """

    id: str
    title: str
    axis: Literal["rows", "columns"]
    of: tuple[str, str]
    references: Mapping[tuple[str, str], Reference]
    shows_spread: bool = True


@dataclass(frozen=True)
class Shortfall:
    """Differences of a table from its suite's whole protocol, in words; empty if there are none.

    `rounds`, `seeds` and `columns` read like "3 of 5 seeds"; `other` names all other differences of its runs.
    """

    rounds: str = ""
    seeds: str = ""
    columns: str = ""
    other: tuple[str, ...] = ()
    longer: bool = False
    """True if runs have more rounds than the protocol's."""

    @property
    def kind(self) -> str:
        """The relation of its runs to the protocol, in words."""
        return "other rounds than the protocol's" if self.longer else "less than the whole protocol"

    @property
    def counts(self) -> tuple[str, ...]:
        """The numbers of rounds, seeds and columns, for a title."""
        return tuple(text for text in (self.rounds, self.seeds, self.columns) if text)

    @property
    def runs(self) -> str:
        """The differences of its runs from the protocol's; empty if there are none."""
        return "; ".join(text for text in (self.rounds, *self.other) if text)


class CountedColumn(NamedTuple):
    """A column of a suite of statistics, whose images are counted.

    Attributes:
        federations: For each seed the spec of a run that is never trained; its id identifies the federation.
        places: Paths of its user-supplied code and data.
        printed: Numbers that the paper printed.
    """

    column: TableColumn
    federations: tuple[RunSpec, ...]
    places: Places
    printed: Sizes | None

    @property
    def title(self) -> str:
        """Title of its line."""
        instead = self.column.replacement
        return f"{instead} for {self.column.title}" if instead else self.column.title


@dataclass(frozen=True)
class Expansion:
    """A table without its numbers, and the runs that it needs.

    Attributes:
        paper: "none" for a table of no paper.
        spread: Meaning of ±.
        protocol: What its runs follow, in words.
        stages: The stages that each column shows side by side, with their titles; empty: each row shows one.
        layout: How the table is shown.
        cells: In the order column, row, stage.
        runs: Each once, in the order column, row, seed.
        locations: By run id, paths of user-supplied code and data; no part of a run's identity.
        extends: The suite file that this one, `path`, extends.
        part: The selection that it expands.
        paper_round: Scored round of the paper's numbers.
        remarks: Notes, departures and the like of the suite.
        counted: The columns of a suite of statistics, which has no cells.
    """

    suite: str
    title: str
    paper: str
    profile: str
    spread: Spread
    shows_spread: bool
    notes: tuple[str, ...]
    shortfall: Shortfall
    protocol: str
    seeds: tuple[int, ...]
    stages: Mapping[Shown, str]
    layout: LayoutTable
    rows: tuple[TableRow, ...]
    columns: tuple[TableColumn, ...]
    derived: tuple[Derived, ...]
    cells: tuple[Cell, ...]
    runs: tuple[RunSpec, ...]
    locations: Mapping[str, Places]
    path: Path
    extends: Path | None
    part: Selection
    paper_round: ReadAs = "last"
    remarks: Remarks = ()
    counted: tuple[CountedColumn, ...] = ()

    @property
    def published(self) -> bool:
        """True if some paper has this table, or a number in it."""
        return self.paper != "none" or any(cell.reference for cell in self.cells)

    @property
    def heading(self) -> str:
        """The title, with the profile and with what the table has less of than the whole protocol."""
        profile = () if self.profile == "paper" else (f"profile: {self.profile}",)
        less = "; ".join((*profile, *self.shortfall.counts))
        return f"{self.title} [{less}]" if less else self.title

    @cached_property
    def heads(self) -> tuple[ColumnHead, ...]:
        """The columns as they are shown, each with all its stages."""
        return tuple(self._head(column, stage) for column in self.columns for stage in self.stages or (None,))

    def head(self, cell: Cell) -> ColumnHead:
        """The column that a cell stands in."""
        return self._head(cell.column, cell.stage if self.stages else None)

    def _head(self, column: TableColumn, stage: Shown | None) -> ColumnHead:
        label = self.stages.get(stage, "") if stage and len(self.stages) > 1 else ""
        return ColumnHead(column, stage, label)

    def key_of(self, cell: Cell) -> tuple[str, str]:
        """The ids of a cell's row and `ColumnHead`."""
        return cell.row.id, self.head(cell).id

    def notes_on(self, cells: Iterable[Cell]) -> tuple[str, ...]:
        """Its notes, but for those that are about rows or columns and none of these cells."""
        here = anywhere(self.remarks, Note, [(None, None), *((cell.row, cell.column.id) for cell in cells)])
        every = {one.text for file in self.remarks for one in file if isinstance(one, Note)}
        elsewhere = every - {one.text for one in here}
        return tuple(note for note in self.notes if note not in elsewhere)

    @cached_property
    def departures(self) -> tuple[Departure, ...]:
        """Departures that concern some cell."""
        places = [(row, column.id) for row in self.rows or (None,) for column in self.columns]
        return anywhere(self.remarks, Departure, places)

    def departures_of(self, cell: Cell) -> list[Departure]:
        """Departures that concern a cell."""
        return list(holding(self.remarks, Departure, cell.row, cell.column.id))

    @cached_property
    def places(self) -> dict[tuple[str, str], Cell]:
        """The cells by their places."""
        return {self.key_of(cell): cell for cell in self.cells}

    def provenance(self, cell: Cell) -> dict[str, str | int | list[int] | list[str]]:
        """Provenance of a cell's runs: its place in the table, and selected values that replace the suite's.

        `file` is the path of a suite that does not come with pflbench.
        """
        part, file = self.part, self.part.suites[0]
        names = {cell.row.method, cell.row.method.rpartition(":")[2], "finetune"}
        chosen: dict[str, str | int | list[int] | list[str] | None] = {
            "file": None if file == self.suite else file,
            "rounds": part.rounds,
            "seeds": list(part.seeds),
            "precision": part.precision,
            "like": cell.row.like,
            "set": [one for one in part.overrides if one.partition("=")[0].rpartition(".")[0].strip() in names],
        }
        requested = {"suite": self.suite, "profile": self.profile, "row": cell.row.id, "column": cell.column.id}
        return requested | {key: value for key, value in chosen.items() if value}

    @cached_property
    def settings(self) -> frozenset[str]:
        """The `RunSpec.setting` of every run."""
        # Seeds and grid points of a cell share it, unless user-supplied data differ by seed.
        first = [run for cell in self.cells for run in (cell.choices[0][0] if cell.choices else cell.runs[:1])]
        reading = [run for run in self.runs if run.dataset.content or run.partition.content]
        return frozenset(run.setting() for run in (*first, *reading))
