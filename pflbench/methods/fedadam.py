"""FedAdam (Reddi et al., ICLR 2021, arXiv 2003.00295, Algorithm 2): Adam at the server.

Departures:
1. The mean of the differences is weighted as the suite says (the paper's box: uniformly; its experiments: by examples).
2. `momentum` and `weight_decay` of the local SGD are none of the paper's.
Special cases: a round is one step of the paper's formulas, m from 0 and v from tau², without correction of their bias;
with `server_lr` = 0 the model never moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from pflbench.methods.base import Batches, Empty, Initializer, Method, Objective, Round, Weights, hyper, mean
from pflbench.methods.local_sgd import LocalSGD, ServerRate
from pflbench.typing import Float, Params, Tensor


class FedAdamServer(NamedTuple):
    """The model, and the two moments of the mean difference."""

    w: Params
    m: Params
    v: Params


@dataclass(frozen=True)
class FedAdam(LocalSGD, ServerRate, Method[FedAdamServer, Empty, Params], epochs=1, server_lr=0.01):
    """Local SGD at the clients; the server makes an Adam step along the mean of their differences."""

    version: ClassVar[int] = 2
    beta1: float = hyper(0.9, "Decay rate of the first moment.", least=0, below=1)
    beta2: float = hyper(0.99, "Decay rate of the second moment.", least=0, below=1)
    eps: float = hyper(1e-3, "The paper's tau, added to the root of the second moment.", above=0)

    def init(self, new: Initializer, clients: int) -> FedAdamServer:
        w = new()
        return FedAdamServer(w, torch.zeros_like(w), torch.full_like(w, self.eps**2))

    def client(
        self, f: Objective, server: FedAdamServer, state: Empty, *batches: Batches, round: Round
    ) -> tuple[Params, Empty]:
        return self.sgd(f, server.w, *batches, lr=self.lr) - server.w, state

    def server(
        self, server: FedAdamServer, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round
    ) -> FedAdamServer:
        delta = mean(uploads, n)
        m = self.beta1 * server.m + (1 - self.beta1) * delta
        v = self.beta2 * server.v + (1 - self.beta2) * delta**2
        return FedAdamServer(server.w + self.server_lr * m / (v.sqrt() + self.eps), m, v)

    def deploy(self, f: Objective, server: FedAdamServer, support: Batches) -> Params:
        return server.w
