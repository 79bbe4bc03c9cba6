"""Plan of a training: missing runs and their time, by finished runs. Trains nothing."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from pflbench.result import core_seconds
from pflbench.running.again import state
from pflbench.running.datasets import DataCheck, shown_by, to_count
from pflbench.running.machine import processor, product_seconds
from pflbench.running.shards import in_shard
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store import ShownStore, Stored
from pflbench.store.shipped import came_with_pflbench
from pflbench.suite.cells import Expansion
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.units import Shard, count, duration

LONG_ENOUGH = 4
"""A finished run gives the time of runs of at most this many times its rounds."""
BYTES_PER_RUN = 21_000  # a stored run of 20 clients × 51 points, measured
SOURCES = ("runs", "scaled", "unscaled")
"""Sources of a time: finished runs on this processor; on another one, scaled by one matrix product, or without one."""


class Estimate(NamedTuple):
    """Seconds that one run takes on one core or device, and their source."""

    seconds: float
    source: str


class Line(NamedTuple):
    """The runs of a row in a column: the state of each, and the time of each missing one (None: unknown)."""

    column: str
    label: str
    rounds: int
    states: Sequence[str]
    missing: Sequence[Estimate | None]

    @property
    def known(self) -> list[Estimate]:
        """The known times."""
        return [one for one in self.missing if one]

    @property
    def entries(self) -> dict[str, str]:
        """The line of the printed table, by heading."""
        done, failed = self.states.count("done"), self.states.count("failed")
        time = duration(sum(one.seconds for one in self.known)) if len(self.known) == len(self.missing) else "unknown"
        return {
            **{"column": self.column, "method": self.label, "runs": str(len(self.states)), "done": str(done)},
            **{"failed": str(failed), "rounds": str(self.rounds), "time": time if self.missing else ""},
            "source": ", ".join(sorted({one.source for one in self.known})),
        }


@dataclass(frozen=True)
class TablePlan:
    """Time that the missing runs of a table take; as text, a table."""

    title: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> str:
        """Total cost, in a sentence."""
        known = [one for line in self.lines for one in line.known]
        missing = sum(len(line.missing) for line in self.lines)
        return (
            f"{count(missing, 'run')} to do: {duration(sum(one.seconds for one in known))} on one core or device "
            f"for the {len(known)} of known time; "
            f"{missing * BYTES_PER_RUN / 1e6:.1f} MB of results."
        )

    def __str__(self) -> str:
        entries = [line.entries for line in self.lines]
        return f"{self.title}\n{tabulate(entries, 'keys', 'simple', disable_numparse=True)}\n{self.total}"


@dataclass(frozen=True)
class Plan:
    """Time that the missing runs of some tables take.

    Attributes:
        tables: The tables that have runs.
        remarks: Suites that train nothing, and datasets that `run` would count; in sentences.
        lacks: Missing data, in sentences.
    """

    tables: tuple[TablePlan, ...]
    remarks: tuple[str, ...]
    lacks: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.remarks, *map(str, self.tables), *self.lacks])


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
        UsageError: The selection names something unknown, or does not fit one of the suites.
        StoreError: The results folder cannot be read.
    """
    data, store = DataCheck(root), ShownStore(results, fresh=fresh)
    remarks = _remarks(suites, part, results)
    selected = [expand(suite, part) for suite in suites if suite.document().row]
    stored = {run.spec.id: run for run in store.list()}  # once: a look-up of each run reads the folder again
    rates = history(ShownStore(results).list() if fresh else stored.values())
    runs = {spec: table.locations.get(spec.id, {}) for table in selected for spec in table.runs}
    wanted = in_shard(runs, shard)
    if shipped := sum(run.shipped for run in stored.values() if run.spec in wanted):
        remarks.append(came_with_pflbench(shipped, len(wanted)))
    tables = [_table_plan(one, wanted, stored, rates) for one in selected]
    lacks = dict.fromkeys(chain(*(data.problems(spec, wanted[spec]) for spec in wanted if spec.id not in stored)))
    return Plan(tuple(one for one in tables if one.lines), tuple(remarks), tuple(lacks))


def _remarks(suites: Sequence[Suite], part: Selection, results: Path) -> list[str]:
    """Sentences on suites that train nothing, and on what `run` would count."""
    sentences = [shown_by(suite, part, results) for suite in suites]
    return [*filter(None, sentences), *(str(counted) for _, counted in to_count(suites, part, results))]


def _table_plan(table: Expansion, wanted: Collection[RunSpec], stored: Mapping[str, Stored], rates: Rates) -> TablePlan:
    """The wanted runs of a table, each in its first line."""
    listed: set[RunSpec] = set()
    lines = []
    for cell in table.cells:
        specs = [spec for spec in cell.needed if spec in wanted and spec not in listed]
        listed.update(specs)
        if specs:
            states = [state(stored.get(spec.id), spec, cell.every) for spec in specs]
            missing = [spec for spec, one in zip(specs, states, strict=True) if one == "missing"]
            times = [estimate(rates, spec, cell.every) for spec in missing]
            lines.append(Line(cell.column.id, cell.row.id, specs[0].rounds, states, times))
    return TablePlan(f"{table.title} · profile {table.profile}", tuple(lines))


Rates = Mapping[tuple[str, int | None, str], tuple[int, float]]
"""Most rounds of a finished run, and seconds of a round here: by `_kind`, interval of scored rounds, and source."""


def estimate(rates: Rates, spec: RunSpec, every: int | None = None) -> Estimate | None:
    """Time of one run; None if it is unknown. Seeds differ in nothing that costs time.

    `every`: the interval of scored rounds; None: the last rounds alone are scored.
    """
    for source in SOURCES:
        rounds, seconds = rates.get((_kind(spec), every, source), (0, 0.0))
        if LONG_ENOUGH * rounds >= spec.rounds:
            return Estimate(seconds * spec.rounds, source)
    return None


def _kind(spec: RunSpec) -> str:
    """Key that is equal for runs whose rounds take the same time, in canonical form: stored runs sort their keys."""
    same = ("method", "model", "batch", "cohort", "dataset", "precision", "scoring")
    return json.dumps(spec.model_dump(mode="json", include=set(same)), sort_keys=True)


def history(stored: Iterable[Stored]) -> Rates:
    """Times of finished runs, scoring included: of the longest one, as loading weighs on short ones."""
    rates: dict[tuple[str, int | None, str], tuple[int, float]] = {}
    for run in stored:
        if run.failure is None and (seconds := core_seconds(run.provenance)):
            source, product = "unscaled", run.provenance.get("product_seconds")
            if run.provenance.get("device") == processor():
                source = "runs"
            elif product:
                source, seconds = "scaled", seconds * product_seconds() / product
            key = _kind(run.spec), run.provenance.get("evaluate_every"), source
            rates[key] = max(rates.get(key, (0, 0.0)), (run.spec.rounds, seconds / run.spec.rounds))
    return rates
