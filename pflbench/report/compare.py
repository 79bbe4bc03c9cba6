"""Cells of two results folders side by side, paired by seed: which of them moved beyond noise."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from pflbench.errors import UsageError, unknown
from pflbench.names import without_folder
from pflbench.report.cells import SeedScores, read_seeds
from pflbench.report.extra_rows import EXTRA, extra_rows, variant
from pflbench.report.reading import Shelf, readable
from pflbench.report.statistics import Interval, Paired, paired
from pflbench.report.stored import commit
from pflbench.report.tables import with_results
from pflbench.report.text import ranges
from pflbench.result import CLOSE
from pflbench.selection import Selection
from pflbench.store import ShownStore, Store, shipped
from pflbench.store.requests import requests_of
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.expand import expand
from pflbench.suite.load import read as read_suite
from pflbench.suite.user_supplied import UserSupplied

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
    """Name of a cell: ids of suite, profile, row and column, the titles of the last two, and the stage."""

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
        paired: The differences B minus A in points over the shared seeds; one seed has no interval.
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
    def interval(self) -> Interval | None:
        """The 95 % interval of the difference."""
        return self.paired.interval if self.paired else None

    @property
    def state(self) -> State:
        """State of the cell."""
        if self.b is None or self.a is None:
            return "only-a" if self.b is None else "only-b"
        if self.alike or self.rounding:
            return "same"
        if self.interval is None or self.difference is None:
            return "unpaired"
        if 0 in self.interval:
            return "same"
        return "better" if self.difference > 0 else "worse"

    @property
    def why(self) -> str:
        """A word on its state, where that does not say it all."""
        said = ""
        if self.state == "same":
            same = "same" if self.runs_a == self.runs_b else "same scores"
            said = same if self.alike else "rounding" if self.rounding else "within noise"
        return ", ".join(filter(None, (said, self.note)))

    def drops(self, points: float) -> bool:
        """True if its mean falls by more than this number of points, beyond noise or with one shared seed."""
        if self.difference is None or self.paired is None or self.rounding:
            return False
        return self.difference < -points and (self.interval is None or 0 not in self.interval)


@dataclass(frozen=True)
class ComparedResults:
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

    a: ComparedResults
    b: ComparedResults
    pairs: tuple[Pair, ...]

    @cached_property
    def tested(self) -> int:
        """Number of cells with an interval and other runs or scores, which noise could move."""
        return sum(pair.interval is not None and not pair.alike for pair in self.pairs)


class CellRuns(NamedTuple):
    """Scores that a results folder has of a cell, by seed; at least one seed."""

    cell: Cell
    reads: Mapping[int, SeedScores]

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


def pair(name: Name, a: CellRuns | None, b: CellRuns | None, note: str = "") -> Pair:
    """A cell in A and in B, of which at least one has it. `note`: what there is to know of both."""
    if a is not None and b is not None:
        return _both(name, a, b, note)
    if a is not None:
        return Pair(name, a.mean(a.reads), None, tuple(a.reads), (), a.runs, (), note=note)
    assert b is not None
    return Pair(name, None, b.mean(b.reads), (), tuple(b.reads), (), b.runs, note=note)


def _both(name: Name, a: CellRuns, b: CellRuns, note: str) -> Pair:
    seeds_a, seeds_b = tuple(a.reads), tuple(b.reads)
    shared = [seed for seed in seeds_a if seed in seeds_b]
    means = a.mean(shared or seeds_a), b.mean(shared or seeds_b)
    found = Pair(name, *means, seeds_a, seeds_b, a.runs, b.runs)
    notes = [note, _unshared(seeds_a, seeds_b, shared)]
    others = [seed for seed in shared if _data(a.reads[seed]) != _data(b.reads[seed])]
    if others or not shared:
        return replace(found, note=_said(*notes, f"other data in seeds {ranges(others)}" if others else ""))
    alike = all(_alike(a.reads[seed], b.reads[seed]) for seed in shared)
    lone = f"one seed ({shared[0]}): no interval" if len(shared) == 1 and not alike else ""
    return replace(
        found,
        note=_said(*notes, lone),
        paired=paired([b.of(seed) - a.of(seed) for seed in shared]),
        alike=alike,
        rounding=all(_rounding(a, b, seed) for seed in shared),
    )


def _said(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _unshared(a: Sequence[int], b: Sequence[int], shared: Sequence[int]) -> str:
    if not shared:
        return f"no seed in common: {ranges(a)} in A, {ranges(b)} in B"
    return "" if a == b else f"seeds {ranges(a)} in A, {ranges(b)} in B"


def _data(one: SeedScores) -> str:
    return str(one.result.provenance.get("data_hash") or "unknown")


def _alike(a: SeedScores, b: SeedScores) -> bool:
    """True if all scores that the cell reads of a seed are the same to the last bit."""
    return len(a.rounds) == len(b.rounds) and all(
        (x.clients, x.round, x.steps) == (y.clients, y.round, y.steps) and np.array_equal(x.values, y.values)
        for x, y in zip(a.rounds, b.rounds, strict=True)
    )


def _rounding(a: CellRuns, b: CellRuns, seed: int) -> bool:
    return a.reads[seed].runs == b.reads[seed].runs and abs(a.of(seed) - b.of(seed)) <= CLOSE


_Place = tuple[str, str]
"""The ids of a row and of a column head."""
_Key = tuple[Path, str]
"""A suite's file, and a profile."""


class _Folder(NamedTuple):
    """A results folder, what it was called, its tables with results, and where users' files are looked for."""

    called: str
    store: Store
    shelf: Shelf
    tables: Mapping[_Key, Expansion]
    own: UserSupplied


def compare_folders(a: str, b: str, part: Selection, data_dir: str | Path | None = None) -> Comparison:
    """The cells that either of two results folders has a number for, paired by seed.

    Args:
        a: A results folder, or `packaged`.
        b: Another one.
        part: Which suites, profiles, rows and columns.
        data_dir: Where the datasets are, if not in the data root.

    Raises:
        UsageError: A place cannot be read, something is unknown, or neither has a cell of what is asked for.
    """
    sides = [_open(one, open_results(one), part.but(methods=None, like=None), data_dir) for one in (a, b)]
    keys = dict.fromkeys(key for side in sides for key in side.tables)
    pairs = [one for key in keys for one in _of_table(key, *sides)]
    pairs = _only(pairs, part.methods, sides)
    if not pairs:
        named = " and ".join(part.suites) or "any suite"
        raise UsageError(f"Neither {a!r} nor {b!r} has results of {named} that are asked for.")
    return Comparison(
        _summary(sides[0], (p.runs_a for p in pairs)), _summary(sides[1], (p.runs_b for p in pairs)), tuple(pairs)
    )


def _open(called: str, store: Store, part: Selection, data_dir: str | Path | None) -> _Folder:
    own = readable(store, data_dir)
    tables = with_results(part, store, own)
    return _Folder(called, store, Shelf(store), {(one.path.resolve(), one.profile): one for one in tables}, own)


def _of_table(key: _Key, a: _Folder, b: _Folder) -> list[Pair]:
    """The cells of a table, rows and columns in its order.

    A cell has the seeds that its table has, and all others that both folders have: these are described, whatever the
    suite declares.
    """
    table_a, table_b = a.tables.get(key) or b.tables[key], b.tables.get(key) or a.tables[key]
    cells_a, cells_b = _cells_of(table_a, a), _cells_of(table_b, b)
    more = set() if table_b.part.seeds else _common(table_a, a, b) - set(table_a.seeds) - set(table_b.seeds)
    if more:
        cells_a, cells_b = _with_seeds(cells_a, cells_b, _further(table_a, a, more), _further(table_b, b, more))
    renamed = _others(cells_a, cells_b)
    found = []
    for place in dict.fromkeys([*cells_a, *cells_b]):
        if place in renamed.values():
            continue
        mine, other = cells_a.get(place), cells_b.get(renamed.get(place, place))
        one = other or mine
        assert one is not None
        versions = [variant(side.cell.needed[0]).version for side in (mine, other) if side]
        note = f"version {versions[0]} in A, {versions[1]} in B" if len(set(versions)) > 1 else ""
        head = table_b.head(one.cell) if other else table_a.head(one.cell)
        name = Name(
            table_b.suite, table_b.profile, one.cell.row.id, head.id, one.cell.row.title, head.name, one.cell.stage
        )
        found.append(pair(name, mine, other, note))
    return found


def _common(table: Expansion, *sides: _Folder) -> set[int]:
    """The seeds that every one of these folders has finished runs of the table's settings with."""
    runs = ([run.spec for run in side.shelf.stored.values() if run.failure is None] for side in sides)
    seeds = ({run.seed for run in done if not run.validation and run.setting() in table.settings} for done in runs)
    return set.intersection(*seeds)


def _further(table: Expansion, side: _Folder, seeds: Collection[int]) -> dict[_Place, CellRuns]:
    """The table's cells there over these seeds alone."""
    return _cells_of(expand(read_suite(table.part.suites[0], side.own), table.part, seeds=sorted(seeds)), side)


def _with_seeds(
    a: Mapping[_Place, CellRuns],
    b: Mapping[_Place, CellRuns],
    more_a: Mapping[_Place, CellRuns],
    more_b: Mapping[_Place, CellRuns],
) -> tuple[dict[_Place, CellRuns], dict[_Place, CellRuns]]:
    """The cells of both with the further seeds that both have of a cell."""
    both = {place: more_a[place].reads.keys() & more_b[place].reads.keys() for place in more_a.keys() & more_b.keys()}

    def joined(cells: Mapping[_Place, CellRuns], more: Mapping[_Place, CellRuns]) -> dict[_Place, CellRuns]:
        found = dict(cells)
        for place, seeds in both.items():
            if seeds:
                reads = {**(found[place].reads if place in found else {}), **{s: more[place].reads[s] for s in seeds}}
                found[place] = CellRuns(more[place].cell, dict(sorted(reads.items())))
        return found

    return joined(a, more_a), joined(b, more_b)


def _cells_of(table: Expansion, side: _Folder) -> dict[_Place, CellRuns]:
    """The table's cells that have a number there, with those of extra rows."""
    extra, _ = extra_rows(table, side.shelf.specs, requests_of(side.store))
    table = replace(table, cells=tuple(cell for cell in table.cells if cell.has_scores))
    found = {}
    for place, cell in (table.places | {table.key_of(cell): cell for cell in extra}).items():
        if reads := {one.result.spec.seed: one for one in read_seeds(cell, side.shelf)}:
            found[place] = CellRuns(cell, reads)
    return found


def _others(a: Mapping[_Place, CellRuns], b: Mapping[_Place, CellRuns]) -> dict[_Place, _Place]:
    """For cells of A that B lacks, the one of B that has another version of the same method, if there is just one."""

    def lone(mine: Mapping[_Place, CellRuns], other: Collection[_Place]) -> dict[object, list[_Place]]:
        found: dict[object, list[_Place]] = {}
        for place, one in mine.items():
            if place not in other:
                own = variant(one.cell.needed[0])
                found.setdefault((place[1], one.cell.stage, own.name, own.options), []).append(place)
        return found

    left, right = lone(a, b), lone(b, a)
    return {left[key][0]: right[key][0] for key in left if len(left[key]) == len(right.get(key, ())) == 1}


def _only(pairs: Sequence[Pair], methods: Collection[str], sides: Sequence[_Folder]) -> list[Pair]:
    """The cells of these rows or methods. Raises `UsageError` for one that no cell is of."""
    if not methods:
        return list(pairs)
    specs = {id: stored.spec for side in sides for id, stored in side.shelf.stored.items()}
    names = [{one.name.row, *(specs[id].method.name for id in (*one.runs_a, *one.runs_b))} for one in pairs]
    wanted, known = {without_folder(name) for name in methods}, set[str]().union(*names)
    for name in wanted - known:
        raise unknown("method", name, {other for other in known if not other.startswith(EXTRA)})
    return [one for one, own in zip(pairs, names, strict=True) if own & wanted]


def _summary(side: _Folder, runs: object) -> ComparedResults:
    stored = [side.shelf.stored[id] for id in dict.fromkeys(id for ids in runs for id in ids)]  # type: ignore[attr-defined]
    commits = sorted({commit(one) or "unknown" for one in stored})
    devices = sorted({str(one.provenance.get("device") or "unknown") for one in stored})
    return ComparedResults(side.called, len(stored), tuple(commits), tuple(devices))


PACKAGED = "packaged"
_PARTS = ("runs", "packs")


def open_results(name: str) -> Store:
    """The runs of a results folder, or of `packaged`.

    Raises:
        UsageError: There is no such folder, or it has no results.
    """
    if name == PACKAGED:
        if not shipped.shipped_folder().is_dir():
            raise UsageError("No reference runs came with this pflbench: name a results folder.")
        return ShownStore(shipped.shipped_folder())  # which holds no runs of its own
    root = Path(name)
    if not any((root / part).is_dir() for part in _PARTS):
        what = "is no results folder: it has neither runs nor packs" if root.is_dir() else "is no folder"
        raise UsageError(f"{name!r} {what}. Write two results folders, or `packaged` for one of them.")
    return Store(root)
