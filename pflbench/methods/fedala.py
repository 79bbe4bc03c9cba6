"""FedALA (Zhang et al., AAAI 2023, arXiv 2212.01197, Algorithm 1): adaptive local aggregation.

Departures:
1. The weights see all of a client's data, once in every round (the paper: a share s, first until they converge).
2. A personal model is what the next local initialization gives (the released code scores it), not the trained one.
3. The server's mean is weighted as the suite says. The whole cohort keeps model and weights, uploaded or not.
Special cases: with `eta` = 0, and in round 0, FedAvg: there, weights of one take the global model bit by bit; here, it
is the initial model, as every local model is. A client that is first sampled later mixes the initial model with the
global one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import Batches, Draw, Initializer, Method, Objective, Round, hyper, steps
from pflbench.methods.local_sgd import LocalSGD
from pflbench.typing import Params, Part

Own = tuple[Params, Part]
"""The last local model, at first the common initial one; the weights of its last layers."""


@dataclass(frozen=True)
class FedALA(LocalSGD, Method[Params, Own, Params], epochs=1):
    """A client starts from an element-wise, learned mixture of its old local model and the global one."""

    version: ClassVar[int] = 2
    commits = "trained"
    personal_of = "training"
    eta: float = hyper(1.0, "Learning rate of the weights.", least=0)
    layers: int = hyper(1, "The paper's p: how many of the last layers have weights.", least=1)

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return *super().draws(round), *self.personal_draws()

    def init_client(self, server: Params, new: Initializer) -> Own:
        return server, torch.ones_like(server[new.last(self.layers)])

    def client(self, f: Objective, server: Params, state: Own, *batches: Batches, round: Round) -> tuple[Params, Own]:
        start, weights = self.mixed(f, server, state, batches[1])
        w = self.sgd(f, start, batches[0], lr=self.lr)
        return w, (w, weights)

    def mixed(self, f: Objective, server: Params, state: Own, batches: Batches) -> tuple[Params, Part]:
        """theta_l + (theta_g - theta_l) W, after W <- clip(W - eta grad (theta_g - theta_l), 0, 1) by batches; W."""
        last, (model, weights) = f.last(self.layers), state
        back = (model - server)[last]

        def mix(v: Part) -> Params:
            return torch.cat([server[: last.start], server[last] + back * (1 - v)])

        weights = steps(lambda v, b: (v + self.eta * f.grad(mix(v), b)[last] * back).clamp(0, 1), weights, batches)
        return mix(weights), weights

    def personal_draws(self) -> tuple[Draw, ...]:
        return (Draw(epochs=1, batch=self.batch),)

    def personalize(self, f: Objective, server: Params, state: Own, *batches: Batches, round: Round) -> Params:
        return self.mixed(f, server, state, *batches)[0]
