"""pFedVEM (Zhu, Ma & Blaschko, CVPR 2023, Algorithm 1): heads are Gaussian, and confident clients weigh more.

A client holds a posterior N(mu_j, diag(sigma_j²)) of its head, the server the mean w of the heads' prior
N(w, rho_j² I). The confidence tau_j = 1 / rho_j² comes from how wide the posterior is and how far it lies from w.

Departures, all but 8 and 9 as in the authors' code:
1. The head's loss is the sum of its cross-entropies plus KL (the paper's formulas have signs the other way round).
2. KL is exact; the paper bounds it by Jensen's inequality (Eq. 10).
3. Head and base descend with momentum, from rest in every local update; the paper has gradient descent for the head.
4. The base's loss is a mean over fresh samples of the head for every minibatch.
5. The head starts from N(0, 1), whatever its width, and every posterior around that.
6. tau_j is computed before the head is trained, and weighs the mean that training makes of it.
7. A personal model is the posterior's mean on the base that its client trained. A base that is neither sent nor scored
   is not trained, which changes no result (the code trains it).
8. A head whose loss or parameters stop being finite falls back to what it was, and the base is then not trained; a base
   that stops being finite falls back to the received one. (In the code the head alone does, and hardly ever.) The
   base's loss is not looked at: unless a logit overflows, it is finite where the base is.
9. `confidence="uncertainty"` has one term in the prior and in the weights alike, "deviation" in the weights alone: as
   the prior's variance, a small distance pulls the mean closer, which makes it smaller still, until the head's steps
   explode (seen in round 3 of Table 3's setting). Its tau is 1 / scale² in a client's first local update, where the
   distance is 0, and never more than 1e8.
The head's loss is a sum over a client's rows, and at the published rates its descent is chaotic: rounding in float32
moves parameters by some percent within two rounds, so that runs on other devices, or looped and stacked, agree in
their accuracy and not in their digits.
Special cases: learning rates of 0 leave base and w as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Take, Weights, mean, steps
from pflbench.methods.gaussian import Gaussian, divergence, divergence_by_first, gaussian, sampled_gradient
from pflbench.methods.linear_head import head_losses, head_losses_and_gradient
from pflbench.optim import momentum
from pflbench.typing import Bool, Float, Params, Part, Rows, Scalar
from pflbench.vector import replace

FLOOR = 1e-8
"""Least 1 / tau where the deviation alone makes it."""


class PFedVEMClient(NamedTuple):
    """A client's posterior, and about its latest local update: the confidence tau, and what that was made of.

    `trace`: of the posterior's covariance; `deviation`: its mean's squared distance from w; `guards`: how often
    something was not finite so far.
    """

    posterior: Gaussian
    tau: Scalar
    trace: Scalar
    deviation: Scalar
    guards: Scalar


class PFedVEMUpload(NamedTuple):
    """The trained base, the posterior's mean, and the confidence in it."""

    base: Float[Tensor, "*cohort base"]
    mean: Float[Tensor, "*cohort head"]
    tau: Float[Tensor, "*cohort"]


@dataclass(frozen=True)
class PFedVEM(Method[Params, PFedVEMClient, PFedVEMUpload]):
    """Variational expectation maximization: posteriors at the clients, the prior's mean at the server."""

    version: ClassVar[int] = 1
    trains = "everyone"
    personal_from = "training"
    personal_of = "training"
    needs_features = True
    head_lr: float = 1e-3
    """Learning rate of the posterior."""
    head_steps: int = 10
    """Full-batch steps on the posterior."""
    base_lr: float = 1e-3
    """Learning rate of the base."""
    base_epochs: int = 5
    """Local epochs on the base."""
    batch: int | None = None
    """Examples per minibatch of the base; none: the suite's."""
    samples: int = 5
    """Samples K of the head per step."""
    scale: float = 1.0
    """Initial standard deviation of the posterior (the square root of the paper's initial rho²)."""
    momentum: float = 0.9
    """Of both parts."""
    confidence: Literal["full", "uncertainty", "deviation"] = "full"
    """What tau is made of: both terms, the posterior's width alone, or (in the weights) its distance from w alone."""

    def takes(self) -> tuple[Take, ...]:
        """All examples for the head; for the base epochs of minibatches, where its result is sent or scored."""
        return Take(whole=True), Take(epochs=self.base_epochs, batch=self.batch, used_only=True)

    def init(self, new: Initializer, clients: int) -> Params:
        """The base, and the head's mean w."""
        w, head = new(), new.part("head")
        return replace(w, head, new.noise("head", shape=tuple(w[head].shape)))

    def init_client(self, server: Params, new: Initializer) -> PFedVEMClient:
        """A posterior around w."""
        zero = server.new_zeros(())
        return PFedVEMClient(gaussian(server[new.part("head")], self.scale), zero, zero, zero, zero)

    def client(
        self, f: Objective, server: Params, state: PFedVEMClient, *taken: Batches, round: Round
    ) -> tuple[PFedVEMUpload, PFedVEMClient]:
        """The confidence, then the head on the received base, then the base under the new head."""
        (whole,), for_base = taken
        theta, w = server[f.part("base")], server[f.part("head")]
        trace, deviation, variance, tau = self.prior(state, w)
        posterior, sound = self.train_head(f.features(server, whole), whole, state.posterior, w, variance, round)
        trained = self.train_base(f, theta, posterior, for_base, round)
        fine = torch.isfinite(trained).all()
        base = torch.where(sound & fine, trained, theta)
        guards = state.guards + (~(sound & fine)).to(w.dtype)
        kept = PFedVEMClient(posterior, tau, trace, deviation, guards)
        return PFedVEMUpload(base, posterior.mean, tau), kept

    def prior(self, state: PFedVEMClient, w: Part) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """Trace and deviation of the kept posterior, the prior's variance rho², and the confidence tau."""
        trace = state.posterior.std.square().sum()
        deviation = (state.posterior.mean - w).square().sum()
        if self.confidence == "uncertainty":
            variance = trace / len(w)
        else:
            variance = (trace + deviation) / len(w)
        if self.confidence == "deviation":
            first = state.tau == 0
            tau = torch.where(first, self.scale**-2, 1 / (deviation / len(w)).clamp(min=FLOOR))
        else:
            tau = 1 / variance
        return trace, deviation, variance, tau

    def train_head(
        self, z: Float[Tensor, "rows width"], b: Batch, start: Gaussian, w: Part, variance: Scalar, round: Round
    ) -> tuple[Gaussian, Bool[Tensor, ""]]:
        """The posterior after full-batch steps on the sum of cross-entropies plus KL; and whether all was finite."""
        d, rho = len(w), variance.sqrt()
        classes, n = d // (z.shape[-1] + 1), b.examples
        q, velocity = start, Gaussian(torch.zeros_like(w), torch.zeros_like(w))
        sound = torch.isfinite(variance)
        for i in range(self.head_steps):
            noise, s = round.noise("head", i, shape=(self.samples, d), dtype=w.dtype), q.std
            losses, g = head_losses_and_gradient(torch.addcmul(q.mean, s, noise), z, b.labels, b.mask, classes)
            sound = sound & torch.isfinite(n * losses.mean() + divergence(q.mean, s, w, rho))
            data, kl = sampled_gradient(q, g, noise), divergence_by_first(q, s, w, rho)
            moved = [
                momentum(x, n * by_data + by_kl, v, lr=self.head_lr, beta=self.momentum)
                for x, by_data, by_kl, v in zip(q, data, kl, velocity, strict=True)
            ]
            q, velocity = (Gaussian(*pair) for pair in zip(*moved, strict=True))
        sound = sound & torch.isfinite(q.mean).all() & torch.isfinite(q.prescale).all()
        return Gaussian(*(torch.where(sound, new, old) for new, old in zip(q, start, strict=True))), sound

    def train_base(self, f: Objective, theta: Part, q: Gaussian, batches: Batches, round: Round) -> Part:
        """The base after SGD under heads sampled from q, anew for every minibatch."""
        s, shape = q.std, (self.samples, len(q.mean))

        def loss(z: Tensor, labels: Rows, mask: Tensor | None, heads: Tensor) -> Tensor:
            return head_losses(heads, z, labels, mask, shape[1] // (z.shape[-1] + 1)).mean()

        def step(carry: tuple[Part, Part], b: Batch, i: int) -> tuple[Part, Part]:
            theta, velocity = carry
            heads = torch.addcmul(q.mean, s, round.noise("base", i, shape=shape, dtype=theta.dtype))
            g = f.grad(theta, b, wrt="base", loss=loss, at="features", args=(heads,))
            return momentum(theta, g, velocity, lr=self.base_lr, beta=self.momentum)

        return steps(step, (theta, torch.zeros_like(theta)), batches, range(len(batches)))[0]

    def server(self, server: Params, uploads: PFedVEMUpload, n: Weights, round: Round) -> Params:
        """The base by the clients' weights, w by their confidence."""
        return torch.cat([mean(uploads.base, n), mean(uploads.mean, uploads.tau / uploads.tau.sum())])

    def adapts(self) -> tuple[Take, ...]:
        return ()

    def personalize(
        self,
        f: Objective,
        server: Params,
        state: PFedVEMClient,
        sent: PFedVEMUpload | None,
        *taken: Batches,
        round: Round,
    ) -> dict[str, Params]:
        """The posterior's mean on the base that the client trained; without one, on the server's."""
        base = server[f.part("base")] if sent is None else sent.base
        return {"personalized": torch.cat([base, state.posterior.mean])}

    def diagnose(self, state: PFedVEMClient) -> dict[str, Scalar]:
        """The latest confidence, what it was made of, and how often something was not finite."""
        return {"tau": state.tau, "trace": state.trace, "deviation": state.deviation, "guards": state.guards}
