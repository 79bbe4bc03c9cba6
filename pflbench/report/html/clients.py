"""What a cell's clients say beside their mean: the worst tenth, the median, and how they spread. All in percent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pflbench.report.cells import Read, of_seed
from pflbench.report.fairness import over_seeds
from pflbench.report.statistics import worst_tenth
from pflbench.suite.cells import Reading

QUANTILES = {
    0.0: "worst client",
    0.1: "10 % quantile",
    0.25: "lower quartile",
    0.5: "median",
    0.75: "upper quartile",
    0.9: "90 % quantile",
    1.0: "best client",
}
"""What is told of a cell's clients, by share."""
_BINS = 20
_POINTS = 60
"""Rounds of a curve at most; of more, some are left out."""


class Clients(NamedTuple):
    """A cell's clients. Each number is the mean over seeds of what one seed's clients say.

    `quantiles`: those of `QUANTILES`. `counts`: how many clients of all seeds lie in each twentieth of 0 to 100.
    `number`: the fewest and the most clients of a seed.
    """

    worst: float
    median: float
    quantiles: tuple[float, ...]
    counts: tuple[int, ...]
    number: tuple[int, int]


def clients(done: Sequence[Read], reading: Reading) -> Clients | None:
    """What the clients of a cell's finished seeds say; None where clients were not scored one by one."""
    seeds = [values for one in done if len(values := of_seed(one, reading))]
    if not seeds:
        return None
    alike = len({len(values) for values in seeds}) == 1
    each = [np.stack(seeds)] if alike else [values[None] for values in seeds]
    quantiles = np.concatenate([np.quantile(some, list(QUANTILES), axis=1) for some in each], axis=1).mean(1)
    counts, _ = np.histogram(np.concatenate(seeds), bins=_BINS, range=(0.0, 100.0))
    return Clients(
        worst=over_seeds(seeds, worst_tenth),
        median=float(quantiles[list(QUANTILES).index(0.5)]),
        quantiles=tuple(quantiles.tolist()),
        counts=tuple(counts.tolist()),
        number=(min(map(len, seeds)), max(map(len, seeds))),
    )


def drawn(walks: Mapping[int, Mapping[int, float]]) -> dict[int, list[list[Any]]]:
    """For each seed that was scored in several rounds, these rounds and the means after them, thinned evenly.

    `walks`: by seed and round, in percent.
    """
    found: dict[int, list[list[Any]]] = {}
    for seed, by_round in walks.items():
        walk = [(n, mean) for n, mean in sorted(by_round.items()) if math.isfinite(mean)]
        if len(walk) > 1:
            kept = sorted({round(i) for i in np.linspace(0, len(walk) - 1, min(len(walk), _POINTS))})
            found[seed] = [[walk[i][0] for i in kept], [round(walk[i][1], 2) for i in kept]]
    return found
