"""Federated Reptile (Nichol et al. 2018, arXiv 1803.02999, with clients as tasks).

Departures:
1. An inner update is epochs or steps over minibatches (the tutorial: gradients of the whole loss F_k).
2. Momentum and weight decay; each local update starts from rest.
3. A personal model is the server's after one inner update.
The server's mean is plain, whatever weights the suite has.
Special cases: outer_lr = 1 with equal weights = FedAvg; outer_lr = 0 never moves; FedEC without a constraint is this
method, to rounding.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import SGD, Draw, Method, hyper, mean_statistics, train


@dataclass(frozen=True)
class Reptile(Method):
    """The server moves toward the mean of models that clients adapted from its own."""

    version: ClassVar[int] = 1
    epochs: int | None = hyper(None, "Epochs of an inner update; none: 5.", least=0)
    steps: int | None = hyper(None, "Steps of an inner update, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    inner_lr: float = hyper(0.01, "Learning rate of inner updates.", least=0)
    outer_lr: float = hyper(1.0, "Step of the server toward the mean.", least=0)
    momentum: float | None = hyper(None, "Momentum of inner updates.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)

    def draws(self, round):
        if self.steps is not None:
            return (Draw(steps=self.steps, batch=self.batch),)
        return (Draw(epochs=5 if self.epochs is None else self.epochs, batch=self.batch),)

    def client(self, f, server, state, batches, *, round):
        return self.personal_model(f, server, state, batches, round=round), state

    def server(self, server, uploads, n, round):
        averaged = uploads.mean(0)
        return mean_statistics(torch.lerp(server, averaged, self.outer_lr), averaged, round)

    def personal_draws(self):
        return self.draws(None)

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        if upload is not None:
            return upload
        by = SGD(self.inner_lr, self.momentum)
        return train(f, server, batches, by, decay=f.decay(self.weight_decay, server))[0]
