"""How a cell's mean is spread over its clients, from the stored scores alone. All in percent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from pflbench.data.federation import split_clients
from pflbench.errors import PflbenchError
from pflbench.report.cells import Read, of_seed
from pflbench.report.reading import Floats, smallest_first, support
from pflbench.report.statistics import DEVIATION, WORST_TENTH, Interval, deviation, two_level, worst_tenth
from pflbench.report.table import Fairness
from pflbench.suite.cells import Reading


def fairness(done: Sequence[Read], reading: Reading) -> Fairness | None:
    """How the finished seeds of a cell are spread over clients; None where clients were not scored one by one.

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
        mean=over_seeds(seeds, lambda clients: clients.mean(-1)),
        worst=over_seeds(seeds, worst_tenth),
        worst_interval=worst_interval,
        spread=over_seeds(seeds, deviation),
        spread_interval=spread_interval,
        smallest=smallest,
        training=training,
        held_out=held_out,
    )


def over_seeds(seeds: Sequence[Floats], of: Callable[[Floats], Floats]) -> float:
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


def _parts(one: Read) -> tuple[float | None, float | None, float | None]:
    """The means of a seed's smallest clients, of those that train and of those that do not; None where nobody is."""
    return _of_the_smallest(one), *(_by_training(one) or (None, None))


def _of_the_smallest(one: Read) -> float | None:
    """The mean of the tenth of a seed's clients with the fewest support images; ties: the lower client."""
    clients, values = one.each
    try:
        held = support(one.result, clients, "the smallest clients")
    except PflbenchError:  # a run of the server's model does not store it
        return None
    return float(values[smallest_first(held, clients)[: max(1, len(held) // 10)]].mean())


def _by_training(one: Read) -> tuple[float, float] | None:
    """The means of a seed's clients that train and of those that do not; None unless both are scored."""
    run, (clients, values) = one.result.spec, one.each
    trains = _trains(run.clients, run.training_clients, run.seed)[list(clients)]
    return (float(values[trains].mean()), float(values[~trains].mean())) if trains.any() and (~trains).any() else None
