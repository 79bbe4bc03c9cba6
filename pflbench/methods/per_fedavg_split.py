"""Per-FedAvg on two parts of each minibatch, first order (Fallah et al., NeurIPS 2020, arXiv 2002.07948).

A meta step divides a minibatch: u = w - a grad(w; its first rows), then w descends along grad(u; the others).

Departures:
1. First order: the paper's factor I - a Hessian is dropped; `per-fedavg` has it.
2. Both gradients come from one minibatch, over epochs (paper: independent minibatches). The released FedRep code
   intends this, but takes both at w and adds them.
3. Momentum and weight decay act on the meta step, at w; each local update starts from rest (FedRep's code).
4. A minibatch whose first part is empty makes no step.
5. A personal model is the server's after plain SGD on whole minibatches.
6. The suite sets the weights of the mean.
PFLlib's Per-FedAvg: `share = 0.5` on minibatches twice as large as the suite's, one rate, `personal_steps = 1`.
Special cases: inner_lr = 0 = FedAvg on the minibatches' second parts.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import SGD, Batch, Draw, Method, decayed, hyper, local_draw, sgd, steps, train
from pflbench.noise import branch


@dataclass(frozen=True)
class PerFedAvgSplit(Method):
    """First-order MAML in a federation; each minibatch is divided into support and query."""

    version: ClassVar[int] = 1
    personal_needs = "personal_epochs"
    trains_statistics = False  # a part of a minibatch may be one row
    epochs: int = hyper(5, "Epochs of meta steps per round.", least=0)
    steps: int | None = hyper(None, "Meta steps per round, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    share: float = hyper(0.8, "Share of a minibatch's rows that are support, rounded down.", above=0, below=1)
    inner_lr: float = hyper(0.01, "Learning rate a of the step to u.", least=0)
    outer_lr: float = hyper(0.01, "Learning rate of meta steps.", least=0)
    momentum: float | None = hyper(None, "Momentum of meta steps.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights, in meta steps.", least=0)
    personal_epochs: int | None = hyper(1, "Epochs that make a personal model; none: there is none.", least=0)
    personal_steps: int | None = hyper(None, "Steps on the suite's minibatches, in place of these epochs.", least=0)
    personal_lr: float | None = hyper(0.01, "Learning rate of personal models; none: `inner_lr`.", least=0)

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def client(self, f, server, state, batches, *, round):
        decay, by = f.decay(self.weight_decay, server), SGD(self.outer_lr, self.momentum)

        def meta(carry, support, query):
            w, memory = carry
            u = sgd(w, f.grad(w, support), lr=self.inner_lr)
            return by.update(w, decayed(f.grad(u, query), w, decay), memory)

        parts = [pair for b in batches if (pair := split(b, self.share)) is not None]
        supports, queries = tuple(pair[0] for pair in parts), [pair[1] for pair in parts]
        return steps(meta, (server, by.init(server)), supports, queries)[0], state

    def personal_draws(self):
        if self.personal_steps is not None:
            return (Draw(steps=self.personal_steps, in_passes=True),)
        return () if self.personal_epochs is None else (Draw(epochs=self.personal_epochs, batch=self.batch),)

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        if upload is not None:
            return upload
        lr = self.inner_lr if self.personal_lr is None else self.personal_lr
        return train(f, server, batches, SGD(lr))[0]


def split(b: Batch, share: float) -> tuple[Batch, Batch] | None:
    """The first floor(share · n) of a minibatch's n real rows, and the others, each with a key of its own.

    Real rows come first in `b` and in both parts, since a row's augmentation depends on its position. A step whose
    first part is empty is not real. The product is rounded in float64.

    Returns:
        None where the first part is empty for every client, so that there is no step.
    """
    width = b.rows.shape[-1]
    most = math.floor(share * width)
    if not most:
        return None
    keys = [None if b.key is None else branch(b.key, "split", part) for part in (0, 1)]
    front = b._replace(rows=b.rows[:most], labels=b.labels[:most], key=keys[0])
    if b.mask is None:
        return front, b._replace(rows=b.rows[most:], labels=b.labels[most:], key=keys[1])
    n = b.mask.sum(-1)
    first = (share * n.double()).floor().long()
    real = first > 0 if b.real is None else b.real & (first > 0)
    places = torch.arange(width, device=b.rows.device)
    behind = (places[: width - most] + first).clamp(max=width - 1)  # positions in b of the second part's rows
    return (
        front._replace(mask=places[:most] < first, real=real),
        b._replace(
            rows=b.rows.gather(-1, behind),
            labels=b.labels.gather(-1, behind),
            mask=(places[: width - most] < n - first) & (first > 0),
            real=real,
            key=keys[1],
        ),
    )
