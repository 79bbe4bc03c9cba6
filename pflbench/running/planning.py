"""Plan of a training: the time that missing runs take, by finished runs. Trains nothing."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich import box
from rich import table as grid

from pflbench.console import Console
from pflbench.errors import UsageError
from pflbench.result import core_seconds
from pflbench.running.again import often_enough
from pflbench.running.datasets import DataCheck, shown_by, to_count
from pflbench.running.machine import processor, product_seconds
from pflbench.running.shards import in_shard
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store import ShownStore, Stored
from pflbench.store.shipped import came_with_pflbench
from pflbench.suite.cells import Expansion
from pflbench.suite.document import Suite
from pflbench.suite.expand import Part, parts
from pflbench.units import Shard, count, duration

LONG_ENOUGH = 4
"""A finished run speaks for runs of at most so many times its rounds."""
BYTES_PER_RUN = 21_000  # a stored run of 20 clients × 51 points, measured
RUNS, SCALED, ELSEWHERE = "runs", "another machine, scaled", "another machine"
"""Sources of a time: finished runs on this machine's processor; those of another, scaled by one product of matrices."""
WIDTH = 100
"""Of a plan as text, in characters."""


class Estimate(NamedTuple):
    """Seconds that one run takes on one core or device, and their source."""

    seconds: float
    source: str


class Line(NamedTuple):
    """The runs of a row in a column: every run's state in the store, and what each of the missing ones takes.

    `missing`: None where the time is unknown. `lacks`: why they cannot be trained, a sentence for each thing that is
    not in the data root.
    """

    column: str
    label: str
    rounds: int
    states: Sequence[str]
    missing: Mapping[RunSpec, Estimate | None]
    lacks: tuple[str, ...]

    @property
    def unknown(self) -> list[RunSpec]:
        """The missing runs whose time is unknown."""
        return [spec for spec, known in self.missing.items() if known is None]

    @property
    def known(self) -> list[Estimate]:
        """The estimates of the other missing runs."""
        return [one for one in self.missing.values() if one]

    @property
    def time(self) -> str:
        """Time that its missing runs take together; empty if there are none."""
        return "unknown" if self.unknown else duration(_total(self.known)) if self.missing else ""

    @property
    def sources(self) -> str:
        """Sources of their times, separated by commas."""
        return ", ".join(sorted({one.source for one in self.known}))


@dataclass(frozen=True)
class TablePlan:
    """Time that a table's runs take. `str` and rich's consoles show it as a table."""

    table: Expansion
    lines: tuple[Line, ...]

    @property
    def total(self) -> str:
        """Total cost, in a sentence."""
        known = [one for line in self.lines for one in line.known]
        to_do, unknown = sum(len(line.missing) for line in self.lines), sum(len(line.unknown) for line in self.lines)
        costs = [f"{duration(_total(known))} of computing on one core or device"] if known else []
        if elsewhere := [one for one in known if one.source == ELSEWHERE]:
            costs.append(f"{duration(_total(elsewhere))} of it as another machine took")
        costs += [f"time unknown for {unknown}"] if unknown else []
        costs += [f"about {to_do * BYTES_PER_RUN / 1e6:.1f} MB of results"] if to_do else []
        return f"{count(to_do, 'run')} to do{': ' if costs else ''}{', '.join(costs)}."

    def __rich_console__(self, *_: object) -> Iterator[grid.Table | str]:
        """A table that leaves ids whole in 80 characters; failures and missing data only if there are any."""
        title = f"{self.table.title} · profile {self.table.profile}"
        shown = grid.Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        failed = any("failed" in line.states for line in self.lines)
        lacks = any(line.lacks for line in self.lines)
        for head in ("column", "method"):
            shown.add_column(head, overflow="fold")
        for head in ("runs", "done", *(["failed"] if failed else []), "rounds", "time"):
            shown.add_column(head, justify="right", no_wrap=True)
        shown.add_column("source", overflow="fold")
        if lacks:
            shown.add_column("data", no_wrap=True)
        for line in self.lines:
            states = [len(line.states), *(line.states.count(one) for one in ("done", *(["failed"] if failed else [])))]
            data = ["no" if line.lacks else "yes"] if lacks else []
            shown.add_row(line.column, line.label, *map(str, [*states, line.rounds]), line.time, line.sources, *data)
        yield shown
        yield self.total

    def __str__(self) -> str:
        console = Console(width=WIDTH, color_system=None, soft_wrap=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip("\n")


@dataclass(frozen=True)
class Plan:
    """Time that the missing runs of some tables take.

    Attributes:
        tables: The tables that have runs.
        remarks: Of suites that train nothing, why, and what would be counted; in sentences.
        lacks: Why some cannot be trained: suites that refuse the selection, what is not in the data root; in sentences.
    """

    tables: tuple[TablePlan, ...]
    remarks: tuple[str, ...]
    lacks: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.remarks, *map(str, self.tables), *self.lacks])


def _total(estimates: Sequence[Estimate]) -> float:
    return sum(one.seconds for one in estimates)


def plan(
    suites: Sequence[Suite],
    part: Selection,
    results: Path,
    root: Path,
    *,
    shard: Shard | None = None,
    fresh: bool = False,
) -> Plan:
    """Plan the missing runs of these suites, as `pflbench.plan` does, whose arguments these are.

    `root`: the data root; `shard`: only this part of the runs.

    Raises:
        UsageError: The selection names something unknown, or does not fit any of the suites.
        StoreError: The results folder cannot be read.
    """
    data, store = DataCheck(root), ShownStore(results, fresh=fresh)
    remarks = tuple(line for suite in suites for line in _remarks(suite, part, results, data))
    asked, refusals = _parts([suite for suite in suites if suite.document().row], part)
    stored = _by_id(store.list())  # once: a look-up of each run reads the folder again
    history = _history(ShownStore(results).list() if fresh else stored.values())
    wanted = _wanted(asked, shard)
    if shipped := sum((run := stored.get(spec.id)) is not None and run.shipped for spec in wanted):
        remarks += (came_with_pflbench(shipped, len(wanted)),)
    tables = [_table_plan(one, wanted, stored, data, Times(history)) for one in asked]
    lacks = [sentence for table in tables for line in table.lines if line.missing for sentence in line.lacks]
    return Plan(tuple(tables), remarks, tuple(dict.fromkeys([*refusals, *lacks])))


def _wanted(asked: Sequence[Part], shard: Shard | None) -> set[RunSpec]:
    """The runs of these tables that are in the shard."""
    places = {id: where for table, _ in asked for id, where in table.locations.items()}
    return set(in_shard([spec for table, _ in asked for spec in table.runs], places, shard))


def _parts(suites: Sequence[Suite], part: Selection) -> tuple[list[Part], list[str]]:
    """The selected part of each suite, and why others refuse the selection. Raises `UsageError` if all do."""
    found, refusals = list[Part](), dict[str, UsageError]()
    for suite in suites:
        try:
            found += parts([suite], part)
        except UsageError as error:
            refusals[suite.name] = error
    if refusals and not found:
        raise next(iter(refusals.values()))
    return found, [f"{name} is left out. {error}" for name, error in refusals.items()]


def _remarks(suite: Suite, part: Selection, results: Path, data: DataCheck) -> Iterator[str]:
    """Of a suite that trains nothing, why, and what `run` would count."""
    document, name = suite.document(), suite.called or suite.path
    if document.statistics is not None:
        yield f"{name} trains nothing: `pflbench run --suite {name}` counts what its datasets hold."
        for dataset, counted in to_count([suite], part, results):
            lacks = data.problems(dataset.federations[0], dataset.places) if counted.counts is None else ()
            yield f"  {counted}{f' {lacks[0]}' if lacks else ''}"
    elif not document.row:
        yield shown_by(suite, part, results)


def _table_plan(
    asked: Part, wanted: Collection[RunSpec], stored: Mapping[str, Stored], data: DataCheck, times: Times
) -> TablePlan:
    """A table's wanted runs, each in the line where it stands first."""
    table, labels = asked
    seen: set[RunSpec] = set()
    lines = []
    for cell in table.cells:
        specs = [spec for spec in cell.needed if spec in wanted and spec not in seen]
        seen.update(specs)
        if specs:
            states = [_state(stored.get(spec.id), spec, cell.every) for spec in specs]
            places = {spec: table.locations.get(spec.id, {}) for spec in specs}
            todo = [spec for spec, state in zip(specs, states, strict=True) if state == "missing"]
            lacks = dict.fromkeys(one for spec in todo for one in data.problems(spec, places[spec]))
            missing = {spec: times.of(spec, cell.every) for spec in todo}
            name, rounds = labels[specs[0].id], specs[0].rounds
            lines.append(Line(cell.column.id, name, rounds, states, missing, tuple(lacks)))
    return TablePlan(table, tuple(lines))


History = Mapping[tuple[str, int | None, str], tuple[int, float]]
"""Of the finished runs of a kind, scored as often, by source: the most rounds, and a round's seconds here."""


@dataclass
class Times:
    """Times of runs, by the finished runs of their `_kind` that are scored as often and have a fourth of their rounds.

    Those that this machine's processor made come first.
    """

    history: History

    def of(self, spec: RunSpec, every: int | None = None) -> Estimate | None:
        """Time of one run; None if it is unknown. Seeds differ in nothing that costs time.

        `every`: the interval of rounds after which it is scored, too; None: its last rounds alone.
        """
        for source in (RUNS, SCALED, ELSEWHERE):
            rounds, seconds = self.history.get((_kind(spec), every, source), (0, 0.0))
            if LONG_ENOUGH * rounds >= spec.rounds:
                return Estimate(seconds * spec.rounds, source)
        return None


def _kind(spec: RunSpec) -> str:
    """Key that is equal for runs whose rounds take the same time, in canonical form: stored runs sort their keys."""
    same = ("method", "model", "batch", "cohort", "dataset", "precision", "scoring")
    return json.dumps(spec.model_dump(mode="json", include=set(same)), sort_keys=True)


def _by_id(runs: Iterable[Stored]) -> dict[str, Stored]:
    return {run.spec.id: run for run in runs}


def _state(run: Stored | None, spec: RunSpec, every: int | None) -> str:
    """State of a run; a finished one that was scored less often than its suite asks for is missing."""
    if run is None or run.failure is not None:
        return "missing" if run is None else "failed"
    return "done" if often_enough(run.provenance, spec, every) else "missing"


def _history(stored: Iterable[Stored]) -> History:
    """Times of finished runs, scoring included: the median of the longest ones, as loading weighs on short ones."""
    rates: dict[tuple[str, int | None, str], list[tuple[int, float]]] = {}
    for run in stored:
        if run.failure is None and (seconds := core_seconds(run.provenance)):
            source, product = ELSEWHERE, run.provenance.get("product_seconds")
            if run.provenance.get("device") == processor():
                source = RUNS
            elif product:
                source, seconds = SCALED, seconds * product_seconds() / product
            key = _kind(run.spec), run.provenance.get("evaluate_every"), source
            rates.setdefault(key, []).append((run.spec.rounds, seconds / run.spec.rounds))
    longest = {key: max(values)[0] for key, values in rates.items()}
    return {key: (longest[key], median(s for n, s in values if n == longest[key])) for key, values in rates.items()}
