"""FedAdam (Reddi et al., ICLR 2021, arXiv 2003.00295, Algorithm 2): Adam at the server.

Departure: the suite sets the weights of the mean difference (paper's box: uniform; its experiments: by examples).
Special cases: a round is one step of the paper's formulas, m from 0 and v from tau², without correction of their bias.
With `server_lr` = 0 the model never moves.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.base import hyper, mean, mean_statistics
from pflbench.methods.fedavg import FedAvg


class Server(NamedTuple):
    """The model, and the two moments of the mean difference."""

    w: Any
    m: Any
    v: Any


@dataclass(frozen=True)
class FedAdam(FedAvg):
    """FedAvg whose server makes an Adam step along the mean of the clients' differences."""

    version: ClassVar[int] = 2
    epochs: int = hyper(1, "Local epochs per round.", least=0)
    server_lr: float = hyper(0.01, "Learning rate of the server.", least=0)
    beta1: float = hyper(0.9, "Decay rate of the first moment.", least=0, below=1)
    beta2: float = hyper(0.99, "Decay rate of the second moment.", least=0, below=1)
    eps: float = hyper(1e-3, "The paper's tau, added to the root of the second moment.", above=0)

    def init(self, new, clients):
        w = new()
        return Server(w, torch.zeros_like(w), torch.full_like(w, self.eps**2))

    def client(self, f, server, state, batches, *, round):
        return self.trained(f, server.w, batches), state

    def server(self, server, uploads, n, round):
        delta = mean(uploads - server.w, n)
        m = self.beta1 * server.m + (1 - self.beta1) * delta
        v = self.beta2 * server.v + (1 - self.beta2) * delta**2
        w = server.w + self.server_lr * m / (v.sqrt() + self.eps)
        return Server(mean_statistics(w, server.w + delta, round), m, v)

    def deploy(self, f, server, support):
        return server.w
