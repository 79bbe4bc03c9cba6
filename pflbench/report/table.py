"""What a table is made from (`TableInput`) and what it becomes (`Table`). All accuracies are in percent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pflbench.spec import RunSpec
from pflbench.stages import canonical

UNPRINTED = ("guess", "tuned")
"""Where a value comes from that neither the paper nor its code gives: guessed, or tuned by us."""


@dataclass(frozen=True)
class Reading:
    """How a cell reads a run's scores: the stage, and the fine-tuning steps to average (None: the last one).

    `smallest`: only the so many clients with the least support rows count (ties: the lower client number). `mean`: each
    client counts the same, or is weighted by its number of test examples.
    """

    stage: str
    steps: tuple[int, ...] | None = None
    smallest: int | None = None
    mean: Literal["clients", "examples"] = "clients"


@dataclass(frozen=True)
class Reference:
    """A number as the paper printed it. `suspect` says why it may be wrong.

    `text`: how the mean is shown, where not with the table's decimals.
    """

    mean: float
    spread: float | None = None
    suspect: str | None = None
    text: str | None = None


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
    """A column: its id, its title as printed, the group above it (may be empty), and what the CSV says of it.

    Where a table shows several stages, a column of the suite stands here once for each: `stage` is its stage and
    `label` what the paper calls it; `column` is the suite's column. A column of differences has what both sides share.
    """

    id: str
    title: str
    group: str
    column: str
    dataset: str
    partition: str
    clients: int | None
    rounds: int
    """Those of the column; a row may have its own."""
    stage: str | None = None
    label: str = ""

    @property
    def setting(self) -> str:
        """Group and title in one line: what all stages of the suite's column share."""
        return f"{self.group} {self.title}".strip()

    @property
    def name(self) -> str:
        """Everything above the column in one line."""
        return f"{self.setting} {self.label}".strip()


class Choice(NamedTuple):
    """A grid point with one seed: the run to read, and the one that shows how good the point is for each client."""

    run: RunSpec
    validation: RunSpec


@dataclass(frozen=True)
class CellInput:
    """A place in the table and how to read its runs, one per seed.

    With `choices` (per seed, all grid points) each client is read from the run of the point that is best for it, and
    `runs` are those of the first point.
    """

    row: str
    column: str
    """The id of the `ColumnHead`."""
    reading: Reading
    runs: tuple[RunSpec, ...]
    reference: Reference | None = None
    choices: tuple[tuple[Choice, ...], ...] = ()
    rests_on: Mapping[str, str] = field(default_factory=dict)
    """Settings and hyperparameters whose values are `UNPRINTED`, and which of it each is."""

    @property
    def needed(self) -> tuple[tuple[RunSpec, ...], ...]:
        """For each seed the runs that must be done."""
        if self.choices:
            return tuple(tuple(run for point in points for run in point) for points in self.choices)
        return tuple((run,) for run in self.runs)

    @property
    def asked(self) -> tuple[RunSpec, ...]:
        """Every run that the cell needs."""
        return tuple(run for runs in self.needed for run in runs)

    @property
    def has_scores(self) -> bool:
        """Whether its runs are scored at the stage it reads."""
        return set(canonical([self.reading.stage])) <= set(self.asked[0].scoring.stages)


@dataclass(frozen=True)
class Derived:
    """A row or column of differences, `of[0]` minus `of[1]`: ids of rows, or of the suite's columns.

    `references`: what the paper printed, by the id of the column (or row) that it crosses, and the stage.
    """

    id: str
    title: str
    axis: Literal["rows", "columns"]
    of: tuple[str, str]
    references: Mapping[tuple[str, str], Reference] = field(default_factory=dict)
    with_spread: bool = True
    """Whether a spread stands behind each difference, if one stands behind the table's numbers."""


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
    """By the ids of row and `ColumnHead`."""
    spread: Spread
    decimals: int = 2
    bold_best: bool = True
    protocol: str = "not said"
    notes: tuple[str, ...] = ()
    departures: tuple[str, ...] = ()
    """In what the runs differ from the paper's text, a few words each."""
    counts: tuple[str, ...] = ()
    """How much there is of the suite's whole (`3 of 1000 rounds`), where it is not all."""
    shortfall: str = ""
    """What the runs have less of than the suite's whole protocol, or other: then nothing compares with the paper."""
    elsewhere: frozenset[str] = frozenset()
    """Ids of runs that another table of the same paper names: they are no extra rows here."""
    blocks: bool = False
    """Whether the groups of columns stand below each other, each with all rows."""
    costs: bool = False
    """Whether the footer tells what a round costs each row."""
    derived: tuple[Derived, ...] = ()
    with_spread: bool = True
    """Whether a spread stands behind each number."""

    @property
    def heading(self) -> str:
        """The title, with the profile and how much there is of the whole, where it is not all."""
        said = "; ".join((*([] if self.profile == "paper" else [f"profile: {self.profile}"]), *self.counts))
        return f"{self.title} [{said}]" if said else self.title

    @property
    def settings(self) -> dict[str, str]:
        """The suite's columns: ids and titles."""
        return {head.column: head.setting for head in self.columns}


class Recent(NamedTuple):
    """A cell over the last of the rounds that its runs were scored in, where it shows the last one alone.

    `mean` is over these rounds and the seeds, `least` and `most` are those of a single run, `step` is the most by which
    a run moves from one of these rounds to the next. `last`: the last round's mean over the same seeds.
    """

    rounds: tuple[int, int]
    """The first and the last of them."""
    seeds: tuple[int, ...]
    """Those whose runs were scored in enough rounds."""
    mean: float
    least: float
    most: float
    step: float
    last: float


SUSPECT = "reference suspect"


@dataclass(frozen=True)
class Verdict:
    """How a cell compares to the paper, and why; `ratio` is the difference in joint spreads.

    `suspect`: why the paper's number may be wrong, which stands beside the comparison and does not hide it.
    """

    label: Literal["within 1", "within 2", "off", "too few seeds", "not comparable"]
    reason: str
    ratio: float | None = None
    suspect: str | None = None

    @property
    def word(self) -> str:
        """The verdict in a word, for who reads no more: that of a suspect number is not its difference."""
        return self.label if self.suspect is None else SUSPECT


@dataclass(frozen=True)
class CellValue:
    """A filled cell. `mean` is None if no run is done, the spreads are None below two seeds."""

    method: str
    stage: str
    rounds: int
    done: int
    expected: int
    failed: int
    runs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Ids of the runs read, by seed."""
    mean: float | None = None
    std: float | None = None
    sem: float | None = None
    spread: float | None = None
    seeds: Mapping[int, float] = field(default_factory=dict)
    """The mean of each seed that counts: `mean` is theirs."""
    on_test: Reference | None = None
    """Where grid points were chosen: mean and spread if they were chosen on the test scores instead."""
    plain: float | None = None
    """Where clients are weighted by their test examples: the mean in which each counts the same."""
    left_out: int = 0
    """At stage "stored": how many clients never took part, over all seeds, and so have nothing to score."""
    recent: Recent | None = None
    """At stage "global", where enough rounds were scored and the cell shows the last: the rounds before it as well."""
    reference: Reference | None = None
    verdict: Verdict | None = None
    best: bool = False
    mixed: bool = False
    """Whether the column mixes data or method versions, so that its cells cannot be compared."""
    rests_on: Mapping[str, str] = field(default_factory=dict)
    """As in the `CellInput`; a difference rests on what both sides rest on."""

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
    blocks: bool
    footer: tuple[str, ...]
    comparable: bool = True
    """False where the footer says of the whole table that it does not compare with the paper."""
