"""pFedMe (T. Dinh et al., NeurIPS 2020, arXiv 2006.08848, Algorithm 1, with the server's beta = 1).

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
iteration, the upload is theta; with lambda = 0 it is the server's model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Empty, Method, Objective, Round, Take, Weights, mean, steps
from pflbench.optim import sgd
from pflbench.typing import Float, Params, Tensor


class PFedMeUpload(NamedTuple):
    """The local model w_j, which is averaged, and the personal model theta, which is scored."""

    model: Float[Tensor, "*cohort params"]
    personal: Float[Tensor, "*cohort params"]


@dataclass(frozen=True)
class PFedMe(Method[Params, Empty, PFedMeUpload]):
    """Personal models near a global one: SGD on the clients' Moreau envelopes."""

    version: ClassVar[int] = 1
    personal_from = "training"
    personal_needs = "adapt"
    records = ("local",)
    steps: int = 5
    """Local iterations R per local update, one minibatch each."""
    inner_steps: int = 5
    """Gradient steps K on the personal model in each of them, all on its minibatch."""
    lr: float = 1e-2
    """Learning rate eta of the local model."""
    inner_lr: float | None = None
    """Learning rate of the personal model; none: `lr`."""
    lam: float = 15.0
    """Strength lambda of the pull between the two."""
    batch: int | None = None
    """Examples per minibatch; none: the suite's."""

    mu: float | None = None
    """Strength of the personal model's pull toward 0, in all its entries; none: 0."""
    epochwise: bool | None = None
    """Minibatches are those of passes over all rows, not drawn independently (where the suite reshuffles)."""
    adapt: bool | None = None
    """After aggregation, a personal model is what one whole local update makes of the global one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mu is not None and self.mu < 0:
            raise UsageError(f"PFedMe: mu must be at least 0, not {self.mu}.")

    def takes(self) -> tuple[Take, ...]:
        return (Take(steps=self.steps, batch=self.batch, epochwise=bool(self.epochwise)),)

    def client(
        self, f: Objective, server: Params, state: Empty, *taken: Batches, round: Round
    ) -> tuple[PFedMeUpload, Empty]:
        """R times: the personal model descends under the pull, then the local model follows it."""
        (batches,) = taken
        inner_lr = self.lr if self.inner_lr is None else self.inner_lr

        def iterate(now: PFedMeUpload, b: Batch) -> PFedMeUpload:
            w, theta = now
            for _ in range(self.inner_steps):
                g = f.grad(theta, b) + self.lam * (theta - w)
                theta = sgd(theta, g if self.mu is None else torch.add(g, theta, alpha=self.mu), lr=inner_lr)
            return PFedMeUpload(sgd(w, w - theta, lr=self.lr * self.lam), theta)

        return steps(iterate, PFedMeUpload(server, server), batches), state

    def server(self, server: Params, uploads: PFedMeUpload, n: Weights, round: Round) -> Params:
        return mean(uploads.model, n)

    def adapts(self) -> tuple[Take, ...]:
        """Nothing, as what training leaves behind is used; with `adapt`, what a local update draws."""
        return self.takes() if self.adapt else ()

    def personalize(
        self, f: Objective, server: Params, state: Empty, sent: PFedMeUpload | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """The personal and the local model that a local update makes."""
        if sent is None and self.adapt:
            sent, _ = self.client(f, server, state, *taken, round=round)
        if sent is None:
            return super().personalize(f, server, state, sent, *taken, round=round)
        return {"personalized": sent.personal, "local": sent.model}

    def trained(self, sent: PFedMeUpload, state: Empty) -> Params:
        return sent.personal
