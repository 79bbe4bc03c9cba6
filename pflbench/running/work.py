"""Relative work of a run, counted without running it: what its minibatches and scores compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from pflbench.engine.objective import FORWARD
from pflbench.methods.base import Draw, Round
from pflbench.models.network import Network
from pflbench.running import build
from pflbench.running.again import scored_rounds
from pflbench.spec import RunSpec

COINS = 10
"""Equally spaced coins that stand for the rounds of a method whose clients draw by them."""


def work_of(spec: RunSpec, reference: str, every: int | None = None) -> float | None:
    """Relative work of a run: floating-point operations of one pass over the examples that its gradients are of.

    Every client holds the mean number of examples, and one gradient is taken of each drawn minibatch.

    Args:
        spec: The run.
        reference: Where its method's code is.
        every: Interval of rounds after which it is scored, too; None: its last rounds alone.

    Returns:
        None with user-supplied code, which runs in workers only, or a dataset that does not say how large it is.
    """
    users = spec.dataset.version or spec.partition.version or spec.model_version
    if users or not reference.startswith("pflbench.methods."):
        return None
    return _work(spec.model_copy(update={"seed": 0}), reference, every)


@lru_cache(maxsize=1024)
def _work(spec: RunSpec, reference: str, every: int | None) -> float | None:
    examples = getattr(build.dataset(spec.dataset), "examples", None)
    if examples is None:
        return None
    method, network = build.construct(reference, spec.method.hyper), build.network(spec)
    divided = getattr(build.partition(spec.partition), "divided", lambda examples, clients: examples)
    rows: float = divided(examples, spec.clients) / spec.clients
    query = rows / 6 if isinstance(spec.query, str) else rows * spec.query

    def drawn(draw: Draw) -> float:
        if draw.steps is not None:
            return draw.steps * (draw.batch or spec.batch)
        return rows * (1 if draw.epochs is None else draw.epochs)

    draws = [draw for coin in range(COINS) for draw in method.draws(Round(0, coin=(coin + 0.5) / COINS))]
    clients = spec.training_clients if method.joins == "everyone" else spec.cohort
    training = spec.rounds * clients * sum(map(drawn, draws)) / COINS
    steps = spec.scoring.finetune.steps if spec.scoring.finetune else 0
    scored = {"held-out": spec.clients - spec.training_clients, "training": spec.training_clients, "all": spec.clients}
    each = steps * spec.batch + (steps + 1) * query * FORWARD
    scoring = scored_rounds(spec, every) * min(scored[spec.scoring.clients], spec.scoring.first or spec.clients) * each
    growth = method.network(network).layout.size / network.layout.size
    return float((training + scoring) * growth * flops(network))


def flops(network: Network) -> float:
    """Floating-point operations of one image's forward pass: those of products and convolutions, by PyTorch's formulas.

    A convolution uses each of its weights many times, so the number of parameters does not tell the cost of networks.
    """
    counted = _Flops()
    with torch.no_grad(), counted:  # of two images: a normalization takes no fewer
        network.logits([torch.zeros(network.layout.size)], torch.zeros(2, *network.shape))
    return counted.total / 2


class _Flops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context operations are done, and those that PyTorch has a formula for are counted in `total`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler, which takes seconds, as its own counter does

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The result of one operation."""
        result = func(*args, **(kwargs or {}))
        if formula := flop_registry.get(func._overloadpacket):
            self.total += formula(*args, **(kwargs or {}), out_val=result)
        return result
