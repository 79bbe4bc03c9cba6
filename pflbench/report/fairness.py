"""Spread of a cell over its clients, from the stored scores alone. All in percent."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.federation import split_clients
from pflbench.errors import PflbenchError
from pflbench.report.cells import SeedScores, of_seed
from pflbench.report.reading import Floats, smallest_first, support
from pflbench.report.statistics import DEVIATION, WORST_TENTH, Interval, deviation, two_level, worst_tenth
from pflbench.report.table import Fairness
from pflbench.suite.cells import Reading


def fairness(done: Sequence[SeedScores], reading: Reading) -> Fairness | None:
    """Spread of a cell's finished seeds over clients; None if clients were not scored one by one.

    What is drawn depends on the runs' ids alone, so that a report is the same every time.
    """
    scored = [(one, values) for one in done if len(values := of_seed(one, reading))]
    if not scored:
        return None
    seeds = [values for _, values in scored]
    ids = sorted(id for one, _ in scored for id in one.runs)
    drawn = int.from_bytes(hashlib.sha256(" ".join(ids).encode()).digest()[:8], "big")
    parts = [_parts(one) for one, _ in scored] if reading.smallest is None else []
    smallest, training, held_out = map(_mean, zip(*parts, strict=True)) if parts else (None,) * 3
    worst_interval, spread_interval = _intervals(drawn, tuple(values.tobytes() for values in seeds))
    return Fairness(
        seeds=len(seeds),
        clients=(min(map(len, seeds)), max(map(len, seeds))),
        mean=mean_over_seeds(seeds, lambda clients: clients.mean(-1)),
        worst=mean_over_seeds(seeds, worst_tenth),
        worst_interval=worst_interval,
        spread=mean_over_seeds(seeds, deviation),
        spread_interval=spread_interval,
        smallest=smallest,
        training=training,
        held_out=held_out,
    )


def mean_over_seeds(seeds: Sequence[Floats], of: Callable[[Floats], Floats]) -> float:
    """The mean over seeds of a statistic of one seed's clients, which works over the last axis."""
    alike = len({len(values) for values in seeds}) == 1
    return float(np.mean(of(np.stack(seeds)) if alike else [of(values) for values in seeds]))


@cache
def _intervals(drawn: int, seeds: tuple[bytes, ...]) -> tuple[Interval | None, Interval | None]:
    """The intervals of the worst tenth and of the deviation; `seeds`: each one's clients, as bytes of floats.

    Cells of several tables, and readings of runs that were scored once, have the same; to draw them takes a while.
    """
    values = [np.frombuffer(one) for one in seeds]
    worst, spread = two_level(values, [WORST_TENTH, DEVIATION], np.random.default_rng(drawn)) or (None, None)
    return worst, spread


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
        worst=mean_over_seeds(seeds, worst_tenth),
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
