"""What training part of some suites would take, as far as measurements and finished runs tell. Trains nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pflbench import names
from pflbench.executor.machine import processor
from pflbench.names import Places
from pflbench.running.counting import to_count
from pflbench.running.events import OnEvent, unheard
from pflbench.running.missing_data import DataCheck
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.speed.records import seconds_per_example, trial_key, trials
from pflbench.store import Store
from pflbench.suite.cells import Expansion
from pflbench.suite.document import Suite
from pflbench.suite.labels import Part, parts
from pflbench.units import count, duration

LONG_ENOUGH = 4
"""A finished run speaks for runs of at most so many times its rounds."""
BYTES_PER_RUN = 21_000  # a stored run of 20 clients × 51 points, measured
MEASURED, RUNS, ELSEWHERE = "measured", "runs", "another machine"
"""What a time is known from: measurements and finished runs on this machine, finished runs of another one."""

NOT_MEASURED = "Unknown times can be measured: leave out --no-measure (in Python, measure=False)."


class Estimate(NamedTuple):
    """What one run takes on one core or device, in seconds, and where that is known from."""

    seconds: float
    source: str


class Line(NamedTuple):
    """The runs of a row in a column: every run's state in the store, and what each of the missing ones takes.

    `estimates`: None where the time is unknown. `lacks`: why they cannot be trained, a sentence for each thing that is
    not in the data root.
    """

    column: str
    label: str
    rounds: int
    states: Sequence[str]
    missing: Sequence[RunSpec]
    estimates: Sequence[Estimate | None]
    lacks: tuple[str, ...]

    @property
    def unknown(self) -> list[RunSpec]:
        """The missing runs whose time is unknown."""
        return [spec for spec, known in zip(self.missing, self.estimates, strict=True) if known is None]

    @property
    def known(self) -> list[Estimate]:
        """The estimates of the other missing runs."""
        return [one for one in self.estimates if one]

    @property
    def time(self) -> str:
        """What its missing runs take together; empty if there are none."""
        return "unknown" if self.unknown else duration(_total(self.known)) if self.missing else ""

    @property
    def sources(self) -> str:
        """Where their times are known from, separated by commas."""
        return ", ".join(sorted({one.source for one in self.known}))


@dataclass(frozen=True)
class TablePlan:
    """What a table's runs would take."""

    table: Expansion
    lines: tuple[Line, ...]

    @property
    def total(self) -> str:
        """What it costs in all, in a sentence."""
        known = [one for line in self.lines for one in line.known]
        to_do, unknown = sum(len(line.missing) for line in self.lines), sum(len(line.unknown) for line in self.lines)
        costs = [f"{duration(_total(known))} of computing on one core or device"] if known else []
        if elsewhere := [one for one in known if one.source == ELSEWHERE]:
            costs.append(f"{duration(_total(elsewhere))} of it as another machine took")
        costs += [f"time unknown for {unknown}"] if unknown else []
        costs += [f"about {to_do * BYTES_PER_RUN / 1e6:.1f} MB of results"] if to_do else []
        return f"{count(to_do, 'run')} to do{': ' if costs else ''}{', '.join(costs)}."

    def __str__(self) -> str:
        lines = [f"{self.table.title} · profile {self.table.profile}"]
        for line in self.lines:
            source = f" ({line.sources})" if line.sources else ""
            time = f"time {line.time}{source}" if line.missing else "nothing to do"
            data = ", data missing" if line.lacks else ""
            done = f"{line.states.count('done')} of {count(len(line.states), 'run')} done"
            lines.append(f"  {line.column} · {line.label}: {done}, {time}{data}")
        return "\n".join([*lines, self.total])


@dataclass(frozen=True)
class Plan:
    """What training would take.

    Attributes:
        tables: The tables that have runs.
        remarks: Of suites that train nothing, why, and what would be counted; in sentences.
        lacks: What is not in the data root, a sentence for each thing.
        unknown: Why times are unknown, in sentences.
    """

    tables: tuple[TablePlan, ...]
    remarks: tuple[str, ...]
    lacks: tuple[str, ...]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.remarks, *map(str, self.tables), *self.lacks, *self.unknown])


def _total(estimates: Sequence[Estimate]) -> float:
    return sum(one.seconds for one in estimates)


def plan(
    suites: Sequence[Suite],
    part: Selection,
    results: Path,
    root: Path,
    *,
    measure: bool = True,
    on_event: OnEvent = unheard,
) -> Plan:
    """What the missing runs of these suites would take, and what of statistics is still to be counted.

    Times come from what was measured on this machine, by `pflbench speed` or here; else from finished runs in the
    results folder that this machine's processor made; else from those of other machines. Finished runs tell of runs
    with the same method and hyperparameters, dataset, network, cohort, batch, precision and scoring, and of at most
    four times their rounds.

    Args:
        suites: Any suites.
        part: Which part of them.
        results: The results folder.
        root: The data root.
        measure: Whether to measure, on one core, what is needed for times that nothing tells.
        on_event: Hears what is about to be measured.

    Raises:
        UsageError: The selection names something unknown.
        StoreError: The results folder cannot be read.
    """
    data, store = DataCheck(root), Store(results)
    remarks = tuple(line for suite in suites for line in _remarks(suite, part, results, data))
    asked = parts([suite for suite in suites if suite.document().row], part)
    history = _past(store)
    tables = [_table_plan(one, store, data, Times(history)) for one in asked]
    why: tuple[str, ...] = ()
    if any(line.unknown for table in tables for line in table.lines):
        why = _measured(tables, root, on_event) if measure else (NOT_MEASURED,)
        tables = [_table_plan(one, store, data, Times(history)) for one in asked] if measure else tables
    lacks = [sentence for table in tables for line in table.lines if line.missing for sentence in line.lacks]
    return Plan(tuple(tables), remarks, tuple(dict.fromkeys(lacks)), why)


def _remarks(suite: Suite, part: Selection, results: Path, data: DataCheck) -> Iterator[str]:
    """Of a suite that trains nothing, why, and what `run` would count."""
    document, name = suite.document(), suite.called or suite.path
    if document.statistics is not None:
        yield f"{name} trains nothing: `pflbench run --suite {name}` counts what its datasets hold."
        for dataset, counted in to_count([suite], part, results):
            lacks = data.problems(dataset.federations[0], dataset.places) if counted.counts is None else ()
            yield f"  {counted}{f' {lacks[0]}' if lacks else ''}"
    elif not document.row:
        yield f"{name} trains nothing: `pflbench plot {name}` draws it without runs."


def _measured(tables: Sequence[TablePlan], root: Path, on_event: OnEvent) -> tuple[str, ...]:
    """Measure what unknown times depend on. Returns why others stay unknown, in sentences."""
    from pflbench.running.measuring import Unknown, measure, to_measure  # which imports torch

    kinds: dict[str, tuple[str, Unknown]] = {}
    for table in tables:
        for line in table.lines:
            for spec in line.unknown:
                one = Unknown(spec, table.table.locations.get(spec.id, {}), line.lacks)
                kinds.setdefault(spec.group(), (f"{line.column} · {line.label}", one))
    what, reasons = to_measure([one for _, one in kinds.values()])
    if what.networks or what.trials:
        on_event(what)
        reasons |= measure(what, root)
    named = {one.spec.id: name for name, one in kinds.values()}
    return tuple(f"The time of {named[id]} is unknown: {why}." for id, why in reasons.items())


def _table_plan(asked: Part, store: Store, data: DataCheck, times: Times) -> TablePlan:
    """A table's runs, each in the line where it stands first."""
    table, labels = asked
    seen: set[str] = set()
    lines = []
    for cell in table.cells:
        specs = [s for s in cell.needed if s.id not in seen]
        seen |= {s.id for s in specs}
        if not specs:
            continue
        states = [store.status(s.id) for s in specs]
        missing = [s for s, state in zip(specs, states, strict=True) if state == "missing"]
        lacks = [one for s in missing for one in data.problems(s, table.locations.get(s.id, {}))]
        # Seeds differ in nothing that costs time.
        kinds = {s.group(): s for s in missing}
        costs = {kind: times.of(s, table.locations.get(s.id, {})) for kind, s in kinds.items()}
        estimates = [costs[s.group()] for s in missing]
        name, rounds = labels[specs[0].id], specs[0].rounds
        lines.append(Line(cell.column.id, name, rounds, states, missing, estimates, tuple(dict.fromkeys(lacks))))
    return TablePlan(table, tuple(lines))


class Times:
    """What is known now of how long runs take. `history`: what finished runs took."""

    def __init__(self, history: Mapping[tuple[str, bool], Past]):
        self.history, self.speeds, self.trials = history, seconds_per_example(), trials()

    def of(self, spec: RunSpec, places: Places) -> Estimate | None:
        """What one run takes; None if nothing tells."""
        if self.speeds:
            from pflbench.executor.estimate import seconds  # which imports torch

            counted = seconds(spec, names.place("methods", spec.method.name, places), self.speeds)
            if counted is not None:
                return Estimate(counted, MEASURED)
        if trial := self.trials.get(trial_key(spec)):
            moments = min(spec.scoring.last, spec.rounds)
            took = trial["loading"] + spec.rounds * trial["round"] + moments * trial["scoring"]
            return Estimate(took, MEASURED)
        for own, source in ((True, RUNS), (False, ELSEWHERE)):
            past = self.history.get((_kind(spec), own))
            if past and past.tells(spec):
                return Estimate(past.seconds * spec.rounds, source)
        return None


def _kind(spec: RunSpec) -> str:
    """What a run has in common with those that it tells the time of, in canonical form: stored runs sort their keys."""
    same = ("method", "model", "batch", "cohort", "dataset", "precision", "scoring")
    return json.dumps(spec.model_dump(mode="json", include=set(same)), sort_keys=True)


class Past(NamedTuple):
    """The longest finished runs of a kind: their rounds, and the median seconds that a round took."""

    rounds: int
    seconds: float

    def tells(self, spec: RunSpec) -> bool:
        """Whether they are long enough to speak for this run: loading and scoring weigh on short ones."""
        return LONG_ENOUGH * self.rounds >= spec.rounds


def _past(store: Store) -> dict[tuple[str, bool], Past]:
    """What finished runs took, scoring included, by kind of run and whether this machine's processor made it."""
    found: dict[tuple[str, bool], list[tuple[int, float]]] = {}
    for run in store.list():
        if run.failure is None and (took := run.provenance.get("wall_seconds")):
            key = _kind(run.spec), run.provenance.get("device") == processor()
            found.setdefault(key, []).append((run.spec.rounds, took / run.spec.rounds))
    return {
        key: Past(longest := max(values)[0], median(s for n, s in values if n == longest))
        for key, values in found.items()
    }
