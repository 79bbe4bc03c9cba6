"""What a suite expands to: the table's cells, and the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from pflbench.names import Places
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.stages import Shown, canonical
from pflbench.suite.schema import Mean, Spread
from pflbench.suite.shortfall import Shortfall
from pflbench.units import seed_text

UNPRINTED = ("guess", "tuned")
"""Where a value comes from that neither the paper nor its code gives: guessed, or tuned by us."""


class Reference(NamedTuple):
    """What the paper printed, in percent. `spread` is None where it printed none; `suspect`: why it may be wrong.

    `text`: the mean as it stands there, where it has other decimals than the table.
    """

    mean: float
    spread: float | None = None
    suspect: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class TableRow:
    """A row: `method` is the name in the runs' specs; `stages` are those the table shows, in its order."""

    id: str
    title: str
    method: str
    stages: tuple[Shown, ...]


@dataclass(frozen=True)
class TableColumn:
    """A column, as the profile sets it. `smallest`: it reads so many clients, those with the fewest examples.

    Where the profile puts another dataset in the place of the paper's, `group` says so, and `stands_in` is that one.
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
    stands_in: str = ""

    @property
    def called(self) -> str:
        """Its id and, where that speaks of another dataset, the one that it has."""
        return f"{self.id} (on {self.stands_in})" if self.stands_in else self.id

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
    """How a cell reads a run's scores: the stage, and the fine-tuning steps to average (None: the last one).

    `smallest`: only the so many clients with the fewest support examples count (ties: the lower client number). `mean`:
    each client counts the same, or is weighted by its number of test examples.
    """

    stage: Shown
    steps: tuple[int, ...] | None = None
    smallest: int | None = None
    mean: Mean = "clients"


class Choice(NamedTuple):
    """A grid's point: the run on all data, and the one that holds the validation share out and is scored on it."""

    run: RunSpec
    validation: RunSpec


@dataclass(frozen=True)
class Cell:
    """A place in the table: the runs (one per seed), and which of their scores it averages.

    `sources` says where the value of a hyperparameter or a setting comes from (`paper`, `code`, …), for those the suite
    file says it of; `follows`: what its runs follow, in words. `choices`: per seed, the points of the row's grid (empty
    without one), of which each client takes the one with the best validation accuracy; `runs` are the first point's.
    """

    row: TableRow
    column: TableColumn
    reading: Reading
    runs: tuple[RunSpec, ...]
    reference: Reference | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[tuple[Choice, ...], ...] = ()
    follows: str = ""

    @property
    def stage(self) -> Shown:
        """Which models it shows."""
        return self.reading.stage

    @cached_property
    def by_seed(self) -> tuple[tuple[RunSpec, ...], ...]:
        """For each seed every run it is made from, those of its choices included."""
        if self.choices:
            return tuple(tuple(run for choice in points for run in choice) for points in self.choices)
        return tuple((run,) for run in self.runs)

    @cached_property
    def needed(self) -> tuple[RunSpec, ...]:
        """The same runs of all seeds."""
        return tuple(run for runs in self.by_seed for run in runs)

    @property
    def has_scores(self) -> bool:
        """Whether its runs are scored at its stage."""
        return set(canonical([self.stage])) <= set(self.needed[0].scoring.stages)

    @property
    def rests_on(self) -> dict[str, str]:
        """Settings and hyperparameters whose values are `UNPRINTED`, and which of it each is."""
        return {key: source for key, source in self.sources.items() if source in UNPRINTED}


class Departure(NamedTuple):
    """What differs from the paper's text, in these rows and columns (ids): what the paper says, and what is done here.

    `source`: where ours comes from (`code`, `guess`, …). `code`: what the authors' code does, where we do not follow it
    (else empty). `grave`: conclusions name it.
    """

    what: str
    paper: str
    here: str
    source: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    code: str = ""
    grave: bool = False

    @property
    def kind(self) -> Literal["code", "silence", "text"]:
        """What it departs from: the authors' code, nothing (the paper is silent, and a gap is filled), or the text."""
        if self.code:
            return "code"
        return "silence" if self.paper.startswith("not said") else "text"

    @property
    def told(self) -> str:
        """Both sides in sentences."""
        code = f" Code: {self.code}." if self.code else ""
        return f"Paper: {self.paper}.{code} Here: {self.here}."

    def concerns(self, cell: Cell) -> bool:
        """Whether the cell is one of those."""
        return cell.row.id in self.rows and cell.column.id in self.columns


@dataclass(frozen=True)
class Derived:
    """A further row or column: the first of two minus the second.

    `references` go by the id on the other axis (a derived row's: the column's) and the stage. `shows_spread`: a spread
    stands behind each difference.
    """

    id: str
    title: str
    axis: Literal["rows", "columns"]
    of: tuple[str, str]
    references: Mapping[tuple[str, str], Reference]
    shows_spread: bool = True


@dataclass(frozen=True)
class Caption:
    """What is said of a table above and below it, whatever fills it.

    `spread` is what stands behind a number, `shows_spread` whether one does. `notes` are those of what is shown,
    `shortfall` is in what it differs from the suite's whole protocol.
    """

    suite: str
    title: str
    paper: str
    profile: str
    spread: Spread
    shows_spread: bool
    notes: tuple[str, ...]
    shortfall: Shortfall

    @property
    def published(self) -> bool:
        """Whether some paper has this table, as far as the suite says."""
        return self.paper != "none"

    @property
    def heading(self) -> str:
        """The title, with the profile and how much there is of the whole, where it is not all."""
        profile = () if self.profile == "paper" else (f"profile: {self.profile}",)
        said = "; ".join((*profile, *self.shortfall.counts))
        return f"{self.title} [{said}]" if said else self.title


@dataclass(frozen=True)
class Expansion(Caption):
    """A table to fill: cells in the order column → row → stage, and every run once in the order column → row → seed.

    `stages` are the columns within each column, with their titles (empty: each column is one); `blocks`: the rows
    stand once for every group of columns; `costs`: the lines below tell what a round costs each row. `protocol`: what
    is followed, in words. `departures` are those of what is shown. `locations` tells where the code of what is the
    user's own lives, by run id; it is no part of a run's identity. `path` is the suite's file, `extends` the one that
    it extends, `part` the selection that it expands.
    """

    protocol: str
    seeds: tuple[int, ...]
    decimals: int
    bold: str
    stages: Mapping[Shown, str]
    blocks: bool
    costs: bool
    departures: tuple[Departure, ...]
    rows: tuple[TableRow, ...]
    columns: tuple[TableColumn, ...]
    derived: tuple[Derived, ...]
    cells: tuple[Cell, ...]
    runs: tuple[RunSpec, ...]
    locations: Mapping[str, Places]
    path: Path
    extends: Path | None
    part: Selection

    @property
    def published(self) -> bool:
        """Whether some paper has this table, or a number of it."""
        return super().published or any(cell.reference for cell in self.cells)

    @cached_property
    def heads(self) -> tuple[ColumnHead, ...]:
        """The columns as they are shown, each with all its stages."""
        labels = self.stages if len(self.stages) > 1 else dict.fromkeys(self.stages, "")
        return tuple(
            ColumnHead(column, stage, labels.get(stage, "") if stage else "")
            for column in self.columns
            for stage in (labels or (None,))
        )

    def with_spread(self, shown: bool | None) -> Expansion:
        """The same with a spread behind each number, or without (None: as it is)."""
        if shown is None:
            return self
        return replace(self, shows_spread=shown, derived=tuple(replace(d, shows_spread=shown) for d in self.derived))

    def place(self, cell: Cell) -> tuple[str, str]:
        """The ids of a cell's row and `ColumnHead`."""
        return cell.row.id, ColumnHead(cell.column, cell.stage if self.stages else None).id

    @cached_property
    def places(self) -> dict[tuple[str, str], Cell]:
        """The cells by their places."""
        return {self.place(cell): cell for cell in self.cells}

    def asks(self, cell: Cell) -> dict[str, str | int]:
        """What a run of a cell remembers of who asked for it: where it stands, and what was other than the suite's.

        `file` is where a suite lies that does not come with pflbench.
        """
        said: dict[str, str | int] = {"suite": self.suite, "profile": self.profile}
        said |= {"row": cell.row.id, "column": cell.column.id}
        if self.part.suites[0] != self.suite:
            said["file"] = self.part.suites[0]
        if self.part.rounds:
            said["rounds"] = self.part.rounds
        if self.part.seeds:
            said["seeds"] = seed_text(self.part.seeds)
        if self.part.precision:
            said["precision"] = self.part.precision
        return said

    @cached_property
    def settings(self) -> frozenset[str]:
        """The `RunSpec.setting` of every run. Seeds and grid points of a cell share it, so one of each is asked.

        Only what is the user's own may differ by seed.
        """
        first = [run for cell in self.cells for run in (cell.choices[0][0] if cell.choices else cell.runs[:1])]
        own = [run for run in self.runs if run.dataset.content or run.partition.content]
        return frozenset(run.setting() for run in (*first, *own))
