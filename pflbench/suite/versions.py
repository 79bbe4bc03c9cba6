"""Which versions of the user's own a table shows where they are not on this machine: those of most finished runs.

All functions are pure: what they return depends on the runs they are given, and not on their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pflbench.spec import RunSpec


class Versions(NamedTuple):
    """The versions of what a column names; None for what comes with pflbench."""

    datasets: str | None
    partitions: str | None
    models: str | None


class Contents(NamedTuple):
    """What a run's dataset and partition read, as hashes."""

    dataset: str | None
    partition: str | None


def versions(run: RunSpec) -> Versions:
    """The versions of a run's dataset, partition and network."""
    return Versions(run.dataset.version, run.partition.version, run.model_version)


def read(run: RunSpec) -> Contents:
    """The hashes of what a run's dataset and partition read."""
    return Contents(run.dataset.content, run.partition.content)


def most(runs: Mapping[RunSpec, bool]) -> Versions:
    """The versions with which one table can show most finished runs.

    Args:
        runs: The stored runs of one column, each with whether it is finished; at least one.
    """
    groups: dict[Versions, list[RunSpec]] = {versions(run): [] for run in runs}
    for run, finished in runs.items():
        if finished:
            groups[versions(run)].append(run)
    return min(groups, key=lambda one: (-_shown(groups[one]), str(one)))


def most_read(runs: Mapping[RunSpec, bool], seed: int) -> Contents | None:
    """Of what the runs of a seed read, that with which one table can show most finished runs.

    Data that runs of several seeds read do not depend on the seed: then all seeds have the same, also those without
    such a run.

    Args:
        runs: Stored runs that differ at most by method, seed and what they read, each with whether it is finished.
        seed: Which.

    Returns:
        None if there is no such run.
    """
    counted = dict.fromkeys(map(read, runs), 0)
    for run, finished in runs.items():
        counted[read(run)] += finished
    for here in (counted, {read(run) for run in runs if run.seed == seed}):
        if here:
            top = min(here, key=lambda one: (-counted[one], str(one)))
            if here is not counted or len({run.seed for run in runs if read(run) == top}) > 1:
                return top
    return None


def rivals(runs: Mapping[RunSpec, bool], name: str, chosen: str | None, seed: int) -> Counter[str]:
    """By what a dataset or partition read, the number of a seed's finished runs; data of other seeds do not count.

    Args:
        runs: Stored runs that differ at most by method, seed, network and what they read, each with whether it is
            finished.
        name: "dataset" or "partition".
        chosen: What is read at this seed.
        seed: Which.
    """
    seeds: dict[str | None, set[int]] = {}
    for run in runs:
        seeds.setdefault(getattr(run, name).content, set()).add(run.seed)
    several = len(seeds.get(chosen, ())) > 1
    here = {one for one, found in seeds.items() if several or seed in found or len(found) > 1}
    counted = Counter({str(one or "nothing"): 0 for one in here})
    for run, finished in runs.items():
        if finished and getattr(run, name).content in here:
            counted[str(getattr(run, name).content or "nothing")] += 1
    return counted


def _shown(finished: Iterable[RunSpec]) -> int:
    """How many of these runs a table can show that has one version of each method and of what a column reads."""
    columns: dict[str, dict[RunSpec, bool]] = {}
    for run in finished:
        columns.setdefault(f"{run.clients} {run.dataset.options} {run.partition.options}", {})[run] = True
    methods: dict[str, Counter[str]] = {}
    for column in columns.values():
        chosen = {seed: most_read(column, seed) for seed in {run.seed for run in column}}
        for run in column:
            if read(run) == chosen[run.seed]:
                methods.setdefault(run.method.name, Counter())[run.method.version] += 1
    return sum(max(counts.values()) for counts in methods.values())
