"""FedProto (Tan et al., AAAI 2022, arXiv 2105.00243), as PFLlib has it: class prototypes are sent, no model.

A client trains a personal model on the cross-entropy plus lam times the mean square distance of its features from the
global prototypes of their classes. It sends the mean feature of each class that it has, taken before each step; the
server averages these. The scored model is the client's base with the nearest prototype.

Departures:
1. The distance is PFLlib's: a mean of squares over rows and features (paper: a norm between class means), and the
   server's mean over the clients of a class is unweighted (paper: by rows).
2. A class without uploads keeps its prototype (PFLlib: drops it until it is sent again).
3. The whole cohort keeps its model, even if the upload is lost.
4. Momentum and weight decay.
Special cases: lam = 0: each client's model is Local's on the same minibatches.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import SGD, Method, decayed, hyper, local_draw, row_mean, steps
from pflbench.methods.class_means import ClassMeans, ClassSums, none, pooled

ABSENT = -1e30
"""Logit of a class without a prototype."""


@dataclass(frozen=True)
class FedProto(Method):
    """Personal models, whose features are pulled toward the clients' mean ones of the same class."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    needs_features = True
    lam: float = hyper(1.0, "Weight of the distance from the prototypes.", least=0)
    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def init(self, new, clients):
        return ClassMeans(*none(new(), new.classes, new.width))

    def init_client(self, server, new):
        return new()

    def client(self, f, server, state, batches, *, round):
        by, decay, base = SGD(self.lr, self.momentum), f.decay(self.weight_decay, state), f.part("base")

        def step(carry, b):
            w, memory, sums = carry
            g = f.grad(w, b)
            if self.lam:
                pull = f.grad(w, b, wrt="base", loss=distance, at="features", args=tuple(server))
                g = torch.cat([g[base] + self.lam * pull, g[base.stop :]])
            new, memory = by.update(w, decayed(g, w, decay), memory)
            return f.with_statistics(new, w, b), memory, sums.add(f.features(w, b), b)

        start = state, by.init(state), ClassSums(*none(state, f.classes, f.width))
        w, _, sums = steps(step, start, batches)
        return sums.means, w

    def server(self, server, uploads, n, round):
        return pooled(server, uploads)

    def personal_model(self, f, server, state, *, round):
        return torch.cat([state[f.part("base")], nearest(server)])


def distance(z, labels, mask, means, exist):
    """The mean over rows and features of the squared distance from the class's mean, 0 for a class without one."""
    wanted, known = ClassMeans(means, exist).of(labels)
    return row_mean(((z - wanted) ** 2).mean(-1) * known, mask)


def nearest(of):
    """A linear head whose largest logit is the nearest mean's: |f - m|² - |f - P|², with m the mean of all means.

    So its numbers are as small as differences of prototypes, which a narrow precision can distinguish.
    """
    center = of.means.sum(0) / of.exist.sum().clamp(min=1)
    off = of.means - center
    biases = torch.where(of.exist > 0, -(off * (of.means + center)).sum(-1), ABSENT)
    return torch.cat([(2 * off).flatten(), biases])
