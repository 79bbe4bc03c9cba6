"""FedDistill (federated distillation; Jeong et al. 2018, arXiv 1811.11479), as PFLlib has it: mean logits are sent.

A client trains a model of its own on the cross-entropy plus lam times a term that pulls its logits toward the clients'
mean logits of the row's label. It sends its mean logits of each label that it has, taken before each step.

Departures:
1. The mean over the clients of a label has the client itself (the paper leaves it out), and is unweighted.
2. `term`: "soft" is the cross-entropy with the softmax of the mean logits, nearest to the paper; "mse" the mean square
   distance (PFLlib's code of 2023); "raw" takes the logits themselves as targets (its code since November 2025).
3. A label that no upload has keeps its mean. In networks with dropout the means are of logits without. The whole
   cohort keeps its model, whether its upload arrives or not. `momentum` and `weight_decay` are added.
Special cases: lam = 0: each client's model is Local's on the same minibatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Weights, hyper, steps
from pflbench.methods.class_means import ClassMeans, ClassSums, pooled
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.loops import decayed, row_mean
from pflbench.optim import State
from pflbench.typing import Params, Rows, Scalar, Tensor


@dataclass(frozen=True)
class FedDistill(LocalSGD, Method[ClassMeans, Params, ClassMeans]):
    """Models of the clients' own, whose logits are pulled toward the clients' mean ones of the same label."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    lam: float = hyper(1.0, "Weight of the term that pulls toward the mean logits.", least=0)
    term: Literal["soft", "mse", "raw"] = hyper(
        "soft",
        "The term: cross-entropy with their softmax, mean square distance, or cross-entropy with them as they are.",
    )

    def init(self, new: Initializer, clients: int) -> ClassMeans:
        return ClassMeans.none(new(), new.classes, new.classes)

    def init_client(self, server: ClassMeans, new: Initializer) -> Params:
        return new()

    def client(
        self, f: Objective, server: ClassMeans, state: Params, *batches: Batches, round: Round
    ) -> tuple[ClassMeans, Params]:
        by, decay, loss = self.local_optimizer(self.lr), f.decay(self.weight_decay, state), self.loss

        def step(carry: tuple[Params, State, ClassSums], b: Batch) -> tuple[Params, State, ClassSums]:
            w, memory, seen = carry
            g = f.grad(w, b, loss=loss, args=tuple(server))
            return *by.update(w, decayed(g, w, decay), memory), seen.add(f.logits(w, b), b)

        start = state, by.init(state), ClassSums.none(state, f.classes, f.classes)
        w, _, seen = steps(step, start, *batches)
        return seen.means, w

    def loss(self, logits: Tensor, labels: Rows, mask: Tensor | None, means: Tensor, there: Tensor) -> Scalar:
        """The mean over rows of the cross-entropy and, for labels with mean logits, lam times the term."""
        wanted, known = ClassMeans(means, there).of(labels)
        if self.term == "mse":
            terms = ((logits - wanted) ** 2).mean(-1)
        else:
            targets = wanted.softmax(-1) if self.term == "soft" else wanted
            terms = -(targets * logits.log_softmax(-1)).sum(-1)
        return row_mean(F.cross_entropy(logits, labels, reduction="none") + self.lam * known * terms, mask)

    def server(self, server: ClassMeans, uploads: ClassMeans, n: Weights, round: Round) -> ClassMeans:
        return pooled(server, uploads)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return state
        return state
