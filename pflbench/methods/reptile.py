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
from pflbench.methods.base import Batches, Draw, Empty, Method, Objective, Round, Weights, hyper
from pflbench.methods.local_sgd import OwnBatch, SGDOptions, TwoRates
from pflbench.typing import Float, Params, Tensor


@dataclass(frozen=True)
class EpochsOrSteps(OwnBatch):
    """Hyperparameters `epochs`, `steps` and `batch` of inner updates that are passes or a number of minibatches."""

    steps: int | None = hyper(None, "Minibatches of a local update, in place of epochs; none: epochs.", least=0)
    epochs: int | None = hyper(
        None, "Epochs of a local update; none: `steps` or, where these are none, the method's own number.", least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]  # of the method
        if self.epochs is not None and self.steps is not None:
            raise UsageError(
                f"An inner update has either epochs or steps, not {self.epochs} epochs and {self.steps} steps."
            )

    def inner(self, default: int) -> Draw:
        """Draw of one inner update; `default` epochs where neither is set."""
        if self.steps is not None:
            return Draw(steps=self.steps, batch=self.batch)
        return Draw(epochs=default if self.epochs is None else self.epochs, batch=self.batch)


@dataclass(frozen=True)
class Reptile(EpochsOrSteps, TwoRates, SGDOptions, Method[Params, Empty, Params]):
    """The server moves toward the mean of models that clients adapted from its own."""

    version: ClassVar[int] = 1

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return self.personal_draws()

    def client(
        self, f: Objective, server: Params, state: Empty, *batches: Batches, round: Round
    ) -> tuple[Params, Empty]:
        """One inner update of the server's model, which is sent."""
        return self.sgd(f, server, *batches, lr=self.inner_lr), state

    def server(self, server: Params, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Params:
        # The new w is w + b (mean of the uploads - w).
        return toward(server, uploads, self.outer_lr)

    def personal_draws(self) -> tuple[Draw, ...]:
        """Minibatches of an inner update; default: 5 epochs."""
        return (self.inner(5),)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        """The server's model after one inner update."""
        if upload is not None:
            return upload
        return self.sgd(f, server, *batches, lr=self.inner_lr)


def toward(server: Params, uploads: Float[Tensor, "cohort params"], rate: float) -> Params:
    """The server's model moved by `rate` toward the plain mean of the uploads; exact for rates of 0 and 1."""
    return torch.lerp(server, uploads.mean(0), rate)
