"""What a table is made from (`TableInput`) and what it becomes (`Table`). All accuracies are in percent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pflbench.spec import RunSpec


@dataclass(frozen=True)
class Reading:
    """How a cell reads a run's scores: the stage, and the fine-tuning steps to average (None: the last one)."""

    stage: str
    steps: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Reference:
    """A number as the paper printed it. `suspect` says why it may be wrong."""

    mean: float
    spread: float | None = None
    suspect: str | None = None


@dataclass(frozen=True)
class Spread:
    """What stands after the ±: `of="each-step"` averages over the steps read the spread of each of them."""

    kind: Literal["std", "sem"] = "std"
    ddof: int = 0
    of: Literal["each-step", "mean"] = "mean"


@dataclass(frozen=True)
class RowHead:
    """A row: its id and its title as printed."""

    id: str
    title: str


@dataclass(frozen=True)
class ColumnHead:
    """A column: its id, its title as printed, the group above it (may be empty), and what the CSV says of it."""

    id: str
    title: str
    group: str
    dataset: str
    partition: str
    clients: int

    @property
    def name(self) -> str:
        """Group and title in one line."""
        return f"{self.group} {self.title}".strip()


@dataclass(frozen=True)
class CellInput:
    """A place in the table: one run per seed and how to read them."""

    row: str
    column: str
    stage: str
    steps: tuple[int, ...] | None
    runs: tuple[RunSpec, ...]
    reference: Reference | None = None

    @property
    def reading(self) -> Reading:
        """Stage and steps."""
        return Reading(self.stage, self.steps)


@dataclass(frozen=True)
class TableInput:
    """An expanded suite under one profile. Cells the paper leaves out are left out here."""

    suite: str
    title: str
    paper: str
    profile: str
    rows: tuple[RowHead, ...]
    columns: tuple[ColumnHead, ...]
    cells: Mapping[tuple[str, str], CellInput]
    spread: Spread
    decimals: int = 2
    bold_best: bool = True
    protocol: str = "code"
    notes: tuple[str, ...] = ()
    comparable: bool = True
    """False where fewer rounds, other data or the like were asked for than the paper's protocol demands."""


@dataclass(frozen=True)
class Verdict:
    """How a cell compares to the paper, and why; `ratio` is the difference in joint spreads."""

    label: Literal["within 1", "within 2", "off", "too few seeds", "reference suspect", "not comparable"]
    reason: str
    ratio: float | None = None


@dataclass(frozen=True)
class CellValue:
    """A filled cell. `mean` is None if no run is done, the spreads are None below two seeds."""

    method: str
    stage: str
    rounds: int
    done: int
    expected: int
    failed: int
    runs: tuple[str, ...] = ()
    """Ids of the runs read."""
    mean: float | None = None
    std: float | None = None
    sem: float | None = None
    spread: float | None = None
    reference: Reference | None = None
    verdict: Verdict | None = None
    best: bool = False
    mixed: bool = False
    """Whether the column mixes data or method versions, so that its cells cannot be compared."""

    @property
    def complete(self) -> bool:
        """Whether every seed asked for is done."""
        return self.done == self.expected

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.reference is None else self.mean - self.reference.mean


@dataclass(frozen=True)
class Row:
    """A row with a value (or None) per column."""

    id: str
    title: str
    cells: tuple[CellValue | None, ...]


@dataclass(frozen=True)
class Table:
    """A finished table: `rows` as the paper has them, `extra` runs that the suite does not name, footer lines."""

    suite: str
    title: str
    profile: str
    columns: tuple[ColumnHead, ...]
    rows: tuple[Row, ...]
    extra: tuple[Row, ...]
    decimals: int
    footer: tuple[str, ...]
