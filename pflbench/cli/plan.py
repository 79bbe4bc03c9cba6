"""`pflbench plan`: what a run would do, and what it would cost as far as finished runs tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from pflbench.cli import common
from pflbench.cli.common import console

if TYPE_CHECKING:
    from pflbench.executor.measured import Measured
    from pflbench.spec import RunSpec
    from pflbench.store import Store

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
) -> int:
    """Say what `pflbench run` would do for this part of a suite: runs, what is done, time, disk. Trains nothing.

    The time comes from what `pflbench speed` measured on this machine; else from finished runs of the same method,
    network and batch in this results folder that this machine's processor made; else from those of other machines.
    Without any it is unknown.
    """
    from pflbench.executor.measured import measured
    from pflbench.store import Store

    store = Store(results)
    tables = common.expansions(
        common.required(suite),
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
    for table in tables:
        grid = Table(title=f"{table.title} · profile {table.profile}")
        for head in ("column", "method", "runs", "done", "failed", "rounds", "time to do", "known from"):
            grid.add_column(head, justify="left" if head in ("column", "method", "known from") else "right")
        total, unknown, to_do = 0.0, 0, 0
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
            costs = {k: _estimate(s, history, speeds, table.locations.get(s.id)) for k, s in kinds.items()}
            estimates = [found for s in missing if (found := costs[s.group()])]
            times = [seconds for seconds, _ in estimates]
            to_do += len(missing)
            total += sum(times)
            unknown += len(missing) - len(times)
            cost = common.duration(sum(times)) if len(times) == len(missing) else "unknown"
            grid.add_row(
                cell.column.id,
                specs[0].method.name,
                str(len(specs)),
                str(states.count("done")),
                str(states.count("failed")),
                str(specs[0].rounds),
                cost if missing else "",
                ", ".join(sorted({source for _, source in estimates})),
            )
        console().print(grid)
        disk = to_do * BYTES_PER_RUN / 1e6
        parts = [f"{common.duration(total)} of computing on one core or device"] if total else []
        parts += [f"time unknown for {unknown}"] if unknown else []
        parts += [f"about {disk:.1f} MB of results"] if to_do else []
        console().print(f"{common.count(to_do, 'run')} to do{': ' if parts else ''}{', '.join(parts)}.")
    return 0


def _kind(spec: RunSpec) -> str:
    same = ("method", "model", "batch", "cohort", "dataset", "precision", "scoring")
    return spec.model_dump_json(include=set(same))


def _estimate(
    spec: RunSpec, history: dict[tuple[str, bool], Past], speeds: dict[str, Measured], location: str | None
) -> tuple[float, str] | None:
    """One run's seconds on one core or device, and what tells; None if nothing does."""
    if speeds:
        from pflbench import names
        from pflbench.executor.estimate import seconds  # which imports torch

        found = seconds(spec, location or names.locate("methods", spec.method.name), speeds)
        if found is not None:
            return found, "speed"
    for own, name in ((True, "runs"), (False, "other machines' runs")):
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
