"""pFedMe (T. Dinh et al., NeurIPS 2020, arXiv 2006.08848, Algorithm 1).

Departures:
1. The personal model is K gradient steps on a minibatch, not a minimizer up to a given accuracy nu; it goes on from
   one local iteration to the next, as in the authors' code.
2. Only clients whose uploads arrive train, since a client keeps nothing (the paper: all train, some are averaged).
3. The server's mean is weighted as the suite says (the paper: uniformly).
4. The authors' code adds 0.001 times the personal model to the inner gradient, which the paper does not have: `mu`, if
   set; and it scores the local model in the personal one's place. Both are scored here, apart: theta is the stage
   "personalized", w_j the stage "local", which the same runs have.
5. Where a suite scores personal models after aggregation, the global model is all there is. With `adapt`, what one more
   local update makes of it is scored, and thrown away (FedEC's tables).
Special cases: one iteration moves w_j toward theta by the factor eta·lambda; with eta·lambda = 1 and K steps in one
iteration, the upload is theta; with lambda = 0 it is the server's model. With beta = 0 the server never moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from pflbench.methods.base import Batch, Batches, Draw, Empty, Method, Objective, Round, Weights, hyper, mean, steps
from pflbench.methods.local_sgd import LocalRate, OwnBatch, Pull, StepsOrPasses
from pflbench.optim import sgd
from pflbench.typing import Float, Params, Tensor


class PFedMeUpload(NamedTuple):
    """The local model w_j, which is averaged, and the personal model theta, which is scored."""

    model: Float[Tensor, "*cohort params"]
    personal: Float[Tensor, "*cohort params"]


@dataclass(frozen=True)
class PFedMe(StepsOrPasses, LocalRate, Pull, OwnBatch, Method[Params, Empty, PFedMeUpload], lr=1e-2, lam=15.0):
    """Personal models near a global one: SGD on the clients' Moreau envelopes.

    `steps` are the local iterations R, one minibatch each, or those of `epochs`; `lr` is the local model's rate eta.
    """

    version: ClassVar[int] = 1
    personal_of = "training"
    personal_needs = "adapt"
    records = ("local",)
    inner_steps: int = hyper(5, "Gradient steps K on the personal model in each local one, on its minibatch.", least=0)
    inner_lr: float | None = hyper(None, "Learning rate of the personal model; none: `lr`.", least=0)
    mu: float | None = hyper(None, "Strength of the personal model's pull toward 0; none: 0.", least=0)
    beta: float | None = hyper(
        None, "Step of the server's model toward the clients' mean, the paper's beta; none: 1.", least=0
    )
    epochwise: bool | None = hyper(
        None, "Minibatches are those of passes over all rows, not drawn independently (where the suite reshuffles)."
    )
    adapt: bool | None = hyper(
        None, "After aggregation, a personal model is what one whole local update makes of the global one."
    )

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return self.personal_draws()

    def client(
        self, f: Objective, server: Params, state: Empty, *batches: Batches, round: Round
    ) -> tuple[PFedMeUpload, Empty]:
        inner_lr = self.lr if self.inner_lr is None else self.inner_lr

        def iterate(now: PFedMeUpload, b: Batch) -> PFedMeUpload:
            w, theta = now
            # K times: theta descends along grad f(theta) + lambda (theta - w) (+ mu theta)
            for _ in range(self.inner_steps):
                g = f.grad(theta, b) + self.lam * (theta - w)
                theta = sgd(theta, g if self.mu is None else torch.add(g, theta, alpha=self.mu), lr=inner_lr)
            # w <- w - eta lambda (w - theta)
            return PFedMeUpload(sgd(w, w - theta, lr=self.lr * self.lam), theta)

        return steps(iterate, PFedMeUpload(server, server), *batches), state

    def server(self, server: Params, uploads: PFedMeUpload, n: Weights, round: Round) -> Params:
        w = mean(uploads.model, n)
        return w if self.beta is None else torch.lerp(server, w, self.beta)

    def personal_draws(self) -> tuple[Draw, ...]:
        """Minibatches of a local update."""
        return (self.amount(self.batch, in_passes=bool(self.epochwise)),)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        """The personal and the local model that one more local update makes."""
        if upload is None:
            upload, _ = self.client(f, server, state, *batches, round=round)
        return {"personalized": upload.personal, "local": upload.model}
