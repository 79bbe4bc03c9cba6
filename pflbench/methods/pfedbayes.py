"""pFedBayes (Zhang et al., ICML 2022, Algorithm 1), as pFedVEM's tables use it: every weight is Gaussian.

A client holds a posterior q = N(m, s²) of the whole model, and moves its copy of the global p = N(a, r²) toward it;
s and r are softplus of free parameters.

Departures:
1. A step takes all of a client's rows and the sum of their losses (pFedVEM's tables; the paper: minibatches).
2. Left open by pFedVEM's paper and chosen here: one sample of the weights per step; Adam for q and for p, with states
   that are kept between local updates although p is overwritten, as q is kept; s and r start alike, and m and a from
   the seed's initial model.
3. The server averages means and prescales by the clients' weights, without momentum (the paper's beta is 1).
`persistent=False`: in every local update q starts from the received p, with fresh states. A client whose result is
neither sent nor scored before aggregation is then not trained, and its personal model is the global one it received.
Special cases: without steps the global model never changes; nor does it for lam = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from pflbench.methods.base import Batch, Batches, Draw, Empty, Initializer, Method, Objective, Round, hyper, steps
from pflbench.methods.gaussian import (
    Gaussian,
    PosteriorScale,
    divergence_by_first,
    divergence_by_second,
    gaussian,
    sampled_gradient,
)
from pflbench.methods.local_sgd import LocalRate, LocalSteps, Pull
from pflbench.optim import Adam, AdamState
from pflbench.typing import Params


class Moments(NamedTuple):
    """Adam's states for the two vectors of a Gaussian."""

    mean: AdamState
    prescale: AdamState


class PFedBayesClient(NamedTuple):
    """The posterior q; Adam's states for q and for p, `()` if they are not kept."""

    q: Gaussian
    moments: tuple[Moments, Moments] | Empty


Carry = tuple[Gaussian, Gaussian, Moments, Moments]


@dataclass(frozen=True)
class PFedBayes(
    LocalSteps,
    LocalRate,
    Pull,
    PosteriorScale,
    Method[Gaussian, PFedBayesClient, Gaussian],
    steps=10,
    lam=1.0,
    scale=0.01,
):
    """A Bayesian network per client; the global distribution is its prior.

    `steps` are full-batch ones R, each on q and then on p, both by Adam at `lr`; `lam` weighs the divergence between
    the two.
    """

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    persistent: bool = hyper(True, "Whether clients keep q and Adam's states between local updates.")

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (Draw(whole=True, for_upload=not self.persistent),)

    def init(self, new: Initializer, clients: int) -> Gaussian:
        """The seed's initial model, with the same spread everywhere."""
        return gaussian(new(), self.scale)

    def init_client(self, server: Gaussian, new: Initializer) -> PFedBayesClient:
        """The posterior is the prior."""
        return PFedBayesClient(server, (self.rest(server), self.rest(server)) if self.persistent else ())

    def client(
        self, f: Objective, server: Gaussian, state: PFedBayesClient, *batches: Batches, round: Round
    ) -> tuple[Gaussian, PFedBayesClient]:
        """R steps on q and on p; p is sent, q is kept."""
        shape, dtype = tuple(server.mean.shape), server.mean.dtype

        def step(carry: Carry, b: Batch, i: int) -> Carry:
            q, p, for_q, for_p = carry
            noise, s, r = round.noise("weights", i, shape=shape, dtype=dtype), q.std, p.std
            data = sampled_gradient(q, f.grad(torch.addcmul(q.mean, s, noise), b)[None], noise[None])
            kl = divergence_by_first(q, s, p.mean, r)
            g = Gaussian(*(b.examples * x + self.lam * y for x, y in zip(data, kl, strict=True)))
            q, for_q = self.update(q, g, for_q)
            kl = divergence_by_second(q.mean, q.std, p, r)
            p, for_p = self.update(p, Gaussian(self.lam * kl.mean, self.lam * kl.prescale), for_p)
            return q, p, for_q, for_p

        again = batches[0] * self.steps
        for_q, for_p = state.moments or (self.rest(server), self.rest(server))
        start = (state.q if self.persistent else server, server, for_q, for_p)
        q, p, for_q, for_p = steps(step, start, again, range(len(again)))
        return p, PFedBayesClient(q, (for_q, for_p) if self.persistent else ())

    def update(self, x: Gaussian, g: Gaussian, moments: Moments) -> tuple[Gaussian, Moments]:
        """One Adam update of both vectors."""
        mean, first = Adam(self.lr).update(x.mean, g.mean, moments.mean)
        prescale, second = Adam(self.lr).update(x.prescale, g.prescale, moments.prescale)
        return Gaussian(mean, prescale), Moments(first, second)

    def rest(self, x: Gaussian) -> Moments:
        """Adam's states before the first update."""
        return Moments(Adam(self.lr).init(x.mean), Adam(self.lr).init(x.prescale))

    def deploy(self, f: Objective, server: Gaussian, support: Batches) -> Params:
        return server.mean

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return state.q.mean
        return state.q.mean
