"""FedRoD (Chen & Chao, ICLR 2022, arXiv 2107.00778): a balanced generic head and a personal one on the same base.

Base and generic head are trained on the balanced softmax: the client's label counts n, as log n, are added to the
logits. The personal head's logits are added to the generic ones, whose base and head it does not move.

Departures:
1. The personal head is linear; the paper's other variant makes it by a hypernetwork.
2. The counts are of all rows of the client; with static minibatches, of those in one of the suite's size. A class that
   a client lacks has the count 0.
3. Personal heads begin as copies of the initial head, and the whole cohort keeps its own, whether its upload arrives or
   not. The server's mean is weighted as the suite says.
4. `momentum` and `weight_decay` are none of the paper's tables'; each local update begins with a fresh momentum.
5. In networks with dropout, the personal head is trained on features without.
Special cases: where all classes are equally frequent at a client, its generic model is FedAvg's; without weight decay,
a client of one class sends what it received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from pflbench.methods.base import Batch, Batches, Draw, Initializer, Method, Objective, Round, steps
from pflbench.methods.class_means import members
from pflbench.methods.fedper import Head
from pflbench.methods.linear_head import head_gradient
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.loops import decayed, row_mean
from pflbench.optim import State
from pflbench.typing import Float, Params, Part, Rows, Tensor


@dataclass(frozen=True)
class FedRoD(LocalSGD, Method[Params, Head, Params]):
    """The generic model by the balanced softmax; beside it a personal head, whose logits are added."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    needs_features = True

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """All examples, for their labels; passes for both models."""
        return Draw(whole=True), self.drawn()

    def init_client(self, server: Params, new: Initializer) -> Head:
        return server[new.part("head")]

    def client(self, f: Objective, server: Params, state: Head, *batches: Batches, round: Round) -> tuple[Params, Head]:
        (everything,), passes = batches
        where, by, classes = f.part("head"), self.local_optimizer(self.lr), f.classes
        prior = members(everything, classes, server.dtype).sum(0).log()
        decays = f.decay(self.weight_decay, server), f.decay(self.weight_decay, state, wrt="head")

        def step(
            carry: tuple[tuple[Params, State], tuple[Head, State]], b: Batch
        ) -> tuple[tuple[Params, State], tuple[Head, State]]:
            (w, of_w), (own, of_own) = carry
            g = f.grad(w, b, loss=balanced, args=(prior,))
            h = head_gradient(w[where] + own, f.features(w, b), b.labels, b.mask, classes)
            return by.update(w, decayed(g, w, decays[0]), of_w), by.update(own, decayed(h, own, decays[1]), of_own)

        (w, _), (own, _) = steps(step, ((server, by.init(server)), (state, by.init(state))), passes)
        return w, own

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return with_head(upload, state)
        return with_head(server, state)


def balanced(logits: Tensor, labels: Rows, mask: Tensor | None, prior: Float[Tensor, "classes"]) -> Tensor:
    """The mean cross-entropy of logits to which the logarithms of label counts are added (balanced softmax)."""
    return row_mean(F.cross_entropy(logits + prior, labels, reduction="none"), mask)


def with_head(w: Params, more: Part) -> Params:
    """A model to whose last entries, the head's, these are added: its logits are the sum of both heads'."""
    return torch.cat([w[: -len(more)], w[-len(more) :] + more])
