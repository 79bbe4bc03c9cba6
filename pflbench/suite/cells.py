"""What a suite expands to: the table's cells, and the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from pflbench.names import Places
from pflbench.spec import RunSpec
from pflbench.stages import Shown
from pflbench.suite.schema import Mean, Spread
from pflbench.suite.shortfall import Shortfall


class Reference(NamedTuple):
    """What the paper printed, in percent. `spread` is None where it printed none; `suspect`: why it may be wrong.

    `text`: the mean as it stands there, where it has other decimals than the table.
    """

    mean: float
    spread: float | None
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


class Choice(NamedTuple):
    """A grid's point: the run on all data, and the one that holds the validation share out and is scored on it."""

    run: RunSpec
    validation: RunSpec


@dataclass(frozen=True)
class Cell:
    """A place in the table: the runs (one per seed), and which of their scores it averages.

    `steps` are fine-tuning steps, `(0,)` for the other stages. `sources` says where the value of a hyperparameter or a
    setting comes from (`paper`, `code`, …), for those the suite file says it of; `follows`: what its runs follow, in
    words. `choices`: per seed, the points of the row's grid (empty without one), of which each client takes the one
    with the best validation accuracy; `runs` are the first point's.
    """

    row: TableRow
    column: TableColumn
    stage: Shown
    steps: tuple[int, ...]
    runs: tuple[RunSpec, ...]
    reference: Reference | None
    sources: Mapping[str, str]
    choices: tuple[tuple[Choice, ...], ...] = ()
    follows: str = ""

    @property
    def needed(self) -> tuple[RunSpec, ...]:
        """Every run it is made from, those of its choices included."""
        return tuple(run for points in self.choices for choice in points for run in choice) or self.runs


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
    references: Mapping[tuple[str, Shown], Reference]
    shows_spread: bool = True


@dataclass(frozen=True)
class Expansion:
    """A table to fill: cells in the order column → row → stage, and every run once in the order column → row → seed.

    `stages` are the columns within each column, with their titles (empty: each column is one); `blocks`: the rows
    stand once for every group of columns; `mean`: how cells average clients; `shows_spread`: whether a spread stands
    behind each number. `protocol`: what is followed, in words. `notes` and `departures` are those of what is shown.
    `locations` tells where the code of what is the user's own lives, by run id; it is no part of a run's identity.
    `path` is the suite's file, `extends` the one that it extends. `shortfall` is in what it differs from the whole
    protocol.
    """

    suite: str
    title: str
    paper: str
    protocol: str
    profile: str
    seeds: tuple[int, ...]
    spread: Spread
    mean: Mean
    decimals: int
    bold: str
    stages: Mapping[Shown, str]
    blocks: bool
    costs: bool
    shows_spread: bool
    notes: tuple[str, ...]
    departures: tuple[Departure, ...]
    rows: tuple[TableRow, ...]
    columns: tuple[TableColumn, ...]
    derived: tuple[Derived, ...]
    cells: tuple[Cell, ...]
    runs: tuple[RunSpec, ...]
    locations: Mapping[str, Places]
    path: Path
    extends: Path | None
    shortfall: Shortfall

    @cached_property
    def settings(self) -> frozenset[str]:
        """The `RunSpec.setting` of every run. Seeds and grid points of a cell share it, so one of each is asked.

        Only what is the user's own may differ by seed.
        """
        first = [run for cell in self.cells for run in (cell.choices[0][0] if cell.choices else cell.runs[:1])]
        own = [run for run in self.runs if run.dataset.content or run.partition.content]
        return frozenset(run.setting() for run in (*first, *own))
