"""pFedBayes (Zhang et al., ICML 2022, Algorithm 1), as pFedVEM's tables use it: every weight is Gaussian.

A client has a posterior q = N(m, s²) of the whole model, and moves its copy of the global p = N(a, r²) toward it.

Departures:
1. A step takes all rows of a client and the sum of their losses (pFedVEM's tables; paper: minibatches).
2. Open in pFedVEM's paper and chosen here: one sample of the weights per step; Adam for q and p, whose memories persist
   between local updates, as q does; s and r start alike, m and a from the seed's initial model.
3. The server averages means and prescales, without momentum (the paper's beta is 1).
The reading without memory is in `benchmarks/pfedvem/variants`.
Special cases: without steps, or with lam = 0, the global model never changes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from pflbench.methods.base import Adam, Draw, Method, hyper, steps
from pflbench.methods.gaussian import (
    Gaussian,
    divergence_by_first,
    divergence_by_second,
    gaussian,
    sampled_gradient,
)


class Client(NamedTuple):
    """The posterior q, and the memories of the optimizers of q and p."""

    q: Gaussian
    of_q: Any
    of_p: Any


@dataclass(frozen=True)
class PFedBayes(Method):
    """A Bayesian network per client; the global distribution is its prior."""

    version: ClassVar[int] = 1
    trains_statistics = False
    commits = "trained"
    personal_of = "training"
    steps: int = hyper(10, "Full-batch steps R per round, each on q and then on p.", least=0)
    lr: float = hyper(1e-3, "Learning rate of Adam, for q and p.", least=0)
    lam: float = hyper(1.0, "Weight of the divergence between q and p.", least=0)
    scale: float = hyper(0.01, "Initial standard deviation of every weight.", above=0)
    persistent: Literal[True] = hyper(True, "Clients keep q and the optimizers' memories between local updates.")

    def draws(self, round):
        return (Draw(whole=True),)

    def init(self, new, clients):
        return gaussian(new(), self.scale)

    def init_client(self, server, new):
        return Client(server, Adam(self.lr).init(server), Adam(self.lr).init(server))

    def client(self, f, server, state, everything, *, round):
        by, shape, dtype = Adam(self.lr), tuple(server.mean.shape), server.mean.dtype

        def step(carry, b, i):
            q, p, of_q, of_p = carry
            # q descends along  n CE(m + s eps) + lam KL(q || p),  then p along  lam KL(q || p).
            eps, s, r = round.noise("weights", i, shape=shape, dtype=dtype), q.std, p.std
            data = sampled_gradient(q, f.grad(torch.addcmul(q.mean, s, eps), b)[None], eps[None])
            kl = divergence_by_first(q, s, p.mean, r)
            g = Gaussian(*(b.examples * x + self.lam * y for x, y in zip(data, kl, strict=True)))
            q, of_q = by.update(q, g, of_q)
            kl = divergence_by_second(q.mean, q.std, p, r)
            p, of_p = by.update(p, Gaussian(self.lam * kl.mean, self.lam * kl.prescale), of_p)
            return q, p, of_q, of_p

        again = everything * self.steps
        q, p, of_q, of_p = steps(step, (state.q, server, state.of_q, state.of_p), again, range(len(again)))
        return p, Client(q, of_q, of_p)

    def deploy(self, f, server, support):
        return server.mean

    def personal_model(self, f, server, state, *, round, upload=None):
        return state.q.mean
