"""The finished table: filled cells in rows and columns. All accuracies are in percent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pflbench.report.facts import Fact, Kind
from pflbench.report.statistics import Paired
from pflbench.report.verdict import Verdict
from pflbench.suite.cells import ColumnHead, ReadAs, Reference


class Gap(NamedTuple):
    """A cell's seeds that were scored in several rounds, each reading's mean by seed, in percent."""

    last: Mapping[int, float]
    recent: Mapping[int, float]
    best: Mapping[int, float]
    """The best scored round of each seed."""
    at: Mapping[int, int]
    """Round of that score; ties: the first."""
    averaged: tuple[int, int]
    """The fewest and the most rounds that `recent` averages."""
    scored: tuple[int, int]
    """The fewest and the most rounds that a seed was scored in, of which `best` takes one."""
    alone: tuple[int, ...] = ()
    """Seeds of the cell that were scored in one round only, which is read; they are in none of the means here."""

    def mean(self, which: ReadAs) -> float:
        """A reading's mean over the seeds."""
        found = {"last": self.last, "last-10": self.recent, "best": self.best}[which]
        return float(np.mean(list(found.values())))


class Beside(NamedTuple):
    """Another suite's value in a cell's place, and the row's rank in the column in that suite and in this one.

    The ranks are over `seeds`, which both suites' runs have; they are None where one of the two has no number.
    """

    value: CellValue
    there: int | None
    here: int | None
    seeds: tuple[int, ...] = ()

    @property
    def ranks(self) -> str:
        """`2 → 4`; empty without ranks."""
        return "" if self.there is None else f"{self.there} → {self.here}"


class Peak(NamedTuple):
    """Best scored round of a cell whose paper prints best rounds, and what it lies above the last, by seed.

    `lead` is None where no run was scored in several rounds: then the last is the best.
    """

    best: CellValue
    lead: CellValue | None
    scored: tuple[int, int]
    """The fewest and the most rounds that a seed was scored in."""
    at: float | None = None
    """Median over seeds of the best round; None without `lead`."""


@dataclass(frozen=True)
class CellValue:
    """A filled cell. `mean` is None if no run is done, the spreads are None below two seeds."""

    method: str = ""
    stage: str = ""
    rounds: int = 0
    done: int = 0
    expected: int = 0
    failed: int = 0
    runs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Ids of the runs read, by seed."""
    mean: float | None = None
    std: float | None = None
    sem: float | None = None
    spread: float | None = None
    seeds: Mapping[int, float] = field(default_factory=dict)
    """The mean of each seed that counts: `mean` is theirs."""
    on_test: Reference | None = None
    """Mean and spread if grid points were chosen on the test scores instead; None without a grid."""
    plain: float | None = None
    """Mean in which each client counts the same, if the cell weights clients by their test examples."""
    left_out: int = 0
    """At stage "stored": how many clients never took part, over all seeds, and so have nothing to score."""
    gap: Gap | None = None
    """Means in other rounds, if the table is not read at the last round."""
    peak: Peak | None = None
    """Its best round, if that is what the paper prints and the cell shows the last one."""
    reference: Reference | None = None
    verdict: Verdict | None = None
    """Comparison with the paper's number: of the best round where there is a `peak`."""
    best: bool = False
    """True if its printed number is the highest of its column, whatever seeds are missing."""
    mixed: bool = False
    """True if the column mixes data or method versions, so that its cells cannot be compared."""
    rests_on: Mapping[str, str] = field(default_factory=dict)
    """As in the `Cell`; a difference rests on what both sides rest on."""
    beside: Beside | None = None
    """Value of another suite, if this suite asks for it."""
    told: str | None = None
    """Text in the place of a number."""

    @property
    def there(self) -> bool:
        """True if a run of it is stored, done or failed."""
        return bool(self.done or self.failed)

    @property
    def complete(self) -> bool:
        """True if every seed asked for is done."""
        return self.done == self.expected

    @property
    def leads(self) -> bool:
        """True if it is the best of its column so far, with seeds missing."""
        return self.best and not self.complete

    @property
    def compared(self) -> CellValue:
        """The value that is held against the paper's number: the best round's where there is a `peak`."""
        return self.peak.best if self.peak else self

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's: of the best round where there is a `peak`."""
        ours = self.compared.mean
        return None if ours is None or self.reference is None else ours - self.reference.mean


Grid = dict[tuple[str, str], CellValue]
"""Filled cells by the ids of row and head."""


@dataclass(frozen=True)
class Against:
    """A cell minus the rival's of its column, in points.

    Attributes:
        paired: Over the seeds that both have.
        p: The paired t-test's, adjusted by Holm over the column; None with one seed.
    """

    paired: Paired
    p: float | None = None


class Versus(NamedTuple):
    """A rival's title, and the cells that were held against it, by the ids of row and head."""

    rival: str
    cells: Mapping[tuple[str, str], Against]


class Fairness(NamedTuple):
    """Spread of a cell over its clients. Each number is the mean over seeds of one seed's statistic.

    Attributes:
        seeds: How many of the cell's seeds scored clients one by one.
        clients: The fewest and the most clients of one of them.
        mean: Of the clients, each counting the same.
        worst: The mean of the worst tenth of the clients (at least one).
        worst_std: Its standard deviation over seeds (ddof = 1); None with one seed.
        spread: The standard deviation over clients (ddof = 0: they are all there are).
        spread_std: As of the worst tenth.
        smallest: The mean of the tenth of the clients with the fewest support images, at least one; None where the runs
            do not say how many a client has.
        training: The mean of the clients that train, and
        held_out: that of those that do not; both None unless both are scored.
    """

    seeds: int
    clients: tuple[int, int]
    mean: float
    worst: float
    worst_std: float | None
    spread: float
    spread_std: float | None
    smallest: float | None
    training: float | None
    held_out: float | None


@dataclass(frozen=True)
class Row:
    """A row with a value (or None) per column."""

    id: str
    title: str
    cells: tuple[CellValue | None, ...]


@dataclass(frozen=True)
class Table:
    """A finished table: `rows` as the paper has them, `extra` runs that the suite does not name, and its facts."""

    suite: str
    title: str
    profile: str
    columns: tuple[ColumnHead, ...]
    rows: tuple[Row, ...]
    extra: tuple[Row, ...]
    decimals: int
    blocks: bool
    facts: tuple[Fact, ...]
    comparable: bool = True
    """False where the footer says of the whole table that it does not compare with the paper."""
    read_as: ReadAs = "last"
    """In which of the scored rounds its cells are read."""
    beside: bool = False
    """True if another suite's numbers and the ranks stand beside its own."""
    versus: Versus | None = None
    """Its cells held against a rival's."""
    unit: str = "Accuracy in %"
    """Unit of its numbers; empty for counts."""
    brief: bool = False
    """True for the short form, which has the paper's numbers beside its own and fits a screen."""
    missing: str = ""
    """Runs of the suite that are not done, and the command that computes them; empty if all are."""
    fills: str = ""
    """The command that computes the missing runs."""
    fairness: Mapping[tuple[str, str], Fairness] | None = None
    """Spread of cells over clients by the ids of row and head, if it is asked for."""

    @property
    def footer(self) -> tuple[str, ...]:
        """Texts of all facts."""
        return tuple(fact.text for fact in self.facts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Texts of the facts that every format shows."""
        return tuple(fact.text for fact in self.facts if fact.severity == "warning")

    @property
    def on_rounds(self) -> list[str]:
        """Warnings on rounds that were chosen by their scores."""
        return [fact.text for fact in self.facts if fact.kind == "rounds" and fact.severity == "warning"]

    def texts(self, *kinds: Kind) -> list[str]:
        """Texts of the facts of these kinds."""
        return [fact.text for fact in self.facts if fact.kind in kinds]

    @property
    def shown(self) -> Iterator[tuple[Row, ColumnHead, CellValue]]:
        """Row by row, what has a stored run, the suite's rows first."""
        for row in (*self.rows, *self.extra):
            for head, value in zip(self.columns, row.cells, strict=True):
                if value is not None and value.there:
                    yield row, head, value

    @property
    def compared(self) -> bool:
        """True if the paper has a number for one of its cells, and the footer does not say that none compares."""
        return self.comparable and any(value and value.reference for row in self.rows for value in row.cells)

    @property
    def has_results(self) -> bool:
        """True if a run of it is stored, done or failed."""
        return any(self.shown)
