"""FedPAC (Xu et al., ICLR 2023, arXiv 2306.11867), as PFLlib has it: features alike, and heads combined by the clients.

A client trains its head on the frozen base, then the base on the cross-entropy plus lam times the mean square distance
of its features from the global prototypes of their classes, which are means over the clients of each class. From the
received base it sends h = (q_c mu_c)_c, of shares q_c and mean features mu_c of its labels, and the variance
V = (E|f|² - |h|²) / n. Client i's head is then sum_j alpha_j head_j, with alpha = argmin over the simplex of
sum_j alpha_j² V_j + |sum_j alpha_j (h_i - h_j)|², in which weights below 0.001 are left out.

Departures:
1. A client solves its own problem (the paper: the server); it receives all heads and statistics, which is counted.
2. The head has `head_epochs` on features that the frozen base makes once, where a row has the same in every pass.
   V, h and prototypes are of all rows at once (with static minibatches: of those that are in one).
3. The problem is convex as it stands, so no eigenvalues are cut as in PFLlib. As there, the weights that are left are
   not scaled to sum to 1.
4. A client's part of the distance is PFLlib's: a mean of squares over rows and features.
5. All training clients take part in every round, whatever the cohort; an upload that is lost is in nobody's head.
   `momentum` and `weight_decay` are added.
The global model, which the paper does not have, is the shared base with the initial head: a start for fine-tuning.
Special cases: one client with lam = 0: FedRep of equally many epochs; equal V and h: all get the mean head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from pflbench.methods.base import Batch, Batches, Draw, Initializer, Method, Objective, Round, Weights, hyper, mean
from pflbench.methods.class_means import ClassMeans, ClassSums, pooled
from pflbench.methods.fedper import Base, Head, base_then_head, with_base
from pflbench.methods.fedproto import distance
from pflbench.methods.linear_head import head_gradient
from pflbench.methods.local_sgd import BaseEpochs, LocalRate, SGDOptions
from pflbench.methods.simplex import minimum
from pflbench.methods.stack import Stack
from pflbench.models.network import Network
from pflbench.typing import Float, Params, Tensor

LEAST_WEIGHT = 1e-3
"""Weight of another head below which it is left out."""


class Shared(NamedTuple):
    """A base with the initial head, the prototypes, and rows of a head, its client's V, and its h."""

    w: Params
    known: ClassMeans
    heads: Stack


class Sent(NamedTuple):
    """A base, a client's prototypes, and its row."""

    base: Base
    known: ClassMeans
    row: Tensor


@dataclass(frozen=True)
class FedPAC(BaseEpochs, LocalRate, SGDOptions, Method[Shared, Tensor, Sent], base_epochs=1):
    """A shared base with features alike for each class; every client's head is its own combination of all heads."""

    version: ClassVar[int] = 1
    joins = "everyone"
    commits = "trained"
    personal_of = "training"
    global_model = "start"
    needs_features = True
    head_epochs: int = hyper(1, "Local epochs K on the head.", least=0)
    lam: float = hyper(1.0, "Weight of the distance from the prototypes.", least=0)

    def network(self, base: Network) -> Network:
        """The suite's, if it is a base and then a linear head."""
        return base_then_head(super().network(base))

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """All images at once, for the statistics; passes for the head; passes for the base."""
        return (
            Draw(whole=True),
            Draw(epochs=self.head_epochs, batch=self.batch, indexed=True),
            Draw(epochs=self.base_epochs, batch=self.batch),
        )

    def init(self, new: Initializer, clients: int) -> Shared:
        """The initial model of all, and no prototypes."""
        w = new()
        row = torch.cat([w[new.part("head")], w.new_ones(1), w.new_zeros(new.classes * new.width)])
        return Shared(w, ClassMeans.none(w, new.classes, new.width), Stack.full(row, clients))

    def init_client(self, server: Shared, new: Initializer) -> Tensor:
        """The h of a client without rows."""
        return server.w.new_zeros(new.classes * new.width)

    def client(
        self, f: Objective, server: Shared, state: Tensor, *batches: Batches, round: Round
    ) -> tuple[Sent, Tensor]:
        (everything,), for_head, for_base = batches
        base, head = server.w[f.part("base")], combined(server.heads, state)
        z = f.features(server.w, everything)

        def by_head(h: Head, b: Batch) -> Head:
            if not f.cacheable or b.places is None:
                return f.grad(torch.cat([base, h]), b, wrt="head")
            return head_gradient(h, z.index_select(0, b.places), b.labels, b.mask, f.classes)

        head = self.sgd(f, head, for_head, lr=self.lr, grad=by_head, wrt="head")

        def by_base(part: Base, b: Batch) -> Base:
            w = torch.cat([part, head])
            pull = f.grad(w, b, wrt="base", loss=distance, at="features", args=tuple(server.known)) if self.lam else 0
            return f.grad(w, b, wrt="base") + self.lam * pull

        trained = self.sgd(f, base, for_base, lr=self.lr, grad=by_base, wrt="base")
        v, h = statistics(z, everything, f.classes)
        features = f.features(torch.cat([trained, head]), everything)
        known = ClassSums.none(z, f.classes, f.width).add(features, everything).means
        return Sent(trained, known, torch.cat([head, v[None], h])), h

    def server(self, server: Shared, uploads: Sent, n: Weights, round: Round) -> Shared:
        """The mean of the bases, the unweighted means of the prototypes, and the rows as they came."""
        w = with_base(server.w, mean(uploads.base, n))
        return Shared(w, pooled(server.known, uploads.known), server.heads.replaced(uploads.row))

    def deploy(self, f: Objective, server: Shared, support: Batches) -> Params:
        return server.w

    def personal_model(self, f, server, state, *batches, round):
        return torch.cat([server.w[f.part("base")], combined(server.heads, state)])


def statistics(z: Float[Tensor, "rows width"], b: Batch, classes: int) -> tuple[Tensor, Tensor]:
    """V, and h flattened, of a client's features."""
    sums = ClassSums.none(z, classes, z.shape[-1]).add(z, b)
    squares = ClassSums.none(z, classes, 1).add((z**2).sum(-1, keepdim=True), b)
    n = sums.rows.sum()
    h = (sums.sums / n).flatten()
    return (squares.sums.sum() / n - (h**2).sum()).clamp(min=0) / n, h


def combined(heads: Stack, h: Float[Tensor, "statistics"]) -> Head:
    """The combination of the heads of which the estimated loss of a client with this h is least."""
    size = heads.rows.shape[-1] - h.shape[-1] - 1
    off = (h - heads.rows[:, size + 1 :]).double()
    alpha = minimum(torch.diag_embed(heads.rows[:, size].double()) + off @ off.mT, heads.there).to(h.dtype)
    return torch.where(alpha < min(LEAST_WEIGHT, 0.5 / len(alpha)), 0, alpha) @ heads.rows[:, :size]
