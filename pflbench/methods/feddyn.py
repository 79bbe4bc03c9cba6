"""FedDyn (Acar et al., ICLR 2021, arXiv 2111.04263, Algorithm 1): dynamic regularization.

A client trains on its loss minus <h_i, w> plus alpha / 2 |w - w_t|², of the received model w_t, and h_i becomes
h_i - alpha (w_i - w_t). The server's h becomes h - alpha / N sum (w_i - w_t) over the uploads, of N training clients,
and its model the plain mean of the uploads minus h / alpha.

Departures:
1. Local training is passes of SGD (the paper: any minimizer).
2. A client keeps its h_i where its upload arrives. `momentum` and `weight_decay` are added.
Special cases: after the first round w = mean(w_i) + (cohort / N) mean(w_i - w_t), whatever alpha; with all clients in
every round, h is the mean of the h_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Weights, hyper
from pflbench.methods.local_sgd import LocalSGD
from pflbench.typing import Float, Params, Scalar, Tensor


class Dynamic(NamedTuple):
    """The model, the server's h, and the number of training clients."""

    w: Params
    h: Params
    clients: Scalar


@dataclass(frozen=True)
class FedDyn(LocalSGD, Method[Dynamic, Params, Params]):
    """Local losses with a linear term each, which lets their minimizers agree."""

    version: ClassVar[int] = 1
    alpha: float = hyper(0.1, "Strength of the dynamic regularization.", above=0)

    def init(self, new: Initializer, clients: int) -> Dynamic:
        w = new()
        return Dynamic(w, torch.zeros_like(w), w.new_tensor(float(clients)))

    def init_client(self, server: Dynamic, new: Initializer) -> Params:
        return torch.zeros_like(server.w)

    def client(
        self, f: Objective, server: Dynamic, state: Params, *batches: Batches, round: Round
    ) -> tuple[Params, Params]:
        start, alpha = server.w, self.alpha

        def regularized(w: Params, b: Batch) -> Params:
            return f.grad(w, b) - state + alpha * (w - start)

        w = self.sgd(f, start, *batches, lr=self.lr, grad=regularized)
        return w, state - alpha * (w - start)

    def server(self, server: Dynamic, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Dynamic:
        """The plain mean of the uploads, moved by the sum of all that clients were pulled back from."""
        h = server.h - self.alpha * (uploads - server.w).sum(0) / server.clients
        return Dynamic(uploads.mean(0) - h / self.alpha, h, server.clients)

    def deploy(self, f: Objective, server: Dynamic, support: Batches) -> Params:
        return server.w
