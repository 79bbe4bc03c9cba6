"""FedALA (Zhang et al., AAAI 2023, arXiv 2212.01197, Algorithm 1): adaptive local aggregation.

Departures:
1. The weights see all of a client's data, once in every round (paper: a share s, first until they converge). With
   `share` they see so large a part in a row, at a random position, drawn for each local update and personal model.
2. With `start_phase`, the start phase is round 1's, in which the models first differ: at most so many passes, until
   the standard deviation of the losses after the last 10 passes is below 0.1 (a loss: the mixture's mean over the
   minibatches). A client that is first sampled later has none, and a personal model is made by one pass.
3. A personal model is the start of the next local update (released code), not the trained model.
4. The suite sets the weights of the server's mean. The whole cohort keeps model and weights, also where an upload gets
   lost.
Special cases: `share` = 1 and `start_phase` = 1: the same as without. `eta` = 0, or round 0: FedAvg. In round 0 the
global model is the initial one, as all local models are.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import Draw, UsageError, hyper, steps, total_loss
from pflbench.methods.fedavg import FedAvg

WINDOW = 10
"""Passes over whose losses the weights' convergence is judged."""
STEADY = 0.1
"""Standard deviation of these losses below which the weights have converged."""


@dataclass(frozen=True)
class FedALA(FedAvg):
    """A client starts from an element-wise, learned mixture of its old local model and the global one."""

    version: ClassVar[int] = 2
    commits = "trained"
    personal_of = "training"
    epochs: int = hyper(1, "Local epochs per round.", least=0)
    eta: float = hyper(1.0, "Learning rate of the weights.", least=0)
    layers: int = hyper(1, "The paper's p: number of last layers with weights.", least=1)
    share: float | None = hyper(
        None, "Share of a client's data that the weights see, at a random position; none: all.", above=0, most=1
    )
    start_phase: int | None = hyper(
        None, "Most passes that train the weights in round 1, until the loss is steady; none: one pass.", least=1
    )

    def network(self, base):
        if self.layers > len(names := base.layout.layers):
            raise UsageError(
                f"FedALA: layers = {self.layers}, and the network has {len(names)}: {', '.join(names)}; write at most "
                f"{len(names)}."
            )
        return base

    @property
    def for_weights(self):
        """Draw of one pass over the data that the weights see."""
        return Draw(epochs=1, batch=self.batch, part=self.share)

    def draws(self, round):
        passes = self.start_phase if self.start_phase and round.index == 1 else 1
        return *super().draws(round), *[self.for_weights] * passes

    def init_client(self, server, new):
        return server, torch.ones_like(server[new.last(self.layers)])

    def client(self, f, server, state, batches, *passes, round):
        start, weights = self.mixed(f, server, state, *passes)
        w = self.trained(f, start, batches)
        return w, (w, weights)

    def mixed(self, f, server, state, *passes):
        """theta_l + (theta_g - theta_l) W, after W <- clip(W - eta grad (theta_g - theta_l), 0, 1) by batches; W."""
        last, (model, weights) = f.last(self.layers), state
        back = (model - server)[last]

        def mix(v):
            return torch.cat([server[: last.start], server[last] + back * (1 - v)])

        def step(v, b):
            return (v + self.eta * f.grad(mix(v), b)[last] * back).clamp(0, 1)

        losses, converged = [], torch.zeros_like(weights[0], dtype=torch.bool)
        for batches in passes:
            weights = torch.where(converged, weights, steps(step, weights, batches))
            if len(passes) > WINDOW:
                minibatches = steps(lambda n, b: n + 1, weights.new_zeros(()), batches)
                losses.append(total_loss(f, mix(weights), batches) / minibatches)
            if len(losses) >= WINDOW:
                converged = converged | (torch.stack(losses[-WINDOW:]).std(correction=0) < STEADY)
        return mix(weights), weights

    def personal_draws(self):
        return self.for_weights, *super().personal_draws()

    def personal_model(self, f, server, state, for_weights, batches=(), *, round):
        w, _ = self.mixed(f, server, state, for_weights)
        return self.trained(f, w, batches, lr=self.personal_lr)
