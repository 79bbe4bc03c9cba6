"""FedALA (Zhang et al., AAAI 2023, arXiv 2212.01197, Algorithm 1): adaptive local aggregation.

Departures:
1. The weights see all of a client's data, once in every round (the paper: a share s, first until they converge).
2. A personal model is what the next local initialization gives (the released code scores it), not the trained one.
3. The server's mean is weighted as the suite says. The whole cohort keeps model and weights, uploaded or not.
Special cases: with `eta` = 0, and in a client's first round, FedAvg: weights of one take the global model bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import Batches, Draw, Initializer, Method, Objective, Round, hyper, steps
from pflbench.methods.local_sgd import LocalSGD
from pflbench.typing import Params, Part, Scalar

Own = tuple[Params, Part, Scalar]  # the last local model, the weights of its last layers, 1 if there was an update


@dataclass(frozen=True)
class FedALA(LocalSGD, Method[Params, Own, Params], epochs=1):
    """A client starts from an element-wise, learned mixture of its old local model and the global one."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    eta: float = hyper(1.0, "Learning rate of the weights.", least=0)
    layers: int = hyper(1, "The paper's p: how many of the last layers have weights.", least=1)

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return *super().draws(round), *self.personal_draws()

    def init_client(self, server: Params, new: Initializer) -> Own:
        return server, torch.ones_like(server[new.last(self.layers)]), server.new_zeros(())

    def client(self, f: Objective, server: Params, state: Own, *batches: Batches, round: Round) -> tuple[Params, Own]:
        start, weights = self.mixed(f, server, state, batches[1])
        w = self.sgd(f, start, batches[0], lr=self.lr)
        return w, (w, weights, torch.ones_like(state[2]))

    def mixed(self, f: Objective, server: Params, state: Own, batches: Batches) -> tuple[Params, Part]:
        """theta_l + (theta_g - theta_l) W, after W <- clip(W - eta grad (theta_g - theta_l), 0, 1) by batches; W."""
        last, (model, weights, seen) = f.last(self.layers), state
        back = torch.where(seen > 0, (model - server)[last], 0.0)

        def mix(v: Part) -> Params:
            return torch.cat([server[: last.start], server[last] + back * (1 - v)])

        weights = steps(lambda v, b: (v + self.eta * f.grad(mix(v), b)[last] * back).clamp(0, 1), weights, batches)
        return mix(weights), weights

    def personal_draws(self) -> tuple[Draw, ...]:
        return (Draw(epochs=1, batch=self.batch),)

    def personalize(self, f: Objective, server: Params, state: Own, *batches: Batches, round: Round) -> Params:
        return self.mixed(f, server, state, *batches)[0]
