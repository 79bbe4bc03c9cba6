"""Choice of versions of user-supplied code that is not on this machine: those of most finished runs.

All functions are pure: what they return depends on the runs they are given, each with whether it is finished, and not
on their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from pflbench.spec import RunSpec

_NOTHING = {"version": None, "content": None}


def of_most(runs: Mapping[RunSpec, bool], version: Callable[[RunSpec], str]) -> str:
    """The version with which a table can show most finished runs: runs that differ in versions alone count once."""
    counted: dict[str, set[RunSpec]] = {version(run): set() for run in runs}
    for run, finished in runs.items():
        if finished:
            kinds = {kind: getattr(run, kind).model_copy(update=_NOTHING) for kind in ("dataset", "partition")}
            method = run.method.model_copy(update={"version": ""})
            counted[version(run)].add(run.model_copy(update={**kinds, "method": method, "model_version": None}))
    return min(counted, key=lambda one: (-len(counted[one]), one))


def most_read(runs: Mapping[RunSpec, bool], seed: int) -> dict[str, str | None]:
    """Contents of dataset and partition, as hashes, with which most finished runs can be shown.

    `runs` differ at most by method, seed and what they read; it is empty where none is of the seed. Data that runs of
    several seeds read do not depend on the seed: then all seeds have the same, also those without such a run.
    """

    def read(run: RunSpec) -> tuple[str | None, str | None]:
        return run.dataset.content, run.partition.content

    finished = Counter(read(run) for run, done in runs.items() if done)

    def top(some: Iterable[RunSpec]) -> tuple[str | None, str | None] | None:
        return min(map(read, some), key=lambda one: (-finished[one], str(one)), default=None)

    chosen = top(runs)
    if len({run.seed for run in runs if read(run) == chosen}) < 2:
        chosen = top(run for run in runs if run.seed == seed)
    return dict(zip(("dataset", "partition"), chosen, strict=True)) if chosen else {}


def rivals(runs: Mapping[RunSpec, bool], name: str, chosen: str | None, seed: int) -> dict[RunSpec, bool]:
    """Runs whose dataset or partition, `name`, could have read the same at a seed; `chosen` is what is read now.

    `runs` differ at most by method, seed, network and what they read. Data of other seeds do not count.
    """
    seeds: dict[str | None, set[int]] = {}
    for run in runs:
        seeds.setdefault(getattr(run, name).content, set()).add(run.seed)
    several = len(seeds.get(chosen, ())) > 1
    here = {one for one, found in seeds.items() if several or seed in found or len(found) > 1}
    return {run: done for run, done in runs.items() if getattr(run, name).content in here}
