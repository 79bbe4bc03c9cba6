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
   distance is 0, and never more than 1e8. "deviation-prior" has it in the prior, too, as the paper's words can be read.
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

from pflbench.methods.base import Batches, Draw, Initializer, Method, Objective, Round, Weights, hyper, mean
from pflbench.methods.gaussian import Gaussian, PosteriorScale, gaussian
from pflbench.methods.gaussian_head import Prior, fit_base, fit_head
from pflbench.methods.local_sgd import BaseEpochs, HeadApart
from pflbench.models.network import Network
from pflbench.optim import SGD
from pflbench.typing import Float, Params, Part, Scalar
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
class PFedVEM(HeadApart, BaseEpochs, PosteriorScale, Method[Params, PFedVEMClient, PFedVEMUpload], head_steps=10):
    """Variational expectation maximization: posteriors at the clients, the prior's mean at the server.

    `head_steps` are full-batch ones on the posterior; `scale` is the root of the paper's initial rho².
    """

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    needs_features = True
    momentum: float | None = hyper(0.9, "Momentum of the local SGD, fresh in each update; none: without.", least=0)
    samples: int = hyper(5, "Samples K of the head per step.", least=1)
    confidence: Literal["full", "uncertainty", "deviation", "deviation-prior"] = hyper(
        "full",
        "What tau is made of: both terms, the posterior's width, or its distance from w (in the weights alone, or in "
        "the prior, too).",
    )

    def network(self, base: Network) -> Network:
        """The suite's. Raises `UsageError` unless it has a base and a linear head."""
        base.layout.part("base")
        return super().network(base)

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """All examples for the head; for the base epochs of minibatches, where its result is sent or scored."""
        return Draw(whole=True), Draw(epochs=self.base_epochs, batch=self.batch, for_upload=True)

    def init(self, new: Initializer, clients: int) -> Params:
        """The base, and the head's mean w."""
        w, head = new(), new.part("head")
        return replace(w, head, new.noise("head", shape=tuple(w[head].shape)))

    def init_client(self, server: Params, new: Initializer) -> PFedVEMClient:
        """A posterior around w."""
        zero = server.new_zeros(())
        return PFedVEMClient(gaussian(server[new.part("head")], self.scale), zero, zero, zero, zero)

    def client(
        self, f: Objective, server: Params, state: PFedVEMClient, *batches: Batches, round: Round
    ) -> tuple[PFedVEMUpload, PFedVEMClient]:
        """The confidence, then the head on the received base, then the base under the new head."""
        (whole,), for_base = batches
        theta, w = server[f.part("base")], server[f.part("head")]
        trace, deviation, variance, tau = self.prior(state, w)
        prior, z = Prior(w, variance), f.features(server, whole)
        by_head, by_base = SGD(self.head_lr, self.momentum), SGD(self.base_lr, self.momentum)
        posterior, sound = fit_head(
            state.posterior, prior, z, whole, by_head, round, updates=self.head_steps, samples=self.samples
        )
        trained = fit_base(f, theta, posterior, for_base, by_base, round, samples=self.samples)
        sound = sound & torch.isfinite(trained).all()
        base, guards = torch.where(sound, trained, theta), state.guards + (~sound).to(w.dtype)
        kept = PFedVEMClient(posterior, tau, trace, deviation, guards)
        return PFedVEMUpload(base, posterior.mean, tau), kept

    def prior(self, state: PFedVEMClient, w: Part) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """Trace and deviation of the kept posterior, the prior's variance rho², and the confidence tau."""
        trace = state.posterior.std.square().sum()
        deviation = (state.posterior.mean - w).square().sum()
        variance = (trace if self.confidence == "uncertainty" else trace + deviation) / len(w)
        if self.confidence in ("full", "uncertainty"):
            return trace, deviation, variance, 1 / variance
        tau = torch.where(state.tau == 0, self.scale**-2, 1 / (deviation / len(w)).clamp(min=FLOOR))
        return trace, deviation, variance if self.confidence == "deviation" else 1 / tau, tau

    def server(self, server: Params, uploads: PFedVEMUpload, n: Weights, round: Round) -> Params:
        """The base by the clients' weights, w by their confidence."""
        return torch.cat([mean(uploads.base, n), mean(uploads.mean, uploads.tau / uploads.tau.sum())])

    def personal_model(self, f, server, state, *batches, round, upload=None):
        """The posterior's mean on the server's base."""
        if upload is not None:
            return torch.cat([upload.base, state.posterior.mean])
        return torch.cat([server[f.part("base")], state.posterior.mean])

    def diagnose(self, state: PFedVEMClient) -> dict[str, Scalar]:
        """The latest confidence, what it was made of, and how often something was not finite."""
        return {"tau": state.tau, "trace": state.trace, "deviation": state.deviation, "guards": state.guards}
