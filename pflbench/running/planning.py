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
from pflbench.spec import RunSpec
from pflbench.speed.records import seconds_per_example
from pflbench.store import Store
from pflbench.suite.cells import Expansion
from pflbench.suite.document import Suite
from pflbench.suite.labels import Part
from pflbench.suite.own import lacking
from pflbench.units import count, duration

LONG_ENOUGH = 4
"""A finished run speaks for runs of at most so many times its rounds."""
BYTES_PER_RUN = 21_000  # a stored run of 20 clients × 51 points, measured


class Estimate(NamedTuple):
    """What one run takes on one core or device, in seconds, and where that is known from."""

    seconds: float
    source: str


class Line(NamedTuple):
    """The runs of a row in a column: every run's state in the store, and what each of the missing ones takes.

    An estimate is None where nothing tells.
    """

    column: str
    label: str
    rounds: int
    states: Sequence[str]
    missing: Sequence[RunSpec]
    estimates: Sequence[Estimate | None]

    @property
    def unknown(self) -> list[RunSpec]:
        """The missing runs of which nothing tells how long they take."""
        return [spec for spec, found in zip(self.missing, self.estimates, strict=True) if found is None]

    @property
    def seconds(self) -> float:
        """What the others take together."""
        return sum(found.seconds for found in self.estimates if found)

    @property
    def sources(self) -> str:
        """Where their times are known from: `speed`, `runs`, `others`, or several of these."""
        return ", ".join(sorted({found.source for found in self.estimates if found}))


@dataclass(frozen=True)
class TablePlan:
    """What a table's runs would take."""

    table: Expansion
    lines: tuple[Line, ...]

    @property
    def missing(self) -> list[RunSpec]:
        """The runs that have no result."""
        return [spec for line in self.lines for spec in line.missing]

    @property
    def total(self) -> str:
        """What it costs in all, in a sentence."""
        to_do, unknown = len(self.missing), sum(len(line.unknown) for line in self.lines)
        seconds = sum(line.seconds for line in self.lines)
        costs = [f"{duration(seconds)} of computing on one core or device"] if seconds else []
        costs += [f"time unknown for {unknown}"] if unknown else []
        costs += [f"about {to_do * BYTES_PER_RUN / 1e6:.1f} MB of results"] if to_do else []
        return f"{count(to_do, 'run')} to do{': ' if costs else ''}{', '.join(costs)}."

    def __str__(self) -> str:
        lines = [f"{self.table.title} · profile {self.table.profile}"]
        for line in self.lines:
            time = "time unknown" if line.unknown else duration(line.seconds) if line.missing else "nothing to do"
            done = f"{line.states.count('done')} of {count(len(line.states), 'run')} done"
            lines.append(f"  {line.column} · {line.label}: {done}, {time}")
        return "\n".join([*lines, self.total])


@dataclass(frozen=True)
class Plan:
    """What training would take. `lacks`: what is not there of what the user's own reads; `hint`: how to know more."""

    tables: tuple[TablePlan, ...]
    lacks: tuple[str, ...]
    hint: str

    def __str__(self) -> str:
        return "\n".join([*map(str, self.tables), *self.lacks, *([self.hint] if self.hint else [])])


def trains_nothing(suite: Suite) -> str:
    """Why a suite trains nothing; empty if it has runs."""
    document, name = suite.document(), suite.called or suite.path
    if document.statistics is not None:
        return f"{name} trains nothing: `pflbench run --suite {name}` counts what its datasets hold."
    return "" if document.row else f"{name} trains nothing: `pflbench plot {name}` draws it without runs."


def plan(parts: Sequence[Part], results: Path, root: Path) -> Plan:
    """What the missing runs of these tables would take.

    Times come from what `pflbench speed` measured on this machine; else from finished runs in the results folder that
    this machine's processor made; else from those of other machines (`others`). They tell of runs with the same method
    and hyperparameters, dataset, network, cohort, batch, precision and scoring, and of at most four times their rounds.

    Args:
        parts: The tables.
        results: The results folder.
        root: The data root, where what the user's own datasets and partitions read is looked for.
    """
    store, speeds = Store(results), seconds_per_example()
    history = _past(store)
    tables = tuple(TablePlan(table, tuple(_lines(table, labels, store, history, speeds))) for table, labels in parts)
    lacks: dict[str, str] = {}
    for one in tables:
        for spec in one.missing:
            lacks |= lacking(spec, root, one.table.locations.get(spec.id, {}))
    unknown = [spec for one in tables for line in one.lines for spec in line.unknown]
    return Plan(tables, tuple(lacks.values()), _how_to_know(unknown, speeds) if unknown else "")


def _lines(
    table: Expansion,
    labels: Mapping[str, str],
    store: Store,
    history: Mapping[tuple[str, bool], Past],
    speeds: Mapping[str, float],
) -> Iterator[Line]:
    """A table's runs, each where it stands first."""
    seen: set[str] = set()
    for cell in table.cells:
        specs = [s for s in cell.needed if s.id not in seen]
        seen |= {s.id for s in specs}
        if not specs:
            continue
        states = [store.status(s.id) for s in specs]
        missing = [s for s, state in zip(specs, states, strict=True) if state == "missing"]
        # Seeds differ in nothing that costs time.
        kinds = {s.group(): s for s in missing}
        costs = {k: _estimate(s, history, speeds, table.locations.get(s.id, {})) for k, s in kinds.items()}
        estimates = [costs[s.group()] for s in missing]
        yield Line(cell.column.id, labels[specs[0].id], specs[0].rounds, states, missing, estimates)


def _how_to_know(specs: Sequence[RunSpec], speeds: Mapping[str, float]) -> str:
    """How to find out what these runs take, of which neither finished runs nor the `speeds` tell."""
    from pflbench.speed.options import NETWORKS

    timed = sorted(({spec.model for spec in specs if spec.precision == "fp32"} & set(NETWORKS)) - speeds.keys())
    speed = f"`pflbench speed` measures {', '.join(timed)}; " if timed else ""
    # Long enough to tell, and for as many scored rounds, which are part of what a run is.
    enough = {max(-(-spec.rounds // LONG_ENOUGH), spec.scoring.last) for spec in specs}
    rounds = " or ".join(map(str, sorted(enough)))
    short = f"`pflbench run … --rounds {rounds} --seeds {specs[0].seed}`"
    return f"Unknown times: {speed}a short run ({short}), once finished, tells of longer ones like it."


def _kind(spec: RunSpec) -> str:
    """What a run has in common with those that it tells the time of, in canonical form: stored runs sort their keys."""
    same = ("method", "model", "batch", "cohort", "dataset", "precision", "scoring")
    return json.dumps(spec.model_dump(mode="json", include=set(same)), sort_keys=True)


def _estimate(
    spec: RunSpec, history: Mapping[tuple[str, bool], Past], speeds: Mapping[str, float], places: Places
) -> Estimate | None:
    """What one run takes; None if nothing tells."""
    if speeds:
        from pflbench.executor.estimate import seconds  # which imports torch

        found = seconds(spec, names.place("methods", spec.method.name, places), speeds)
        if found is not None:
            return Estimate(found, "speed")
    for own, name in ((True, "runs"), (False, "others")):
        past = history.get((_kind(spec), own))
        if past and past.tells(spec):
            return Estimate(past.seconds * spec.rounds, name)
    return None


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
