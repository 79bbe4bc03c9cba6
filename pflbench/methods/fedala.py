"""FedALA (Zhang et al., AAAI 2023, arXiv 2212.01197, Algorithm 1): adaptive local aggregation.

Departures:
1. The weights see all of a client's data, once in every round (the paper: a share s, first until they converge). With
   `share` they see so large a part in a row, at a random place, drawn for each local update and each personal model.
2. With `start_phase`, the start phase is round 1's, in which the models first differ: at most so many passes, until
   the standard deviation of the losses after the last 10 of them is below 0.1 (a loss: the mixture's mean over the
   minibatches). A client that is first sampled later has none, and a personal model is made by one pass.
3. A personal model is what the next local initialization gives (the released code scores it), not the trained one.
4. The server's mean is weighted as the suite says. The whole cohort keeps model and weights, uploaded or not.
Special cases: with `share` = 1 and `start_phase` = 1, the same as without; with `eta` = 0, and in round 0, FedAvg:
there, weights of one take the global model bit by bit; here, it is the initial model, as every local model is. A client
that is first sampled later mixes the initial model with the global one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Draw, Initializer, Method, Objective, Round, hyper, steps, total_loss
from pflbench.methods.local_sgd import LocalSGD
from pflbench.models.network import Network
from pflbench.typing import Params, Part, Scalar

Own = tuple[Params, Part]
"""The last local model, at first the common initial one; the weights of its last layers."""
WINDOW = 10
"""Passes whose losses tell that the weights have converged."""
STEADY = 0.1
"""Standard deviation of these losses below which they have."""


@dataclass(frozen=True)
class FedALA(LocalSGD, Method[Params, Own, Params], epochs=1):
    """A client starts from an element-wise, learned mixture of its old local model and the global one."""

    version: ClassVar[int] = 2
    commits = "trained"
    personal_of = "training"
    eta: float = hyper(1.0, "Learning rate of the weights.", least=0)
    layers: int = hyper(1, "The paper's p: how many of the last layers have weights.", least=1)
    share: float | None = hyper(
        None, "Share of a client's data that the weights see, at a random place; none: all.", above=0, most=1
    )
    start_phase: int | None = hyper(
        None, "Most passes that train the weights in round 1, until the loss is steady; none: one pass.", least=1
    )

    def network(self, base: Network) -> Network:
        """The suite's. Raises `UsageError` if it has fewer layers than `layers`."""
        if self.layers > len(names := base.layout.layers):
            raise UsageError(
                f"FedALA: layers = {self.layers}, and the network has {len(names)}: {', '.join(names)}; write at most "
                f"{len(names)}."
            )
        return base

    def draws(self, round: Round) -> tuple[Draw, ...]:
        passes = self.start_phase if self.start_phase and round.index == 1 else 1
        return *super().draws(round), *self.personal_draws() * passes

    def init_client(self, server: Params, new: Initializer) -> Own:
        return server, torch.ones_like(server[new.last(self.layers)])

    def client(self, f: Objective, server: Params, state: Own, *batches: Batches, round: Round) -> tuple[Params, Own]:
        start, weights = self.mixed(f, server, state, *batches[1:])
        w = self.sgd(f, start, batches[0], lr=self.lr)
        return w, (w, weights)

    def mixed(self, f: Objective, server: Params, state: Own, *passes: Batches) -> tuple[Params, Part]:
        """theta_l + (theta_g - theta_l) W, after W <- clip(W - eta grad (theta_g - theta_l), 0, 1) by batches; W."""
        last, (model, weights) = f.last(self.layers), state
        back = (model - server)[last]

        def mix(v: Part) -> Params:
            return torch.cat([server[: last.start], server[last] + back * (1 - v)])

        def step(v: Part, b: Batch) -> Part:
            return (v + self.eta * f.grad(mix(v), b)[last] * back).clamp(0, 1)

        losses, converged = list[Scalar](), torch.zeros_like(weights[0], dtype=torch.bool)
        for batches in passes:
            weights = torch.where(converged, weights, steps(step, weights, batches))
            if len(passes) > WINDOW:
                minibatches = steps(lambda n, b: n + 1, weights.new_zeros(()), batches)
                losses.append(total_loss(f, mix(weights), batches) / minibatches)
            if len(losses) >= WINDOW:
                converged = converged | (torch.stack(losses[-WINDOW:]).std(correction=0) < STEADY)
        return mix(weights), weights

    def personal_draws(self) -> tuple[Draw, ...]:
        return (Draw(epochs=1, batch=self.batch, part=self.share),)

    def personal_model(self, f, server, state, *batches, round):
        return self.mixed(f, server, state, *batches)[0]
