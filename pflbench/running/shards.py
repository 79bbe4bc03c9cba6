"""`--shard K/N`: a part of the requested runs that depends on nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from pflbench.names import Places
from pflbench.spec import RunSpec
from pflbench.units import Shard


def in_shard(runs: Mapping[RunSpec, Places], shard: Shard | None) -> Mapping[RunSpec, Places]:
    """The runs of a shard, in their order: a function of the runs, this version of pflbench, and K/N alone.

    Runs that differ by seed only, which a GPU trains as one stack, are in one shard. The stacks go one after the other,
    that with most work first, to the shard that has least.

    Args:
        runs: All requested runs, whatever is stored of them, each with the paths of its user-supplied code and data.
        shard: Which part; None: everything.
    """
    if shard is None:
        return runs
    from pflbench.running.work import work_of  # which imports torch

    weights: dict[str, float] = {}
    for spec, places in runs.items():
        weights[spec.group()] = weights.get(spec.group(), 0.0) + work_of(spec, places)
    loads, chosen = [0.0] * shard.of, set()
    for group in sorted(weights, key=lambda group: (-weights[group], group)):
        least = loads.index(min(loads))
        loads[least] += weights[group]
        if least == shard.number - 1:
            chosen.add(group)
    return {spec: places for spec, places in runs.items() if spec.group() in chosen}
