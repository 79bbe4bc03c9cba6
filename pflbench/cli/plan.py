"""`pflbench plan`: what a run would do, and what it would cost as far as finished runs tell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.table import Table

from pflbench.cli import common
from pflbench.cli.common import console, errors

if TYPE_CHECKING:
    from pflbench.executor.measured import Measured
    from pflbench.names import Places
    from pflbench.spec import RunSpec
    from pflbench.store import Store
    from pflbench.suite.document import Suite
    from pflbench.suite.expand import Expansion

LONG_ENOUGH = 4
"""A finished run speaks for runs of at most so many times its rounds."""
BYTES_PER_RUN = 21_000  # a stored run of 20 clients × 51 points, measured


def plan(
    suite: common.Suites = None,
    method: common.Methods = None,
    dataset: common.Datasets = None,
    clients: common.Clients = None,
    partition: common.Partitions = None,
    column: common.Columns = None,
    seeds: common.Seeds = None,
    profile: common.Profile = "paper",
    rounds: common.Rounds = None,
    set_: common.Sets = None,
    precision: common.Precision = "fp32",
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
) -> int:
    """Say what `pflbench run` would do for this part of a suite: runs, what is done, time, disk. Trains nothing.

    The time comes from what `pflbench speed` measured on this machine; else from finished runs in this results folder
    that this machine's processor made; else from those of other machines ("others"). They tell of runs with the same
    method and hyperparameters, dataset, network, cohort, batch, precision and scoring, and of at most four times their
    rounds. Without any it is unknown.
    """
    from pflbench.data.root import data_root
    from pflbench.executor.measured import measured
    from pflbench.store import Store
    from pflbench.suite.own import lacking

    store = Store(results)
    parts = common.parts(
        _training(common.loaded(common.required(suite), data_dir)),
        profile=profile,
        methods=method,
        datasets=dataset,
        partitions=partition,
        clients=clients,
        columns=column,
        seeds=seeds,
        rounds=rounds,
        sets=set_,
        precision=precision,
    )
    history, speeds = _past(store), measured()
    unknown: list[RunSpec] = []
    root, lacks = data_root(data_dir), dict[str, str]()
    for table, labels in parts:
        lines = list(_lines(table, labels, store, history, speeds))
        console().print(_grid(f"{table.title} · profile {table.profile}", lines))
        console().print(_sum(lines))
        unknown += [spec for line in lines for spec in line.unknown]
        for spec in (spec for line in lines for spec in line.missing):
            lacks |= lacking(spec, root, table.locations.get(spec.id, {}))
    for lack in lacks.values():
        errors().print(f"Warning: {lack}")
    if unknown:
        console().print(_how_to_know(unknown, speeds))
    return 0


class Line(NamedTuple):
    """The runs of a row in a column. `estimates`: what one of the `missing` takes, and what tells; None: unknown."""

    column: str
    label: str
    rounds: int
    states: Sequence[str]
    missing: Sequence[RunSpec]
    estimates: Sequence[tuple[float, str] | None]

    @property
    def unknown(self) -> list[RunSpec]:
        """The missing runs of which nothing tells how long they take."""
        return [spec for spec, found in zip(self.missing, self.estimates, strict=True) if found is None]

    @property
    def seconds(self) -> float:
        """What the others take together."""
        return sum(found[0] for found in self.estimates if found)

    @property
    def sources(self) -> str:
        """What tells."""
        return ", ".join(sorted({found[1] for found in self.estimates if found}))


def _training(suites: Iterable[Suite]) -> list[Suite]:
    """Those that have runs; a line for each other one."""
    found = []
    for suite in suites:
        document = suite.document()
        name = suite.called or suite.path
        if document.statistics is not None:
            console().print(f"{name} trains nothing: `pflbench report --suite {name}` counts what its datasets hold.")
        elif not document.row:
            console().print(f"{name} trains nothing: `pflbench plot {name}` draws it without runs.")
        else:
            found.append(suite)
    return found


def _lines(
    table: Expansion,
    labels: Mapping[str, str],
    store: Store,
    history: Mapping[tuple[str, bool], Past],
    speeds: dict[str, Measured],
) -> Iterable[Line]:
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


def _grid(title: str, lines: Sequence[Line]) -> Table:
    """A table that leaves ids whole in 80 characters, and tells of failures where there are any."""
    grid = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    failed = any("failed" in line.states for line in lines)
    for head in ("column", "method"):
        grid.add_column(head, overflow="fold")
    for head in ("runs", "done", *(["failed"] if failed else []), "rounds", "time"):
        grid.add_column(head, justify="right", no_wrap=True)
    grid.add_column("source", overflow="fold")
    for line in lines:
        counts = [len(line.states), line.states.count("done")] + ([line.states.count("failed")] if failed else [])
        cost = "unknown" if line.unknown else common.duration(line.seconds) if line.missing else ""
        grid.add_row(line.column, line.label, *map(str, [*counts, line.rounds]), cost, line.sources)
    return grid


def _sum(lines: Sequence[Line]) -> str:
    """What a table costs in all."""
    to_do, unknown = sum(len(line.missing) for line in lines), sum(len(line.unknown) for line in lines)
    total = sum(line.seconds for line in lines)
    costs = [f"{common.duration(total)} of computing on one core or device"] if total else []
    costs += [f"time unknown for {unknown}"] if unknown else []
    costs += [f"about {to_do * BYTES_PER_RUN / 1e6:.1f} MB of results"] if to_do else []
    return f"{common.count(to_do, 'run')} to do{': ' if costs else ''}{', '.join(costs)}."


def _how_to_know(specs: Sequence[RunSpec], speeds: Mapping[str, Measured]) -> str:
    """How to find out what these runs take, of which neither finished runs nor the `speeds` tell."""
    from pflbench.executor.lineup import NETWORKS

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
    spec: RunSpec, history: Mapping[tuple[str, bool], Past], speeds: dict[str, Measured], places: Places
) -> tuple[float, str] | None:
    """One run's seconds on one core or device, and what tells; None if nothing does."""
    if speeds:
        from pflbench import names
        from pflbench.executor.estimate import seconds  # which imports torch

        found = seconds(spec, names.place("methods", spec.method.name, places), speeds)
        if found is not None:
            return found, "speed"
    for own, name in ((True, "runs"), (False, "others")):
        past = history.get((_kind(spec), own))
        if past and past.tells(spec):
            return past.seconds * spec.rounds, name
    return None


class Past(NamedTuple):
    """The longest runs of a kind: their rounds, and the median seconds a round took."""

    rounds: int
    seconds: float

    def tells(self, spec: RunSpec) -> bool:
        """Whether they are long enough to speak for this run: loading and scoring weigh on short ones."""
        return LONG_ENOUGH * self.rounds >= spec.rounds


def _past(store: Store) -> dict[tuple[str, bool], Past]:
    """What finished runs took, scoring included, by kind of run and whether this machine's processor made it."""
    from statistics import median

    from pflbench.executor.measured import processor

    found: dict[tuple[str, bool], list[tuple[int, float]]] = {}
    for run in store.list():
        if run.failure is None and (took := run.provenance.get("wall_seconds")):
            key = _kind(run.spec), run.provenance.get("device") == processor()
            found.setdefault(key, []).append((run.spec.rounds, took / run.spec.rounds))
    return {
        key: Past(longest := max(values)[0], median(s for n, s in values if n == longest))
        for key, values in found.items()
    }
