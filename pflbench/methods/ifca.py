"""IFCA (Ghosh et al., NeurIPS 2020, arXiv 2006.04088, Algorithm 1, model averaging).

Departures:
1. A client chooses by the sum of mini-batch losses over its static minibatches, because batch normalization makes the
   loss of a batch depend on its composition (authors' CAFeMe code).
2. K independent initial models (in the authors' CAFeMe code they are one shared object); model 0 is the seed's common
   one.
3. Clusters nobody chose stay unchanged.
4. `shared="base"` is pFedVEM's table's reading of the paper's weight sharing for ambiguous clusters: one base, trained
   by all and averaged over all uploads, and K heads (the authors' code pretrains the base and freezes it). A client
   then chooses by the mean loss over all its rows, at once.
5. `momentum` and `weight_decay` are none of the paper's; each local update begins with a fresh momentum.
6. A cluster's mean over the clients that chose it is weighted as the suite says (the paper: uniformly).
Special cases: one cluster = FedAvg, whatever is shared; with `shared`, clusters keep one and the same base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from pflbench.methods.base import (
    Batches,
    Draw,
    Empty,
    Initializer,
    Method,
    Objective,
    Round,
    Weights,
    hyper,
    mean,
    total_loss,
)
from pflbench.methods.fedper import base_then_head, with_base
from pflbench.methods.local_sgd import LocalSGD
from pflbench.models.network import Network
from pflbench.typing import Float, Int, Params

Clusters = Float[Tensor, "clusters params"]


class IFCAUpload(NamedTuple):
    """The chosen cluster's number; after local training, what is that cluster's own, and what all share (if any)."""

    choice: Int[Tensor, "*cohort"]
    model: Float[Tensor, "*cohort own"]
    shared: Float[Tensor, "*cohort shared"] | Empty = ()


@dataclass(frozen=True)
class IFCA(LocalSGD, Method[Clusters, Empty, IFCAUpload]):
    """Iterative federated clustering: each client trains the one of K models that fits it best."""

    version: ClassVar[int] = 1
    clusters: int = hyper(4, "Number of models K.", least=1)
    shared: Literal["base"] | None = hyper(None, "The part that all clusters share; none: they share nothing.")

    def network(self, base: Network) -> Network:
        """The suite's; with a shared base, it must be a base and then a head."""
        return base_then_head(base) if self.shared else base

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """Draws to choose a cluster by, then `epochs` passes to train."""
        return *self.personal_draws(), *super().draws(round)

    def personal_draws(self) -> tuple[Draw, ...]:
        """Draws to choose a cluster by: one pass or, with a shared base, all rows at once."""
        return (Draw(whole=True) if self.shared else Draw(epochs=1),)

    def init(self, new: Initializer, clients: int) -> Clusters:
        """K independent models or, with a shared base, heads."""
        models = [new(k) for k in range(self.clusters)]
        if self.shared:
            models = [with_base(w, models[0][new.part(self.shared)]) for w in models]
        return torch.stack(models)

    def choose(self, f: Objective, server: Clusters, batches: Batches) -> Int[Tensor, ""]:
        """The cluster with the least loss; ties go to the lowest number."""
        return torch.stack([total_loss(f, server[k], batches) for k in range(self.clusters)]).argmin()

    def client(
        self, f: Objective, server: Clusters, state: Empty, *batches: Batches, round: Round
    ) -> tuple[IFCAUpload, Empty]:
        """Choose a cluster, then local SGD on it."""
        once, for_training = batches
        choice = self.choose(f, server, once)
        w = self.sgd(f, pick(server, choice), for_training, lr=self.lr)
        if self.shared is None:
            return IFCAUpload(choice, w), state
        where = f.part(self.shared)
        return IFCAUpload(choice, w[where.stop :], w[where]), state

    def server(self, server: Clusters, uploads: IFCAUpload, n: Weights, round: Round) -> Clusters:
        """Each cluster becomes the mean of the models of those who chose it; what is shared, the mean of all."""
        if isinstance(uploads.shared, Tensor):
            base = mean(uploads.shared, n)
            own = self._averaged(server[:, len(base) :], uploads, n)
            return torch.cat([base.expand(self.clusters, -1), own], 1)
        return self._averaged(server, uploads, n)

    def _averaged(self, server: Float[Tensor, "clusters own"], uploads: IFCAUpload, n: Weights) -> Tensor:
        numbers = torch.arange(self.clusters, device=server.device)
        member = (uploads.choice[:, None] == numbers).to(server.dtype) * n[:, None].to(server.dtype)
        total = member.sum(0)[:, None]
        averaged = member.T @ uploads.model / torch.where(total > 0, total, 1)
        return torch.where(total > 0, averaged, server)

    def deploy(self, f: Objective, server: Clusters, support: Batches) -> Params:
        """The cluster that fits this client's support best."""
        return pick(server, self.choose(f, server, support))

    def personal_model(self, f, server, state, *batches, round):
        """The cluster that fits this client best: to have its own is what IFCA is for (pFedVEM's tables show it)."""
        return self.deploy(f, server, *batches)


def pick(models: Clusters, choice: Int[Tensor, ""]) -> Params:
    """The model with this number."""
    return models.index_select(0, choice[None])[0]
