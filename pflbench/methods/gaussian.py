"""Diagonal Gaussians whose standard deviations are softplus of free parameters; their divergence, and gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.typing import Float, Part, Scalar

Samples = Float[Tensor, "samples part"]


class Gaussian(NamedTuple):
    """N(mean, diag(std²)) with std = softplus(prescale); also the gradient of something by these two."""

    mean: Part
    prescale: Part

    @property
    def std(self) -> Part:
        """The standard deviations; softplus(x) is x above 50, to float64's precision."""
        return F.softplus(self.prescale, threshold=50)


def gaussian(mean: Part, std: float) -> Gaussian:
    """The Gaussian around `mean` with this standard deviation in every direction."""
    y = torch.full_like(mean, std)
    return Gaussian(mean, y + torch.log(-torch.expm1(-y)))  # the inverse of softplus


def sampled_gradient(q: Gaussian, g: Samples, noise: Samples) -> Gaussian:
    """The gradient of a mean over samples mean + std * noise by q's parameters; g: its gradient at each sample."""
    return Gaussian(g.mean(0), (g * noise).mean(0) * torch.sigmoid(q.prescale))


def divergence(m: Part, s: Part, a: Part, r: Part | Scalar) -> Scalar:
    """KL(N(m, s²) || N(a, r²)), exactly; s and r are standard deviations."""
    return (torch.log(r / s) + (s.square() + (m - a).square()) / (2 * r.square()) - 0.5).sum()


def divergence_by_first(q: Gaussian, s: Part, a: Part, r: Part | Scalar) -> Gaussian:
    """The gradient of KL(q || N(a, r²)) by q's parameters, exactly 0 where they agree; s: q's standard deviations."""
    return Gaussian((q.mean - a) / r.square(), ((s / r).square() - 1) / s * torch.sigmoid(q.prescale))


def divergence_by_second(m: Part, s: Part, p: Gaussian, r: Part) -> Gaussian:
    """The gradient of KL(N(m, s²) || p) by p's parameters, exactly 0 where they agree; r: p's standard deviations."""
    away = (p.mean - m) / r
    return Gaussian(away / r, (1 - (s / r).square() - away.square()) / r * torch.sigmoid(p.prescale))
