"""pFedVEM (Zhu, Ma & Blaschko, CVPR 2023, Algorithm 1): heads are Gaussian, and confident clients weigh more.

Client j has a posterior q = N(mu_j, sigma_j²) of its head. The server has the base theta and the mean w of the prior
N(w, rho_j² I). A client's confidence is tau_j = 1 / rho_j², with rho_j² = (|sigma_j|² + |mu_j - w|²) / d.

Departures (authors' code, but for 5 and 6):
1. The head's loss is the sum of cross-entropies plus the exact KL (paper: Jensen's bound, Eq. 10).
2. Head and base use momentum, from rest in each local update.
3. The base's loss averages fresh samples of the head for each minibatch.
4. w starts from N(0, 1).
5. A base that is neither sent nor scored is not trained.
6. If the head's steps stop being finite, the client keeps its last posterior and the received base; if the base's do,
   only the received base. `guards` counts these local updates.
7. tau is of the posterior before the head's steps; it weighs the mean after them.
8. A client's personal model is the mean of its posterior on the base that it trained or, scored after aggregation, on
   the server's.
`confidence` (Tables 2 and 3): "uncertainty" uses |sigma|² alone; "deviation" uses |mu - w|² alone for tau (1 / scale²
in a client's first local update), since a small variance of the prior pulls mu closer and so shrinks further, until the
head's steps explode.
The head's descent is chaotic at the published rates: float32 rounding moves parameters by some percent within two
rounds.
Special cases: learning rates of 0 change neither theta nor w, to rounding.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from pflbench.methods.base import SGD, Draw, Method, hyper, mean, replace, steps
from pflbench.methods.gaussian import Gaussian, divergence, divergence_by_first, gaussian, sampled_gradient
from pflbench.methods.linear_head import head_losses, head_losses_and_gradient

FLOOR = 1e-8
"""Least 1 / tau of the deviation alone."""


class Client(NamedTuple):
    """A client's posterior; tau, |sigma|² and |mu - w|² at the start of its last local update; and `guards`, see 6."""

    q: Gaussian
    tau: Any
    trace: Any
    deviation: Any
    guards: Any


class Upload(NamedTuple):
    """The trained base, the posterior's mean, and the confidence."""

    base: Any
    mu: Any
    tau: Any


@dataclass(frozen=True)
class PFedVEM(Method):
    """Variational EM: clients update posteriors of their heads, the server updates their prior."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    needs_features = True
    head_steps: int = hyper(10, "Full-batch steps R on the posterior.", least=0)
    head_lr: float = hyper(1e-3, "Learning rate of the head.", least=0)
    base_epochs: int = hyper(5, "Local epochs on the base, after the head.", least=0)
    base_lr: float = hyper(1e-3, "Learning rate of the base.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    momentum: float | None = hyper(0.9, "Momentum of local SGD; none: without.", least=0)
    samples: int = hyper(5, "Samples K of the head per step.", least=1)
    scale: float = hyper(1.0, "Initial standard deviation of the posterior.", above=0)
    confidence: Literal["full", "uncertainty", "deviation"] = hyper("full", "Terms of rho² that make tau.")

    def draws(self, round):
        return Draw(whole=True), Draw(epochs=self.base_epochs, batch=self.batch, for_upload=True)

    def init(self, new, clients):
        w, head = new(), new.part("head")
        return replace(w, head, new.noise("head", shape=tuple(w[head].shape)))

    def init_client(self, server, new):
        zero = server.new_zeros(())
        return Client(gaussian(server[new.part("head")], self.scale), zero, zero, zero, zero)

    def client(self, f, server, state, everything, for_base, *, round):
        (whole,), theta, w = everything, server[f.part("base")], server[f.part("head")]
        trace, deviation = state.q.std.square().sum(), (state.q.mean - w).square().sum()
        rho2, tau = self.prior(trace, deviation, state.tau, len(w))
        q, sound = self.fit_posterior(state.q, w, rho2, f.features(server, whole), whole, round)
        by, std = SGD(self.base_lr, self.momentum), q.std

        # Base: descend along the mean loss of K heads, sampled anew for each minibatch.
        def loss(z, labels, mask, heads):
            return head_losses(heads, z, labels, mask, f.classes).mean()

        def step(carry, b, i):
            eps = round.noise("base", i, shape=(self.samples, len(w)), dtype=w.dtype)
            heads = torch.addcmul(q.mean, std, eps)
            g = f.grad(carry[0], b, wrt="base", loss=loss, at="features", args=(heads,))
            new, memory = by.update(carry[0], g, carry[1])
            return f.with_statistics(new, torch.cat([carry[0], w]), b, wrt="base"), memory

        trained, _ = steps(step, (theta, by.init(theta)), for_base, range(len(for_base)))
        sound = sound & torch.isfinite(trained).all()
        guards = state.guards + (~sound).to(w.dtype)
        base = torch.where(sound, trained, theta)
        return Upload(base, q.mean, tau), Client(q, tau, trace, deviation, guards)

    def prior(self, trace, deviation, last, d):
        """rho² of the prior, and tau. `trace`: |sigma|²; `deviation`: |mu - w|²; `last`: the last tau, at first 0."""
        if self.confidence == "deviation":
            tau = torch.where(last == 0, self.scale**-2, 1 / (deviation / d).clamp(min=FLOOR))
            return (trace + deviation) / d, tau
        rho2 = (trace if self.confidence == "uncertainty" else trace + deviation) / d
        return rho2, 1 / rho2

    def fit_posterior(self, start, w, rho2, z, b, round):
        """R steps on  sum CE(h; z) + KL(q || N(w, rho² I)),  h = mu + sigma eps; and whether all stayed finite."""
        by, q, n, rho = SGD(self.head_lr, self.momentum), start, b.examples, rho2.sqrt()
        memory, sound, classes = by.init(q), torch.isfinite(rho2), len(w) // (z.shape[-1] + 1)
        for r in range(self.head_steps):
            eps, s = round.noise("head", r, shape=(self.samples, len(w)), dtype=w.dtype), q.std
            losses, g = head_losses_and_gradient(torch.addcmul(q.mean, s, eps), z, b.labels, b.mask, classes)
            sound = sound & torch.isfinite(n * losses.mean() + divergence(q.mean, s, w, rho))
            data, kl = sampled_gradient(q, g, eps), divergence_by_first(q, s, w, rho)
            q, memory = by.update(q, Gaussian(*(n * x + y for x, y in zip(data, kl, strict=True))), memory)
        sound = sound & torch.isfinite(q.mean).all() & torch.isfinite(q.prescale).all()
        return Gaussian(*(torch.where(sound, new, old) for new, old in zip(q, start, strict=True))), sound

    def server(self, server, uploads, n, round):
        # theta <- sum n_j theta_j;  w <- sum tau_j mu_j / sum tau_j
        return torch.cat([mean(uploads.base, n), mean(uploads.mu, uploads.tau / uploads.tau.sum())])

    def personal_model(self, f, server, state, *, round, upload=None):
        return torch.cat([server[f.part("base")] if upload is None else upload.base, state.q.mean])

    def diagnose(self, state):
        return {"tau": state.tau, "trace": state.trace, "deviation": state.deviation, "guards": state.guards}
