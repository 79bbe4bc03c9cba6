"""FedProto (Tan et al., AAAI 2022, arXiv 2105.00243), as PFLlib has it: class prototypes are sent, no model.

A client trains a whole model of its own on the cross-entropy plus lam times the mean square distance of its features
from the global prototypes of their classes. It sends the mean feature of each class that it has, taken before each
step; the server averages these. The scored model is the client's base with the nearest prototype.

Departures:
1. The distance is PFLlib's: a mean of squares over rows and features (the paper: a norm between class means), and the
   server's mean over the clients of a class is unweighted (the paper: by rows).
2. A class that no upload has keeps its prototype; in PFLlib it goes until it is sent again.
3. The whole cohort keeps its model, whether its upload arrives or not. `momentum` and `weight_decay` are added.
Special cases: lam = 0: each client's model is Local's on the same minibatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Weights, hyper, steps
from pflbench.methods.class_means import ClassMeans, ClassSums, pooled
from pflbench.methods.fedper import base_then_head
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.loops import decayed, row_mean
from pflbench.models.network import Network
from pflbench.optim import State
from pflbench.typing import Params, Rows, Scalar, Tensor

ABSENT = -1e30
"""Logit of a class without a prototype."""


@dataclass(frozen=True)
class FedProto(LocalSGD, Method[ClassMeans, Params, ClassMeans]):
    """Models of the clients' own, whose features are pulled toward the clients' mean ones of the same class."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    needs_features = True
    lam: float = hyper(1.0, "Weight of the distance from the prototypes.", least=0)

    def network(self, base: Network) -> Network:
        """The suite's, if it is a base and then a linear head."""
        return base_then_head(super().network(base))

    def init(self, new: Initializer, clients: int) -> ClassMeans:
        return ClassMeans.none(new(), new.classes, new.width)

    def init_client(self, server: ClassMeans, new: Initializer) -> Params:
        return new()

    def client(
        self, f: Objective, server: ClassMeans, state: Params, *batches: Batches, round: Round
    ) -> tuple[ClassMeans, Params]:
        by, decay, base = self.local_optimizer(self.lr), f.decay(self.weight_decay, state), f.part("base")

        def step(carry: tuple[Params, State, ClassSums], b: Batch) -> tuple[Params, State, ClassSums]:
            w, memory, seen = carry
            g = f.grad(w, b)
            if self.lam:
                pull = f.grad(w, b, wrt="base", loss=distance, at="features", args=tuple(server))
                g = torch.cat([g[base] + self.lam * pull, g[base.stop :]])
            return *by.update(w, decayed(g, w, decay), memory), seen.add(f.features(w, b), b)

        start = state, by.init(state), ClassSums.none(state, f.classes, f.width)
        w, _, seen = steps(step, start, *batches)
        return seen.means, w

    def server(self, server: ClassMeans, uploads: ClassMeans, n: Weights, round: Round) -> ClassMeans:
        return pooled(server, uploads)

    def personal_model(self, f, server, state, *batches, round):
        return torch.cat([state[f.part("base")], nearest(server)])


def distance(features: Tensor, labels: Rows, mask: Tensor | None, means: Tensor, there: Tensor) -> Scalar:
    """The mean over rows and features of the squared distance from the class's mean, 0 for a class without one."""
    wanted, known = ClassMeans(means, there).of(labels)
    return row_mean(((features - wanted) ** 2).mean(-1) * known, mask)


def nearest(of: ClassMeans) -> Tensor:
    """A linear head whose largest logit is the nearest mean's: |f - m|² - |f - P|² of the mean m of all there are.

    So its numbers are as small as differences of prototypes, which a narrow precision tells apart.
    """
    center = of.means.sum(0) / of.there.sum().clamp(min=1)
    off = of.means - center
    biases = torch.where(of.there > 0, -(off * (of.means + center)).sum(-1), ABSENT)
    return torch.cat([(2 * off).flatten(), biases])
