"""Relative work of a run, estimated without running it: the pixels that its gradients and scores are computed of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from pflbench import names
from pflbench.engine.objective import FORWARD
from pflbench.methods.base import Draw, Round
from pflbench.names import Places
from pflbench.running import build
from pflbench.running.again import scored_rounds
from pflbench.spec import RunSpec

COINS = 10
"""Equally spaced coins that stand for the rounds of a method whose clients draw by them."""
ROWS = 100.0
"""Rows of a client of a dataset that does not say how large it is, or is user-supplied."""


def work_of(spec: RunSpec, places: Places, every: int | None = None) -> float:
    """Relative work of a run; equal for runs that differ by seed.

    Every client holds the mean number of rows, and one gradient is taken of each drawn minibatch. User-supplied code
    runs in workers only: such a method draws each client's rows once.

    Args:
        spec: The run.
        places: Paths of its user-supplied code and data.
        every: Interval of rounds after which it is scored, too; None: its last rounds alone.
    """
    return _work(spec.model_copy(update={"seed": 0}), names.place("methods", spec.method.name, places), every)


@lru_cache(maxsize=1024)
def _work(spec: RunSpec, reference: str, every: int | None) -> float:
    users = spec.dataset.version or spec.dataset.content or spec.partition.version or spec.model_version
    rows, pixels = (ROWS, 1.0) if users else _sizes(spec)
    draws: Sequence[Draw] = [Draw(epochs=1)] * COINS
    clients = spec.cohort
    if not names.is_users(reference):
        method = build.construct(reference, spec.method.hyper)
        draws = [draw for coin in range(COINS) for draw in method.draws(Round(0, coin=(coin + 0.5) / COINS))]
        clients = spec.training_clients if method.joins == "everyone" else spec.cohort
        if not users:  # a method may train a larger network, such as CAFeMe's with its modulator
            network = build.network(spec)
            pixels *= method.network(network).layout.size / network.layout.size

    def drawn(draw: Draw) -> float:
        if draw.steps is not None:
            return draw.steps * (draw.batch or spec.batch)
        return rows * (1 if draw.epochs is None else draw.epochs)

    training = spec.rounds * clients * sum(map(drawn, draws)) / COINS
    query = rows / 6 if isinstance(spec.query, str) else rows * spec.query
    steps = spec.scoring.finetune.steps if spec.scoring.finetune else 0
    scored = {"held-out": spec.clients - spec.training_clients, "training": spec.training_clients, "all": spec.clients}
    each = steps * spec.batch + (steps + 1) * query * FORWARD
    scoring = scored_rounds(spec, every) * min(scored[spec.scoring.clients], spec.scoring.first or spec.clients) * each
    return pixels * (training + scoring)


def _sizes(spec: RunSpec) -> tuple[float, float]:
    """Mean number of a client's rows, and pixels of an image."""
    data = build.dataset(spec.dataset)
    examples = getattr(data, "examples", None)
    divided = getattr(build.partition(spec.partition), "divided", lambda examples, clients: examples)
    return divided(examples, spec.clients) / spec.clients if examples else ROWS, math.prod(data.shape)
