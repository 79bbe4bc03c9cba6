"""The four kinds of tests of one method or variant, each a function that raises where a GPU would find a fault."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from gpu.border import META, watched
from gpu.cases import EQUAL, RAGGED, after, before, case, finished, same, simulation
from gpu.police import offences, unnamed_reads
from gpu.pretend import GPU, pretended
from pflbench.engine.client_map import ClientMap
from pflbench.engine.simulate import LOOK_EVERY, RunOutcome
from pflbench.running import allocator
from pflbench.spec import RunSpec, Scoring

Moment = tuple[Callable[..., RunSpec], Sequence[int], str, int]
RUNS: dict[str, Moment] = {"after": (after, RAGGED, "grouped", 2), "before": (before, RAGGED, "columns", 1)}
"""What each method is run as: when its clients are scored, how many rows each has, the kind of stack, and seeds."""


# On device meta.


def on_meta(name: str) -> None:
    """A whole run where nothing can be read, each kind of stack once."""
    found = case(name)
    for make, sizes, stack, seeds in RUNS.values():
        run = simulation(found, [make(found, seed) for seed in range(seeds)], sizes, device=META, stack=stack)
        with watched() as crossings:
            finished(run)
        assert crossings.operations, "nothing was computed on device meta"
        assert not crossings.wrong, f"{len(crossings.wrong)} times, at first: {crossings.wrong[0]}"
        assert set(crossings.reads) <= {"finite", "scores", "features", "diagnosis"}


# Recorded, and run again.


@dataclass
class Recorded:
    """A run on the made-up GPU whose stacks are all captured, and the same without graphs.

    `phases`: the kinds of local updates there are, and those that were captured. `wrong`: see `offences`.
    """

    outcomes: list[RunOutcome]
    plain: list[RunOutcome]
    captures: int
    replays: int
    phases: tuple[int, int]
    wrong: list[str]


@contextlib.contextmanager
def at_first_sight() -> Iterator[None]:
    """Each stack is captured when it comes for the first time, and no graph is let go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pflbench.engine.capture.MEETINGS", 1)
        patch.setattr("pflbench.engine.capture.GRAPHS", 64)
        yield


def recorded(name: str, moment: str, equal: bool = False) -> Recorded:
    """Run a method so; `equal`: with clients of one size, whose stacks differ in their number alone."""
    found = case(name)
    make, sizes, stack, seeds = RUNS[moment]
    sizes = EQUAL if equal else sizes
    # The same stack in every round after the first; so many rounds that the coin falls on either side.
    more = {"rounds": 8 if len(found.kinds) > 1 else 4, "cohort": 6, "arrival": 1}
    specs = [make(found, seed, **more) for seed in range(seeds)]
    with pretended():
        plain = finished(simulation(found, specs, sizes, device=GPU, graphs=False, stack=stack, chunk=4))
    with at_first_sight(), pretended() as gpu:
        run = simulation(found, specs, sizes, device=GPU, stack=stack, chunk=4)
        with unnamed_reads(gpu, run):
            outcomes = finished(run)
        graphs = run.clients.graphs
        wrong = [one for record in graphs._recorded.values() for one in offences(record, run, gpu)]
    names = [key[0] for key, _ in graphs._recorded]
    phases = len(found.kinds), len({name[1] for name in names if name[0] == "training"})
    wrong += gpu.wrong
    early = [reason for rounds, reason in gpu.reads if rounds < more["rounds"] - 2 and rounds % LOOK_EVERY]
    wrong += [f"the host waits for the device in a round that is not scored: {reason}" for reason in early]
    return Recorded(outcomes, plain, graphs.captures, graphs.replays, phases, wrong)


def policed(done: Recorded) -> None:
    """What was captured reads nothing on the host and rests on nothing that does not last."""
    assert done.captures, "nothing was captured"
    assert done.phases[0] == done.phases[1], f"of {done.phases[0]} kinds of local updates {done.phases[1]} are captured"
    assert not done.wrong, f"{len(done.wrong)} offences, at first: {done.wrong[0]}"


def replayed(done: Recorded) -> None:
    """Replays come to the numbers that the run has without them, bit for bit."""
    assert done.replays > done.captures, "no graph was replayed for another stack than it was captured for"
    assert same(done.outcomes, done.plain), "replays come to other numbers than the run without graphs"
    assert [one.costs for one in done.outcomes] == [one.costs for one in done.plain], "replays have other costs"


# Too little memory.

ENDLESS = 1 << 60


@dataclass
class Starved:
    """A run on a made-up GPU of too little memory: its outcomes and its stacks' sizes, by kind of work."""

    outcomes: list[RunOutcome]
    simulation: Simulation
    gpu: MadeUp


def _last(found: Case) -> Scoring:
    stages = found.stages("after-aggregation", "global", "personalized") or ("global",)
    return Scoring(clients="training", stages=stages)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """A stack of a size that did not fit is not tried again."""
    fits, refused, alone = ClientMap._if_it_fits, dict[Any, int](), Counter[Any]()

    def noted(self: ClientMap, fn: Any, shared: Any, items: Any, key: Any) -> Any:
        if len(items) >= refused.get(key, len(items) + 1) > 1:
            raise AssertionError(f"{len(items)} clients of a kind of which {refused[key]} did not fit are tried again")
        made = fits(self, fn, shared, items, key)
        alone[key] = alone[key] + 1 if made is None and len(items) == 1 else 0
        assert alone[key] < 2, "one client that did not fit is tried again, and nothing was let go between"
        if made is None and len(items) > 1:
            refused[key] = len(items)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientMap, "_if_it_fits", noted)
        yield


def _starved(found: Case, most: int, limit: int | None = None, **setup: Any) -> Starved:
    """A run on a GPU of so many bytes, which says that it has more: others use a part of it. `limit`: of ours."""
    spec = after(found, 0, cohort=6, rounds=5 if len(found.kinds) > 1 else 2, scoring=_last(found))
    with at_first_sight(), pretended(most, ENDLESS, count=True) as gpu, allocator.limited(limit, GPU):
        run = simulation(found, [spec], EQUAL, device=GPU, **setup)
        with refusals():
            outcomes = finished(run)
    assert not gpu.wrong, gpu.wrong[0]
    return Starved(outcomes, run, gpu)


def starved(name: str) -> None:
    """Where memory runs out stacks are halved and graphs let go; a limit is kept; scores stay what they are."""
    found = case(name)
    ample = _starved(found, ENDLESS, graphs=False)
    # Results of graphs stay when these are let go, and are twice as large where state and upload are one tensor.
    for chunk, spare in ((1, 1.3 if name in ("fedec", "l2gd") else 1.05), (2, 1.3)):
        enough = int(spare * _starved(found, ENDLESS, graphs=False, chunk=chunk).gpu.memory.fullest)
        tight = _starved(found, enough)
        assert tight.gpu.memory.refused, "memory did not run out"
        assert tight.gpu.memory.emptied, "after an allocation failed, PyTorch's cache was not emptied"
        found.same_runs(tight.outcomes, ample.outcomes, "runs with much and with little memory")
    if " " in name:  # a variant: what a limit asks of the method itself it asked already
        return
    kept = _starved(found, ENDLESS, limit=enough)
    assert [round(x / enough, 6) for x in kept.gpu.limits[:1]] == [1], "PyTorch is not bound to the limit"
    assert kept.gpu.limits[1:] == [ENDLESS], "the limit outlives its run"
    assert kept.gpu.memory.fullest <= enough, "the limit was not kept"
    found.same_runs(kept.outcomes, ample.outcomes, "runs with and without a limit")
