"""FedPAC (Xu et al., ICLR 2023, arXiv 2306.11867), as PFLlib has it: features alike, and heads combined by the clients.

A client trains its head on the frozen base, then the base on the cross-entropy plus lam times the mean square distance
of its features from the global prototypes of their classes, which are means over the clients of each class. From the
received base it sends h = (q_c mu_c)_c, of shares q_c and mean features mu_c of its labels, and the variance
V = (E|f|² - |h|²) / n. Client i's head is then sum_j alpha_j head_j, with alpha = argmin over the simplex of
sum_j alpha_j² V_j + |sum_j alpha_j (h_i - h_j)|², in which weights below 0.001 are dropped.

Departures:
1. A client solves its problem (paper: the server); it receives all heads and statistics, which is counted.
2. The head has `head_epochs` on features that the frozen base makes once, where a row has the same in every pass. V, h
   and prototypes are of all rows at once (with static minibatches: of the rows in one).
3. The problem is convex, so no eigenvalues are cut as in PFLlib; as there, the remaining weights are not scaled to sum
   to 1.
4. A client's part of the distance is PFLlib's: a mean of squares over rows and features.
5. All training clients take part in every round; a lost upload is in no head.
6. Momentum and weight decay.
The global model, which the paper does not have, is the shared base with the initial head: a start for fine-tuning.
Special cases: one client with lam = 0: FedRep of equally many epochs; equal V and h: all get the mean head.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.base import SGD, Draw, Method, hyper, mean, train, with_base
from pflbench.methods.class_means import ClassMeans, ClassSums, none, pooled
from pflbench.methods.fedproto import distance
from pflbench.methods.linear_head import train_head
from pflbench.methods.stack import Stack

LEAST_WEIGHT = 1e-3
"""Weight of another head below which it is dropped."""
ITERATIONS = 50
CENTERING = 0.1
"""Complementarity that an iteration aims at, as a share of the present one."""
LEAST = 1e-28
"""Complementarity at which it stays, of a matrix whose diagonal's mean is 1."""
SHORT = 0.99
"""Share of the way to the first bound that an iteration goes."""


class Shared(NamedTuple):
    """A base with the initial head, the prototypes, and rows of a head, its client's V, and its h."""

    w: Any
    prototypes: ClassMeans
    heads: Stack


class Upload(NamedTuple):
    """A base, a client's prototypes, and its row."""

    base: Any
    prototypes: ClassMeans
    row: Any


@dataclass(frozen=True)
class FedPAC(Method):
    """A shared base with features alike for each class; every client's head is a combination of all heads."""

    version: ClassVar[int] = 1
    joins = "everyone"
    commits = "trained"
    personal_of = "training"
    global_model = "start"
    needs_features = True
    head_epochs: int = hyper(1, "Local epochs K on the head.", least=0)
    base_epochs: int = hyper(1, "Local epochs on the base, after the head.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)
    lam: float = hyper(1.0, "Weight of the distance from the prototypes.", least=0)

    def draws(self, round):
        return (
            Draw(whole=True),
            Draw(epochs=self.head_epochs, batch=self.batch, indexed=True),
            Draw(epochs=self.base_epochs, batch=self.batch),
        )

    def init(self, new, clients):
        w = new()
        row = torch.cat([w[new.part("head")], w.new_ones(1), w.new_zeros(new.classes * new.width)])
        return Shared(w, ClassMeans(*none(w, new.classes, new.width)), Stack.full(row, clients))

    def init_client(self, server, new):
        return server.w.new_zeros(new.classes * new.width)  # the h of a client without rows

    def client(self, f, server, state, everything, for_head, for_base, *, round):
        (everything,), by = everything, SGD(self.lr, self.momentum)
        base, head = server.w[f.part("base")], combined(server.heads, state)
        z = f.features(server.w, everything)

        w = torch.cat([base, head])
        head, _ = train_head(f, w, z if f.cacheable else None, for_head, by, self.weight_decay)

        def by_base(w, b):
            pull = 0
            if self.lam:
                pull = f.grad(w, b, wrt="base", loss=distance, at="features", args=tuple(server.prototypes))
            return f.grad(w, b, wrt="base") + self.lam * pull

        w, decay = torch.cat([base, head]), f.decay(self.weight_decay, base, wrt="base")
        w, _ = train(f, w, for_base, by, grad=by_base, wrt="base", decay=decay)
        trained = w[f.part("base")]
        v, h = statistics(z, everything, f.classes)
        features = f.features(w, everything)
        prototypes = ClassSums(*none(z, f.classes, f.width)).add(features, everything).means
        return Upload(trained, prototypes, torch.cat([head, v[None], h])), h

    def server(self, server, uploads, n, round):
        w = with_base(server.w, mean(uploads.base, n))
        return Shared(w, pooled(server.prototypes, uploads.prototypes), server.heads.replaced(uploads.row))

    def deploy(self, f, server, support):
        return server.w

    def personal_model(self, f, server, state, *, round):
        return torch.cat([server.w[f.part("base")], combined(server.heads, state)])


def statistics(z, b, classes):
    """V, and h flattened, of a client's features z ["rows", "width"]."""
    sums = ClassSums(*none(z, classes, z.shape[-1])).add(z, b)
    squares = ClassSums(*none(z, classes, 1)).add((z**2).sum(-1, keepdim=True), b)
    n = sums.rows.sum()
    h = (sums.sums / n).flatten()
    return (squares.sums.sum() / n - (h**2).sum()).clamp(min=0) / n, h


def combined(heads, h):
    """The combination of the heads for which the estimated loss of a client with this h is least."""
    size = heads.rows.shape[-1] - h.shape[-1] - 1
    off = (h - heads.rows[:, size + 1 :]).double()
    alpha = minimum(torch.diag_embed(heads.rows[:, size].double()) + off @ off.mT, heads.present).to(h.dtype)
    return torch.where(alpha < min(LEAST_WEIGHT, 0.5 / len(alpha)), 0, alpha) @ heads.rows[:, :size]


def minimum(q, exist):
    """Minimize a^T Q a over a >= 0 that sum to 1, in float64, by a primal-dual interior-point method.

    It makes a fixed number of Newton steps (Nocedal & Wright, Numerical Optimization, 2nd ed., section 16.6), so that
    one client and a stack compute alike. z are the multipliers of a >= 0.

    Args:
        q: Symmetric and positive semidefinite ["n", "n"].
        exist: 1 for the unknowns, at least one; 0 for entries that stay 0 and whose rows in `q` are ignored ["n"].
    """
    real, count = exist.double() > 0, exist.double().sum()
    both = real[:, None] & real
    q = torch.where(both, q.double(), 0)
    q = q / (q.diagonal().sum() / count).clamp(min=torch.finfo(q.dtype).tiny)
    one = real.to(q.dtype)
    a, z = one / count, one
    for _ in range(ITERATIONS):
        inside = torch.where(real, a, 1)  # divides
        target = (CENTERING * (a * z).sum() / count).clamp(min=LEAST)
        h = q + torch.diag_embed(torch.where(real, z / inside, 1))
        # Newton's step of  Q a - y - z = 0,  a z = target,  sum a = 1;  y, which is linear, comes out with it.
        right = torch.stack([torch.where(real, target / inside, 0) - q @ a, one], -1)
        root = torch.linalg.cholesky_ex(h).L  # and two triangular systems, which a CUDA graph can record
        half = torch.linalg.solve_triangular(root, right, upper=False)
        by_target, by_sum = torch.linalg.solve_triangular(root.mT, half, upper=True).unbind(-1)
        da = by_target - by_target.sum() / by_sum.sum() * by_sum
        dz = torch.where(real, (target - z * da) / inside, 0) - z
        length = torch.minimum(reach(a, da), reach(z, dz))
        a, z = a + length * da, z + length * dz
    return a / a.sum()


def reach(x, dx):
    """Length of a step from x along dx, at most 1, that keeps positive entries positive."""
    down = dx < 0
    return torch.where(down, -x / torch.where(down, dx, -1), torch.inf).amin().mul(SHORT).clamp(max=1)
