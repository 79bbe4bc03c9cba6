"""FedFomo (Zhang et al., ICLR 2021, arXiv 2012.08565), as PFLlib has it: each client weights the others' models itself.

The server hands all clients the last models of all. A client keeps a part of its data for validation. With its loss L
there, and the model w_old that its last training started from, model w_j has the weight
max(0, (L(w_old) - L(w_j)) / (|w_j - w_old| + 1e-5)). It trains on the other data from the weighted mean of the models,
from its own model where no weight is positive.

Departures:
1. w_old is the start of the last training, as in PFLlib (the paper: the model that the last training left).
2. A client receives all models, as PFLlib's does with M = N (the paper: the M most promising, a few by chance), so it
   needs to know no identities. Its own is among them, if the last upload arrived.
3. L is a mean over rows (PFLlib: over minibatches). Static minibatches are divided whole: the last ones, of which there
   are `validation` times their number, rounded up, are for validation. A client with one trains on it, too.
   Of n rows in reshuffled ones, the last n - floor(0.8 n) are for validation (PFLlib: the last int(0.2 n)).
4. All training clients take part in every round, whatever the cohort, and keep their models. `momentum` and
   `weight_decay` are added.
Special cases: one client: Local on the first 80 % of its data; a single model with a positive weight: start from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch

from pflbench.methods.base import Batches, Draw, Initializer, Method, Objective, Round, Weights, hyper
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.stack import Stack
from pflbench.typing import Float, Params, Tensor

LEAST_DISTANCE = 1e-5
"""Added to distances between models, which are divided by."""


class Trained(NamedTuple):
    """A client's model, and the one that its training started from."""

    w: Params
    old: Params


@dataclass(frozen=True)
class FedFomo(LocalSGD, Method[Stack, Trained, Params]):
    """Every client starts from the mean of all models, weighted by how much they lower its validation loss."""

    version: ClassVar[int] = 1
    joins = "everyone"
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    validation: float = hyper(0.2, "Share of a client's data that is for validation, its last.", above=0, below=1)

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """Minibatches to train on, and all data to validate on."""
        at = 1 - self.validation
        return replace(self.drawn(), part=(0.0, at)), Draw(whole=True, part=(at, 1.0))

    def init(self, new: Initializer, clients: int) -> Stack:
        """No models."""
        models = Stack.full(new(), clients)
        return models._replace(there=torch.zeros_like(models.there))

    def init_client(self, server: Stack, new: Initializer) -> Trained:
        return Trained(new(), new())

    def client(
        self, f: Objective, server: Stack, state: Trained, *batches: Batches, round: Round
    ) -> tuple[Params, Trained]:
        training, (validation,) = batches
        losses = torch.stack([f(w, validation) for w in server.rows])
        start = mixture(server, state, f(state.old, validation) - losses)
        w = self.sgd(f, start, training, lr=self.lr)
        return w, Trained(w, start)

    def server(self, server: Stack, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Stack:
        """The models as they came."""
        return server.replaced(uploads)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return state.w
        return state.w


def mixture(models: Stack, own: Trained, gains: Float[Tensor, "clients"]) -> Params:
    """The mean of the models, weighted by their gains over distances; the own model where no weight is positive."""
    distances = (models.rows - own.old).norm(dim=-1) + LEAST_DISTANCE
    weights = models.there * (gains / distances).clamp(min=0)
    total = weights.sum()
    return torch.where(total > 0, weights / torch.where(total > 0, total, 1) @ models.rows, own.w)
