"""The `--shard K/N` of the work: a part of the runs that depends on nothing but what is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from pflbench import names
from pflbench.names import Places
from pflbench.spec import RunSpec
from pflbench.units import Shard

Work = Callable[[RunSpec, str], "float | None"]
"""Relative cost of a run with the method of this reference; None where that cannot be counted."""


def in_shard(
    specs: Sequence[RunSpec], places: Mapping[str, Places], shard: Shard | None, counting: Work | None = None
) -> list[RunSpec]:
    """The runs of a shard, in their order: a function of the runs, this version of pflbench, and K/N alone.

    Runs that differ by seed only, which a GPU trains as one stack, are in one shard. The stacks go one after the other,
    that with most work first, to the shard that has least. What cannot be counted, as with a method of one's own,
    counts as much as the others do on average.

    Args:
        specs: All runs that are asked for, whatever is stored of them.
        places: By run id, where the code is of what it has of the user's own.
        shard: Which part; None: everything.
        counting: Counts a run's work; None: by what it computes.
    """
    if shard is None:
        return list(specs)
    from pflbench.running.work import work_of  # which imports torch

    count = counting or work_of
    stacks: dict[str, dict[RunSpec, None]] = {}
    for spec in specs:
        stacks.setdefault(spec.group(), {})[spec] = None
    counted = {
        group: count(first, names.place("methods", first.method.name, places.get(first.id, {})))
        for group, (first, *_) in stacks.items()
    }
    usual = fmean([one for one in counted.values() if one] or [1.0])
    weights = {group: (counted[group] or usual) * len(stack) for group, stack in stacks.items()}
    mine = _least_first(weights, shard.of)[shard.number - 1]
    return [spec for spec in specs if spec.group() in mine]


def _least_first(weights: Mapping[str, float], number: int) -> list[set[str]]:
    """These in so many parts: the heaviest first, each to the part that is lightest then, the first of equals."""
    parts: list[set[str]] = [set() for _ in range(number)]
    loads: list[list[float]] = [[] for _ in range(number)]
    for group in _heaviest_first(weights):
        # Sums that are exact to the last bit do not depend on their order.
        least = min(range(number), key=lambda one: (math.fsum(loads[one]), len(parts[one]), one))
        parts[least].add(group)
        loads[least].append(weights[group])
    return parts


def _heaviest_first(weights: Mapping[str, float]) -> Iterable[str]:
    return sorted(weights, key=lambda group: (-weights[group], group))
