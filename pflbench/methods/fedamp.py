"""FedAMP (Huang et al., AAAI 2021, arXiv 2007.03797): personal models, pulled toward those that are near.

The server hands all clients the last models of all. A client mixes them with its model by their nearness,
u = w + sum_j xi_j (w_j - w) with xi_j = alpha exp(-|w - w_j|² / sigma) / sigma, and trains on the cross-entropy plus
lam / (2 alpha) |w' - u|². A client's model among the others has no weight, so that it needs no identities.

Departures:
1. The client mixes (paper: the server, by the client's last upload, which is the same model); it receives all models
   instead of one mixture, and the costs count these.
2. Local training is SGD from the client's model (paper: any minimizer).
3. All training clients take part in every round, for any cohort, and keep their models; a lost upload is in no mixture.
Special cases: lam = 0: Local on the same minibatches (also PFLlib's code since March 2023, whose pull has no gradient).
With sigma so large that all weights are alpha / sigma = 1 / N, u is the mean of all models.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from pflbench.methods.base import hyper
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.stack import Stack


@dataclass(frozen=True)
class FedAMP(FedAvg):
    """Every client has a model of its own, pulled toward a mixture in which near models weigh more."""

    version: ClassVar[int] = 1
    joins = "everyone"
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    alpha: float = hyper(5e-3, "Step size of the mixture.", above=0)
    lam: float = hyper(5e-7, "Weight of the pull, divided by alpha.", least=0)
    sigma: float = hyper(0.1, "Squared distance at which a model's weight falls to 1 / e.", above=0)
    anchored: Literal[True] = hyper(True, "Fixed; part of the ids of stored runs.")

    def init(self, new, clients):
        return Stack.full(new(), clients)

    def init_client(self, server, new):
        return new()

    def client(self, f, server, state, batches, *, round):
        u = self.mixture(state, server)

        def pulled(w, b):
            return f.grad(w, b) + self.lam / self.alpha * (w - u)

        w = self.trained(f, state, batches, grad=pulled if self.lam else None)
        return w, w

    def mixture(self, w, models):
        """The model with the others mixed in."""
        off = models.rows - w
        weights = models.present * self.alpha / self.sigma * torch.exp(-(off**2).sum(-1) / self.sigma)
        return w + weights @ off

    def server(self, server, uploads, n, round):
        return server.replaced(uploads)

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        return self.trained(f, state, batches, lr=self.personal_lr)
