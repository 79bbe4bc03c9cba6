"""IFCA (Ghosh et al. 2020, Algorithm 1, model averaging).

Departures:
1. A client chooses by the sum of mini-batch losses over its static minibatches, because batch normalization makes the
   loss of a batch depend on its composition (authors' CAFeMe code).
2. K independent initial models (in the authors' CAFeMe code they are one shared object, its bug B2); model 0 is the
   seed's common one.
3. Clusters nobody chose stay unchanged.
Special cases: one cluster = FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from pflbench.methods.base import (
    Batches,
    Initializer,
    Method,
    Objective,
    Round,
    Take,
    Weights,
    steps,
    total_loss,
)
from pflbench.optim import sgd
from pflbench.typing import Float, Int, Params

Clusters = Float[Tensor, "clusters params"]


class Upload(NamedTuple):
    """The chosen cluster's number and that cluster's model after local training."""

    choice: Int[Tensor, "*cohort"]
    model: Float[Tensor, "*cohort params"]


@dataclass(frozen=True)
class IFCA(Method[Clusters, tuple[()], Upload]):
    """Iterative federated clustering: each client trains the one of K models that fits it best."""

    version: ClassVar[int] = 1
    clusters: int = 4
    """Number of models K."""
    epochs: int = 5
    """Local epochs per participation."""
    lr: float = 1e-3
    """Local learning rate (plain SGD)."""

    def takes(self) -> tuple[Take, ...]:
        """One pass to choose, `epochs` passes to train."""
        return Take(epochs=1), Take(epochs=self.epochs)

    def init(self, new: Initializer, clients: int) -> Clusters:
        """K independent models."""
        return torch.stack([new(k) for k in range(self.clusters)])

    def choose(self, f: Objective, server: Clusters, batches: Batches) -> Int[Tensor, ""]:
        """The cluster with the least loss; ties go to the lowest number."""
        return torch.stack([total_loss(f, server[k], batches) for k in range(self.clusters)]).argmin()

    def client(
        self, f: Objective, server: Clusters, state: tuple[()], *taken: Batches, round: Round
    ) -> tuple[Upload, tuple[()]]:
        """Choose a cluster, then local SGD on it."""
        once, batches = taken
        choice = self.choose(f, server, once)
        w = steps(lambda w, b: sgd(w, f.grad(w, b), lr=self.lr), pick(server, choice), batches)
        return Upload(choice, w), state

    def server(self, server: Clusters, uploads: Upload, n: Weights, round: Round) -> Clusters:
        """Each cluster becomes the mean of the models of those who chose it."""
        numbers = torch.arange(self.clusters, device=server.device)
        member = (uploads.choice[:, None] == numbers).to(server.dtype) * n[:, None].to(server.dtype)
        total = member.sum(0)[:, None]
        averaged = member.T @ uploads.model / torch.where(total > 0, total, 1)
        return torch.where(total > 0, averaged, server)

    def deploy(self, f: Objective, server: Clusters, support: Batches) -> Params:
        """The cluster that fits this client's support best."""
        return pick(server, self.choose(f, server, support))


def pick(models: Clusters, choice: Int[Tensor, ""]) -> Params:
    """The model with this number."""
    return models.index_select(0, choice[None])[0]
