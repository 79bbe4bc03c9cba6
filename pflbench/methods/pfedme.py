"""pFedMe (T. Dinh et al., NeurIPS 2020, arXiv 2006.08848, Algorithm 1).

Departures:
1. The personal model is K gradient steps on a minibatch, not a minimizer up to an accuracy nu; it goes on from one
   local iteration to the next (authors' code).
2. Only clients whose uploads arrive train, since a client has no state (paper: all train, some are averaged).
3. The suite sets the weights of the mean (paper: uniform).
4. `mu`: the authors' code adds 0.001 theta to the inner gradient.
5. That code scores the local model in place of the personal one. Both are scored here: theta at stage "personalized",
   w_j at stage "local".
6. After aggregation only the global model exists; with `adapt`, one more local update makes the scored models of it
   (FedEC's tables).
Special cases: one iteration moves w_j toward theta by the factor eta·lambda; lambda = 0: the upload is the server's
model; beta = 0: the server never moves.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.base import Draw, Method, hyper, mean, mean_statistics, sgd, steps


class Upload(NamedTuple):
    """The local model w_j, which is averaged, and the personal model theta, which is scored."""

    model: Any
    personal: Any


@dataclass(frozen=True)
class PFedMe(Method):
    """Personal models near a global one: SGD on the clients' Moreau envelopes."""

    version: ClassVar[int] = 1
    personal_of = "training"
    personal_needs = "adapt"
    records = ("local",)
    steps: int = hyper(5, "Local iterations R per round, one minibatch each.", least=0)
    epochs: int | None = hyper(None, "Local epochs per round, in place of steps.", least=0)
    epochwise: bool | None = hyper(None, "Steps go through passes (where the suite reshuffles).")
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-2, "Learning rate eta of the local model.", least=0)
    lam: float = hyper(15.0, "Strength lambda of the pull between the two models.", least=0)
    inner_steps: int = hyper(5, "Gradient steps K on the personal model in each local iteration.", least=0)
    inner_lr: float | None = hyper(None, "Learning rate of the personal model; none: `lr`.", least=0)
    mu: float | None = hyper(None, "Strength of the personal model's pull toward 0.", least=0)
    beta: float | None = hyper(None, "Step beta of the server toward the mean; none: 1.", least=0)
    adapt: bool | None = hyper(None, "After aggregation, one more local update makes the personal models.")

    def draws(self, round):
        if self.epochs is None:
            return (Draw(steps=self.steps, batch=self.batch, in_passes=bool(self.epochwise)),)
        return (Draw(epochs=self.epochs, batch=self.batch),)

    def client(self, f, server, state, batches, *, round):
        inner_lr = self.lr if self.inner_lr is None else self.inner_lr

        def iterate(now, b):
            w, theta = now
            # K times: theta descends along grad f(theta) + lambda (theta - w) (+ mu theta)
            for _ in range(self.inner_steps):
                g = f.grad(theta, b) + self.lam * (theta - w)
                g = g if self.mu is None else torch.add(g, theta, alpha=self.mu)
                theta = f.with_statistics(sgd(theta, g, lr=inner_lr), theta, b)
            # w <- w - eta lambda (w - theta)
            return Upload(f.with_statistics(sgd(w, w - theta, lr=self.lr * self.lam), w, b), theta)

        return steps(iterate, Upload(server, server), batches), state

    def server(self, server, uploads, n, round):
        w = mean(uploads.model, n)
        return w if self.beta is None else mean_statistics(torch.lerp(server, w, self.beta), w, round)

    def personal_draws(self):
        return self.draws(None)

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        if upload is None:
            upload, _ = self.client(f, server, state, batches, round=round)
        return {"personalized": upload.personal, "local": upload.model}
