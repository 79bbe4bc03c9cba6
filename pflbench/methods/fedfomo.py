"""FedFomo (Zhang et al., ICLR 2021, arXiv 2012.08565), as in PFLlib: each client weights the others' models itself.

The server hands all clients the last models of all. A client keeps a part of its data for validation. With its loss L
on that part, and the model w_old that its last training started from, model w_j has the weight
max(0, (L(w_old) - L(w_j)) / (|w_j - w_old| + 1e-5)). The client trains on the other data from the weighted mean of the
models, or from its last model where no weight is positive.

Departures:
1. w_old is the start of the last training, as in PFLlib (paper: the result of the last training).
2. A client receives all models, as PFLlib's does with M = N (paper: the M most promising, a few by chance), so that it
   needs no identities. Its last model is among them, if the upload arrived.
3. L is a mean over rows (PFLlib: over minibatches). Static minibatches are divided whole: the last `validation` times
   their number, rounded up, are for validation; a client with one minibatch trains on it, too. Of n reshuffled rows,
   the last n - floor(0.8 n) are for validation (PFLlib: the last int(0.2 n)).
4. All training clients take part in every round, for any cohort, and keep their models.
Special cases: one client: Local on the first 80 % of its data. A single model with a positive weight: the start.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.base import Draw, hyper
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.stack import Stack

LEAST_DISTANCE = 1e-5
"""Added to distances between models, which are divisors."""


class Client(NamedTuple):
    """A client's model, and the start of its training."""

    w: Any
    old: Any


@dataclass(frozen=True)
class FedFomo(FedAvg):
    """Every client starts from the mean of all models, weighted by how much they lower its validation loss."""

    version: ClassVar[int] = 1
    joins = "everyone"
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    validation: float = hyper(0.2, "Share of a client's data that is for validation, its last.", above=0, below=1)

    def draws(self, round):
        at, (training,) = 1 - self.validation, super().draws(round)
        return replace(training, part=(0.0, at)), Draw(whole=True, part=(at, 1.0))

    def init(self, new, clients):
        models = Stack.full(new(), clients)
        return models._replace(present=torch.zeros_like(models.present))

    def init_client(self, server, new):
        return Client(new(), new())

    def client(self, f, server, state, batches, validation, *, round):
        (b,) = validation
        losses = torch.stack([f(w, b) for w in server.rows])
        start = mixture(server, state, f(state.old, b) - losses)
        w = self.trained(f, start, batches)
        return w, Client(w, start)

    def server(self, server, uploads, n, round):
        return server.replaced(uploads)

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        return self.trained(f, state.w, batches, lr=self.personal_lr)


def mixture(models, state, gains):
    """The mean of the models, weighted by their gains over distances; the client's where no weight is positive."""
    distances = (models.rows - state.old).norm(dim=-1) + LEAST_DISTANCE
    weights = models.present * (gains / distances).clamp(min=0)
    total = weights.sum()
    return torch.where(total > 0, weights / torch.where(total > 0, total, 1) @ models.rows, state.w)
