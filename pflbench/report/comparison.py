"""Cells of two results folders side by side, paired by seed: which of them moved beyond noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from pflbench.report.cells import Read
from pflbench.report.reading import EVERYBODY, averaged
from pflbench.report.statistics import Interval, Paired, paired
from pflbench.report.text import ranges
from pflbench.report.versus import clients
from pflbench.result import CLOSE
from pflbench.suite.cells import Cell

State = Literal["worse", "better", "same", "unpaired", "only-a", "only-b"]
STATES: dict[State, str] = {
    "worse": "Worse",
    "better": "Better",
    "same": "Same",
    "unpaired": "Not compared",
    "only-a": "Only in A",
    "only-b": "Only in B",
}
"""In the order in which they are shown, with their titles."""
_NAMED = 3
"""Commits that are told of each side."""
MOVED: tuple[State, ...] = ("worse", "better")


class Name(NamedTuple):
    """Which cell it is: ids of suite, profile, row and column, the titles of the last two, and the stage."""

    suite: str
    profile: str
    row: str
    column: str
    row_title: str
    column_title: str
    stage: str

    def __str__(self) -> str:
        return f"{self.suite} [{self.profile}], {self.row_title}, {self.column_title}"


@dataclass(frozen=True)
class Pair:
    """A cell in A and in B.

    Attributes:
        name: Which cell.
        a, b: Its mean in percent there, over the shared seeds; over all of its seeds where it stands alone.
        seeds_a, seeds_b: Those that are done there.
        runs_a, runs_b: Ids of its runs.
        paired: The differences B minus A in points, over shared seeds or, with one, over its clients.
        seed: That one seed, on which everything is conditional; None with more.
        alike: Whether every score that the cell reads is the same in all shared seeds.
        rounding: Whether the same runs differ by no more than rounding may make them, in every shared seed.
        note: Why nothing is compared, or what else there is to know.
    """

    name: Name
    a: float | None
    b: float | None
    seeds_a: tuple[int, ...] = ()
    seeds_b: tuple[int, ...] = ()
    runs_a: tuple[str, ...] = ()
    runs_b: tuple[str, ...] = ()
    paired: Paired | None = None
    seed: int | None = None
    alike: bool = False
    rounding: bool = False
    note: str = ""

    @property
    def shared(self) -> tuple[int, ...]:
        """The seeds that both have."""
        return tuple(seed for seed in self.seeds_a if seed in self.seeds_b)

    @property
    def difference(self) -> float | None:
        """B minus A in points."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def factor(self) -> float | None:
        """B over A; None where A is 0."""
        return None if self.b is None or not self.a else self.b / self.a

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the difference."""
        return self.paired.interval if self.paired else None

    @property
    def beyond_noise(self) -> bool:
        """Whether the interval excludes 0, and the difference is more than rounding."""
        return not self.rounding and self.interval is not None and 0 not in self.interval

    def state(self, factor: float = 1.0) -> State:
        """What became of it; a change by less than this `factor`, up or down, counts as none."""
        if self.b is None or self.a is None:
            return "only-a" if self.b is None else "only-b"
        if self.alike or self.rounding:
            return "same"
        if self.interval is None or self.difference is None:
            return "unpaired"
        change = self.factor or np.inf
        if not self.beyond_noise or max(change, 1 / change) < factor:
            return "same"
        return "better" if self.difference > 0 else "worse"

    def why(self, factor: float = 1.0) -> str:
        """A word on its state, where that does not say it all."""
        said = ""
        if self.state(factor) == "same":
            same = "same" if self.runs_a == self.runs_b else "same scores"
            quiet = "within noise" if not self.beyond_noise else f"less than a factor of {factor:g}"
            said = same if self.alike else "rounding" if self.rounding else quiet
        on = f"over the clients of seed {self.seed}" if self.seed is not None and not self.alike else ""
        return ", ".join(filter(None, (said, on, self.note)))

    def drops(self, points: float) -> bool:
        """Whether its mean falls by more than so many points, beyond noise."""
        return self.beyond_noise and self.difference is not None and self.difference < -points


@dataclass(frozen=True)
class Side:
    """One of the two: what it was called, how many runs it has, and their commits and devices."""

    called: str
    runs: int
    commits: tuple[str, ...]
    devices: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.called} ({self.runs} {'run' if self.runs == 1 else 'runs'} of these cells"]
        some, more = ", ".join(self.commits[:_NAMED]), len(self.commits) - _NAMED
        parts += [f"commit {some}{f' and {more} more' if more > 0 else ''}"] if self.commits else []
        parts += [f"on {', '.join(self.devices)}"] if self.devices else []
        return f"{'; '.join(parts)})"


@dataclass(frozen=True)
class Comparison:
    """The cells of two results folders that either of them has a number for, in the order of the suites' tables."""

    a: Side
    b: Side
    pairs: tuple[Pair, ...]

    @cached_property
    def tested(self) -> int:
        """How many cells have an interval and other runs or scores, so that noise could move them."""
        return sum(pair.interval is not None and not pair.alike for pair in self.pairs)


class Found(NamedTuple):
    """What a results folder has of a cell, by seed; at least one."""

    cell: Cell
    reads: Mapping[int, Read]

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of all runs."""
        return tuple(dict.fromkeys(id for one in self.reads.values() for id in one.runs))

    def mean(self, seeds: Iterable[int]) -> float:
        """The mean in percent over these seeds."""
        return float(np.mean([self.of(seed) for seed in seeds]))

    def of(self, seed: int) -> float:
        """A seed's mean in percent."""
        return float(self.reads[seed].average(self.cell.reading).mean())

    def by_client(self, seed: int) -> dict[int, float]:
        """Of a seed, the accuracy in percent of each client that counts."""
        one = self.reads[seed]
        counted = {client for *_, client in averaged(one.result, self.cell.reading)}
        return {client: value for client, value in clients(one).items() if client in counted - {EVERYBODY}}


def pair(name: Name, a: Found | None, b: Found | None, note: str = "") -> Pair:
    """A cell in A and in B, of which at least one has it. `note`: what there is to know of both."""
    if a is not None and b is not None:
        return _both(name, a, b, note)
    if a is not None:
        return Pair(name, a.mean(a.reads), None, tuple(a.reads), (), a.runs, (), note=note)
    assert b is not None
    return Pair(name, None, b.mean(b.reads), (), tuple(b.reads), (), b.runs, note=note)


def _both(name: Name, a: Found, b: Found, note: str) -> Pair:
    seeds_a, seeds_b = tuple(a.reads), tuple(b.reads)
    shared = [seed for seed in seeds_a if seed in seeds_b]
    means = a.mean(shared or seeds_a), b.mean(shared or seeds_b)
    found = Pair(name, *means, seeds_a, seeds_b, a.runs, b.runs)
    notes = [note, _unshared(seeds_a, seeds_b, shared)]
    others = [seed for seed in shared if _data(a.reads[seed]) != _data(b.reads[seed])]
    if others or not shared:
        return replace(found, note=_said(*notes, f"other data in seeds {ranges(others)}" if others else ""))
    differences = _differences(a, b, shared)
    alike = all(_alike(a.reads[seed], b.reads[seed]) for seed in shared)
    lone = "" if differences or alike else f"one score of one seed ({shared[0]})"
    return replace(
        found,
        note=_said(*notes, lone),
        paired=paired(differences) if differences else None,
        seed=shared[0] if len(shared) == 1 else None,
        alike=alike,
        rounding=all(_rounding(a, b, seed) for seed in shared),
    )


def _differences(a: Found, b: Found, shared: Sequence[int]) -> list[float]:
    """B minus A of each seed or, where that is one, of each client that both score."""
    if len(shared) > 1:
        return [b.of(seed) - a.of(seed) for seed in shared]
    (seed,) = shared
    mine, other = a.by_client(seed), b.by_client(seed)
    return [other[client] - mine[client] for client in mine if client in other]


def _said(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _unshared(a: Sequence[int], b: Sequence[int], shared: Sequence[int]) -> str:
    if not shared:
        return f"no seed in common: {ranges(a)} in A, {ranges(b)} in B"
    return "" if a == b else f"seeds {ranges(a)} in A, {ranges(b)} in B"


def _data(one: Read) -> str:
    return str(one.result.provenance.get("data_hash") or "unknown")


def _alike(a: Read, b: Read) -> bool:
    """Whether everything that the cell reads of a seed is the same to the last bit."""
    return len(a.rounds) == len(b.rounds) and all(
        (x.clients, x.round, x.steps) == (y.clients, y.round, y.steps) and np.array_equal(x.values, y.values)
        for x, y in zip(a.rounds, b.rounds, strict=True)
    )


def _rounding(a: Found, b: Found, seed: int) -> bool:
    return a.reads[seed].runs == b.reads[seed].runs and abs(a.of(seed) - b.of(seed)) <= CLOSE
