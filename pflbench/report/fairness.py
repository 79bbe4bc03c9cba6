"""Spread of a cell over its clients, from the stored scores alone. All in percent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.federation import split_clients
from pflbench.errors import PflbenchError
from pflbench.report.cells import SeedScores, of_seed
from pflbench.report.reading import Floats, smallest_first, support
from pflbench.report.statistics import sample
from pflbench.report.table import Fairness
from pflbench.suite.cells import Reading


def fairness(done: Sequence[SeedScores], reading: Reading) -> Fairness | None:
    """Spread of a cell's finished seeds over clients; None if clients were not scored one by one."""
    scored = [(one, values) for one in done if len(values := of_seed(one, reading))]
    if not scored:
        return None
    seeds = [values for _, values in scored]
    parts = [_parts(one) for one, _ in scored] if reading.smallest is None else []
    smallest, training, held_out = map(_mean, zip(*parts, strict=True)) if parts else (None,) * 3
    worst, spread = (sample([of(values) for values in seeds]) for of in (worst_tenth, deviation))
    return Fairness(
        seeds=len(seeds),
        clients=(min(map(len, seeds)), max(map(len, seeds))),
        mean=float(np.mean([values.mean() for values in seeds])),
        worst=worst.mean,
        worst_std=worst.sd,
        spread=spread.mean,
        spread_std=spread.sd,
        smallest=smallest,
        training=training,
        held_out=held_out,
    )


def worst_tenth(clients: Floats) -> float:
    """The mean of the worst tenth of the clients, at least one."""
    return float(np.sort(clients)[: max(1, len(clients) // 10)].mean())


def deviation(clients: Floats) -> float:
    """The standard deviation over clients (ddof = 0: they are all there are)."""
    return float(clients.std())


@cache
def _trains(clients: int, training: int, seed: int) -> npt.NDArray[np.bool_]:
    return split_clients(clients, training, seed)


def _mean(seeds: Sequence[float | None]) -> float | None:
    """None unless every seed has a number."""
    there = [one for one in seeds if one is not None]
    return float(np.mean(there)) if len(there) == len(seeds) else None


def _parts(one: SeedScores) -> tuple[float | None, float | None, float | None]:
    """The means of a seed's smallest clients, of those that train and of those that do not; None where nobody is."""
    return _of_the_smallest(one), *(_by_training(one) or (None, None))


def _of_the_smallest(one: SeedScores) -> float | None:
    """The mean of the tenth of a seed's clients with the fewest support images; ties: the lower client."""
    clients, values = one.each
    try:
        held = support(one.result, clients, "the smallest clients")
    except PflbenchError:  # a run of the server's model does not store it
        return None
    return float(values[smallest_first(held, clients)[: max(1, len(held) // 10)]].mean())


def _by_training(one: SeedScores) -> tuple[float, float] | None:
    """The means of a seed's clients that train and of those that do not; None unless both are scored."""
    run, (clients, values) = one.result.spec, one.each
    trains = _trains(run.clients, run.training_clients, run.seed)[list(clients)]
    return (float(values[trains].mean()), float(values[~trains].mean())) if trains.any() and (~trains).any() else None


QUANTILES = {
    0.0: "worst client",
    0.1: "10 % quantile",
    0.25: "lower quartile",
    0.5: "median",
    0.75: "upper quartile",
    0.9: "90 % quantile",
    1.0: "best client",
}
"""Quantiles of a cell's clients that are shown, by share."""
_BINS = 20
_POINTS = 60
"""Rounds of a curve at most; of more, some are left out."""


class ClientSpread(NamedTuple):
    """A cell's clients. Each number is the mean over seeds of what one seed's clients say.

    `quantiles`: those of `QUANTILES`. `counts`: how many clients of all seeds lie in each twentieth of 0 to 100.
    `number`: the fewest and the most clients of a seed.
    """

    worst: float
    median: float
    quantiles: tuple[float, ...]
    counts: tuple[int, ...]
    number: tuple[int, int]


def spread_over_clients(done: Sequence[SeedScores], reading: Reading) -> ClientSpread | None:
    """Distribution of the clients of a cell's finished seeds; None if clients were not scored one by one."""
    seeds = [values for one in done if len(values := of_seed(one, reading))]
    if not seeds:
        return None
    alike = len({len(values) for values in seeds}) == 1
    each = [np.stack(seeds)] if alike else [values[None] for values in seeds]
    quantiles = np.concatenate([np.quantile(some, list(QUANTILES), axis=1) for some in each], axis=1).mean(1)
    counts, _ = np.histogram(np.concatenate(seeds), bins=_BINS, range=(0.0, 100.0))
    return ClientSpread(
        worst=float(np.mean([worst_tenth(one) for one in seeds])),
        median=float(quantiles[list(QUANTILES).index(0.5)]),
        quantiles=tuple(quantiles.tolist()),
        counts=tuple(counts.tolist()),
        number=(min(map(len, seeds)), max(map(len, seeds))),
    )


def thinned(walks: Mapping[int, Mapping[int, float]]) -> dict[int, list[list[Any]]]:
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
