"""FedDyn (Acar et al., ICLR 2021, arXiv 2111.04263, Algorithm 1): dynamic regularization.

A client minimizes its loss minus <h_i, w> plus alpha / 2 |w - w_t|², with w_t the received model; then h_i becomes
h_i - alpha (w_i - w_t). With N training clients, the server's h becomes h - alpha / N sum (w_i - w_t) over the uploads,
and its model their plain mean minus h / alpha.

Departures:
1. Local training is passes of SGD (paper: any minimizer).
2. A client keeps its h_i where its upload arrives.
Special cases: after the first round, w = mean(w_i) + (cohort / N) mean(w_i - w_t), for any alpha. With all clients in
every round, h is the mean of the h_i.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.base import hyper, mean_statistics
from pflbench.methods.fedavg import FedAvg


class Server(NamedTuple):
    """The model, the server's h, and the number of training clients."""

    w: Any
    h: Any
    clients: Any


@dataclass(frozen=True)
class FedDyn(FedAvg):
    """Local losses with a linear term each, which lets their minimizers agree."""

    version: ClassVar[int] = 1
    alpha: float = hyper(0.1, "Strength of the dynamic regularization.", above=0)

    def init(self, new, clients):
        w = new()
        return Server(w, torch.zeros_like(w), w.new_tensor(float(clients)))

    def init_client(self, server, new):
        return torch.zeros_like(server.w)

    def client(self, f, server, state, batches, *, round):
        start, alpha = server.w, self.alpha

        def regularized(w, b):
            return f.grad(w, b) - state + alpha * (w - start)

        w = self.trained(f, start, batches, grad=regularized)
        return w, state - alpha * (w - start)

    def server(self, server, uploads, n, round):
        h = server.h - self.alpha * (uploads - server.w).sum(0) / server.clients
        averaged = uploads.mean(0)
        return Server(mean_statistics(averaged - h / self.alpha, averaged, round), h, server.clients)

    def deploy(self, f, server, support):
        return server.w
