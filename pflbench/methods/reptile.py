"""Federated Reptile (Nichol et al. 2018, arXiv 1803.02999, with clients as tasks).

Departures:
1. A client's tau steps are epochs or steps over its minibatches (the tutorial: gradients of its whole loss F_k).
2. `momentum` and `weight_decay` are none of Reptile's: each local update begins with a fresh momentum.
3. A personal model is the server's after the inner update on the client's own minibatches, nothing kept.
The server's mean is a plain one, whatever weights the suite has.
Special cases: outer_lr = 1 and equal weights = FedAvg; outer_lr = 0 never moves; FedEC without a constraint is this
method, to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Empty, Method, Objective, Round, Take, Weights, descend
from pflbench.typing import Float, Params, Tensor


@dataclass(frozen=True)
class Reptile(Method[Params, Empty, Params]):
    """The server moves toward the mean of models that clients adapted from its own."""

    version: ClassVar[int] = 1
    epochs: int | None = None
    """Epochs of an inner update; none: 5, unless `steps` are given."""
    steps: int | None = None
    """Minibatches of an inner update, in place of epochs."""
    inner_lr: float = 0.01
    """Inner learning rate a (SGD)."""
    outer_lr: float = 1.0
    """The server's step b toward the mean."""
    momentum: float | None = None
    """Momentum of the inner SGD, fresh in each inner update; none: without."""
    weight_decay: float | None = None
    """Weight decay of the inner SGD, of layers' weights alone; none: without."""
    batch: int | None = None
    """Examples per minibatch; none: the suite's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        inner_take(self.epochs, self.steps, self.batch)

    def takes(self) -> tuple[Take, ...]:
        return (inner_take(self.epochs, self.steps, self.batch, default=5),)

    def client(self, f: Objective, server: Params, state: Empty, *taken: Batches, round: Round) -> tuple[Params, Empty]:
        """One inner update of the server's model, which is sent."""
        return self._adapt(f, server, *taken), state

    def server(self, server: Params, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Params:
        """The new w is w + b (mean of the uploads - w)."""
        return toward(server, uploads, self.outer_lr)

    def adapts(self) -> tuple[Take, ...]:
        return self.takes()

    def personalize(
        self, f: Objective, server: Params, state: Empty, sent: Params | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """The server's model after one inner update."""
        return {"personalized": self._adapt(f, server, *taken)}

    def trained(self, sent: Params, state: Empty) -> Params:
        return sent

    def _adapt(self, f: Objective, w: Params, batches: Batches) -> Params:
        decay = f.decay(self.weight_decay, w)
        return descend(f.grad, w, batches, lr=self.inner_lr, beta=self.momentum, decay=decay)


def inner_take(epochs: int | None, steps: int | None, batch: int | None, *, default: int = 1) -> Take:
    """The minibatches of one inner update: so many steps or epochs, or `default` epochs if neither is said.

    Raises:
        UsageError: Both are said.
    """
    if epochs is not None and steps is not None:
        raise UsageError(f"An inner update has either epochs or steps, not {epochs} epochs and {steps} steps.")
    if steps is not None:
        return Take(steps=steps, batch=batch)
    return Take(epochs=default if epochs is None else epochs, batch=batch)


def toward(server: Params, uploads: Float[Tensor, "cohort params"], rate: float) -> Params:
    """The server's model moved by `rate` toward the plain mean of the uploads; exact for rates of 0 and 1."""
    return torch.lerp(server, uploads.mean(0), rate)
