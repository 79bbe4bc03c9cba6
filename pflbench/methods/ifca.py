"""IFCA (Ghosh et al., NeurIPS 2020, arXiv 2006.04088, Algorithm 1, model averaging).

Departures:
1. A client chooses by the sum of its minibatches' losses, because batch normalization makes a loss depend on its
   minibatch (CAFeMe's code).
2. Clusters start from K independent models (in CAFeMe's code they are one shared object).
3. A cluster that no client chose stays unchanged.
4. `shared="base"`: one base, averaged over all uploads, and K heads (pFedVEM's table; the authors' code pretrains the
   base and freezes it). A client then chooses by its mean loss over all rows.
5. Momentum and weight decay; each local update starts from rest.
6. The suite sets the weights of a cluster's mean (paper: uniform).
Special cases: one cluster = FedAvg, with any `shared`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from pflbench.methods.base import (
    SGD,
    Draw,
    Method,
    UsageError,
    base_then_head,
    hyper,
    local_draw,
    mean,
    total_loss,
    train,
    with_base,
)


class Upload(NamedTuple):
    """Number of the chosen cluster, its trained part, and the part that all clusters share (`()`: none)."""

    choice: Any
    model: Any
    shared: Any = ()


@dataclass(frozen=True)
class IFCA(Method):
    """Iterative federated clustering: each client trains the one of K models that fits it best."""

    version: ClassVar[int] = 1
    clusters: int = hyper(4, "Number of models K.", least=1)
    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)
    shared: Literal["base"] | None = hyper(None, "Part that all clusters share; none: no part.")

    def network(self, base):
        return base_then_head(base) if self.shared else base

    def draws(self, round):
        return *self.personal_draws(), local_draw(self.epochs, self.steps, self.batch)

    def init(self, new, clients):
        models = [new(k) for k in range(self.clusters)]
        if self.shared:
            models = [with_base(w, models[0][new.part(self.shared)]) for w in models]
        return torch.stack(models)

    def client(self, f, server, state, once, batches, *, round):
        choice = self.choose(f, server, once)
        w = server.index_select(0, choice[None])[0]
        w, _ = train(f, w, batches, SGD(self.lr, self.momentum), decay=f.decay(self.weight_decay, w))
        if self.shared is None:
            return Upload(choice, w), state
        where = f.part(self.shared)
        return Upload(choice, w[where.stop :], w[where]), state

    def choose(self, f, server, batches):
        """Number of the cluster with the least loss; the lowest one of equals."""
        return torch.stack([total_loss(f, w, batches) for w in server]).argmin()

    def server(self, server, uploads, n, round):
        # A cluster becomes the mean of the models of the clients that chose it; a shared base, the mean of all.
        member = uploads.choice[:, None] == torch.arange(self.clusters, device=server.device)
        weights = member.to(server.dtype) * n[:, None].to(server.dtype)
        total = weights.sum(0)[:, None]
        averaged = weights.T @ uploads.model / torch.where(total > 0, total, 1)
        new = torch.where(total > 0, averaged, server[:, server.shape[1] - averaged.shape[1] :])
        if self.shared is None:
            return new
        return torch.cat([mean(uploads.shared, n).expand(self.clusters, -1), new], 1)

    def deploy(self, f, server, support):
        return server.index_select(0, self.choose(f, server, support)[None])[0]

    def predicting(self, query, last):
        if last is None and self.clusters > 1:
            raise UsageError("IFCA chooses a cluster by a client's training examples.")
        return query

    def personal_draws(self):
        return (Draw(whole=True) if self.shared else Draw(epochs=1),)

    def personal_model(self, f, server, state, once, *, round):
        return self.deploy(f, server, once)
