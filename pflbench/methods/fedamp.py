"""FedAMP (Huang et al., AAAI 2021, arXiv 2007.03797): models of one's own, pulled toward those that are near.

The server hands all clients the last models of all. A client mixes them with its own by their nearness,
u = w + sum_j xi_j (w_j - w) with xi_j = alpha exp(-|w - w_j|² / sigma) / sigma, and trains its own model on the
cross-entropy plus lam / (2 alpha) |w' - u|². A client's own model among the others has no weight, so nobody needs to
know which one it is.

Departures:
1. The client mixes (the paper: the server, by a client's last upload, which is the same model); it receives all models
   instead of one mixture, and that is what is counted.
2. Local training is SGD from the own model (the paper: any minimizer).
3. All training clients take part in every round, whatever the cohort, and keep their models; an upload that is lost is
   in nobody's mixture. `momentum` and `weight_decay` are added.
4. `anchored = false` is PFLlib's code since March 2023, whose pull has no gradient: it is Local.
Special cases: lam = 0, or anchored = false: Local on the same minibatches; with sigma so large that all weights are
alpha / sigma = 1 / N, u is the mean of all models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Weights, hyper
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.stack import Stack
from pflbench.typing import Float, Params, Tensor


@dataclass(frozen=True)
class FedAMP(LocalSGD, Method[Stack, Params, Params]):
    """Every client has its own model, pulled toward a mixture in which near models weigh more."""

    version: ClassVar[int] = 1
    joins = "everyone"
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    alpha: float = hyper(5e-3, "Step size of the mixture.", above=0)
    lam: float = hyper(5e-7, "Weight of the pull, divided by alpha.", least=0)
    sigma: float = hyper(0.1, "Squared distance at which a model's weight falls to 1 / e.", above=0)
    anchored: bool = hyper(True, "Whether the pull has a gradient; without, as in PFLlib since 2023, this is Local.")

    def init(self, new: Initializer, clients: int) -> Stack:
        """The initial model of every client."""
        return Stack.full(new(), clients)

    def init_client(self, server: Stack, new: Initializer) -> Params:
        return new()

    def client(
        self, f: Objective, server: Stack, state: Params, *batches: Batches, round: Round
    ) -> tuple[Params, Params]:
        if not (self.lam and self.anchored):
            w = self.sgd(f, state, *batches, lr=self.lr)
            return w, w
        u = self.mixture(state, server)

        def pulled(w: Params, b: Batch) -> Params:
            return f.grad(w, b) + self.lam / self.alpha * (w - u)

        w = self.sgd(f, state, *batches, lr=self.lr, grad=pulled)
        return w, w

    def mixture(self, w: Params, models: Stack) -> Params:
        """The model with the others mixed in."""
        off = models.rows - w
        weights = models.there * self.alpha / self.sigma * torch.exp(-(off**2).sum(-1) / self.sigma)
        return w + weights @ off

    def server(self, server: Stack, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Stack:
        """The models as they came."""
        return server.replaced(uploads)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return state
        return state
