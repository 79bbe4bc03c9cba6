"""FedRoD (Chen & Chao, ICLR 2022, arXiv 2107.00778): a balanced generic head and a personal one on the same base.

Base and generic head are trained on the balanced softmax: the client's label counts n, as log n, are added to the
logits. The personal head's logits are added to the generic ones; its training moves neither base nor generic head.

Departures:
1. The personal head is linear (paper's other variant: made by a hypernetwork).
2. The counts are of all rows of the client; with static minibatches, of those in one of the suite's size. A class that
   a client lacks has the count 0.
3. Personal heads begin as copies of the initial head. The whole cohort keeps its head, also where an upload gets lost.
4. The suite sets the weights of the server's mean.
5. In networks with dropout, the personal head is trained on features without it.
Special cases: where all classes are equally frequent at a client, its generic model is FedAvg's. Without weight decay,
a client of one class sends what it received.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from pflbench.methods.base import Draw, decayed, optimizer, row_mean, steps
from pflbench.methods.class_means import members
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.linear_head import head_gradient


@dataclass(frozen=True)
class FedRoD(FedAvg):
    """The generic model by the balanced softmax; beside it a personal head, whose logits are added."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    needs_features = True

    def draws(self, round):
        return Draw(whole=True), *super().draws(round)  # all examples, for their labels

    def init_client(self, server, new):
        return server[new.part("head")]

    def client(self, f, server, state, everything, batches, *, round):
        where, by = f.part("head"), optimizer(self.optimizer, self.lr, self.momentum)
        prior = members(everything[0], f.classes, server.dtype).sum(0).log()
        decay, head_decay = f.decay(self.weight_decay, server), f.decay(self.weight_decay, state, wrt="head")

        def step(carry, b):
            w, head, w_memory, head_memory = carry
            g = f.grad(w, b, loss=balanced, args=(prior,))
            h = head_gradient(w[where] + head, f.features(w, b), b.labels, b.mask, f.classes)
            new, w_memory = by.update(w, decayed(g, w, decay), w_memory)
            head, head_memory = by.update(head, decayed(h, head, head_decay), head_memory)
            return f.with_statistics(new, w, b), head, w_memory, head_memory

        w, head, _, _ = steps(step, (server, state, by.init(server), by.init(state)), batches)
        return w, head

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        w = with_head(server if upload is None else upload, state)
        return self.trained(f, w, batches, lr=self.personal_lr)


def balanced(logits, labels, mask, prior):
    """The mean cross-entropy of logits to which the logarithms of label counts are added (balanced softmax)."""
    return row_mean(F.cross_entropy(logits + prior, labels, reduction="none"), mask)


def with_head(w, more):
    """A model to whose last entries, the head's, these are added: its logits are the sum of both heads'."""
    return torch.cat([w[: -len(more)], w[-len(more) :] + more])
