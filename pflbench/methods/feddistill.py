"""FedDistill (federated distillation; Jeong et al. 2018, arXiv 1811.11479), as PFLlib has it: mean logits are sent.

A client trains a personal model on the cross-entropy plus lam times a term that pulls its logits toward the clients'
mean logits of the row's label. It sends its mean logits of each label that it has, taken before each step.

Departures:
1. The mean over the clients of a label includes the client itself (paper: excludes it), and is unweighted.
2. `term`: "soft" is the cross-entropy with the softmax of the mean logits, nearest to the paper; "mse" the mean square
   distance (PFLlib's code of 2023).
3. A label without uploads keeps its mean.
4. Means are of logits without dropout.
5. The whole cohort keeps its model, even if the upload is lost.
6. Momentum and weight decay.
Special cases: lam = 0: each client's model is Local's on the same minibatches.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F

from pflbench.methods.base import SGD, Method, decayed, hyper, local_draw, row_mean, steps
from pflbench.methods.class_means import ClassMeans, ClassSums, none, pooled


@dataclass(frozen=True)
class FedDistill(Method):
    """Personal models, whose logits are pulled toward the clients' mean ones of the same label."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    lam: float = hyper(1.0, "Weight of the pull toward the mean logits.", least=0)
    term: Literal["soft", "mse"] = hyper("soft", "Cross-entropy with their softmax, or mean square distance.")
    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def init(self, new, clients):
        return ClassMeans(*none(new(), new.classes, new.classes))

    def init_client(self, server, new):
        return new()

    def client(self, f, server, state, batches, *, round):
        by, decay = SGD(self.lr, self.momentum), f.decay(self.weight_decay, state)

        def step(carry, b):
            w, memory, sums = carry
            g = f.grad(w, b, loss=self.loss, args=tuple(server))
            new, memory = by.update(w, decayed(g, w, decay), memory)
            return f.with_statistics(new, w, b), memory, sums.add(f.logits(w, b), b)

        start = state, by.init(state), ClassSums(*none(state, f.classes, f.classes))
        w, _, sums = steps(step, start, batches)
        return sums.means, w

    def loss(self, logits, labels, mask, means, exist):
        """The mean over rows of the cross-entropy and, for labels with mean logits, lam times the term."""
        wanted, known = ClassMeans(means, exist).of(labels)
        if self.term == "mse":
            terms = ((logits - wanted) ** 2).mean(-1)
        else:
            terms = -(wanted.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        return row_mean(F.cross_entropy(logits, labels, reduction="none") + self.lam * known * terms, mask)

    def server(self, server, uploads, n, round):
        return pooled(server, uploads)

    def personal_model(self, f, server, state, *, round, upload=None):
        return state
