"""A Gaussian posterior of a linear head: trained on fixed features, and sampled to train what makes the features."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pflbench.methods.base import Batch, Batches, Objective, Round, steps
from pflbench.methods.gaussian import Gaussian, divergence, divergence_by_first, sampled_gradient
from pflbench.methods.linear_head import head_losses, head_losses_and_gradient
from pflbench.optim import Optimizer, State
from pflbench.typing import Bool, Float, Part, Rows, Scalar


class Prior(NamedTuple):
    """N(mean, variance I) of a head."""

    mean: Part
    variance: Scalar


def fit_head(
    start: Gaussian,
    prior: Prior,
    z: Float[Tensor, "rows width"],
    b: Batch,
    by: Optimizer,
    round: Round,
    *,
    updates: int,
    samples: int,
) -> tuple[Gaussian, Bool[Tensor, ""]]:
    """The posterior after full-batch steps on the sum of cross-entropies plus KL(posterior || prior).

    Args:
        start: The posterior before.
        prior: The prior.
        z: The features of the rows of `b`.
        b: All rows, at once.
        by: The optimizer of both parameters, from rest.
        round: Its noise makes the samples of each step.
        updates: How many steps.
        samples: Heads per step, over which the cross-entropy is averaged.

    Returns:
        The posterior, and whether all was finite; `start` where something was not.
    """
    d, rho = len(prior.mean), prior.variance.sqrt()
    classes, n = d // (z.shape[-1] + 1), b.examples
    q, velocity = start, (by.init(prior.mean), by.init(prior.mean))
    sound = torch.isfinite(prior.variance)
    for i in range(updates):
        noise, s = round.noise("head", i, shape=(samples, d), dtype=prior.mean.dtype), q.std
        losses, g = head_losses_and_gradient(torch.addcmul(q.mean, s, noise), z, b.labels, b.mask, classes)
        sound = sound & torch.isfinite(n * losses.mean() + divergence(q.mean, s, prior.mean, rho))
        data, kl = sampled_gradient(q, g, noise), divergence_by_first(q, s, prior.mean, rho)
        moved = [by.update(x, n * g + h, v) for x, g, h, v in zip(q, data, kl, velocity, strict=True)]
        q, velocity = Gaussian(moved[0][0], moved[1][0]), (moved[0][1], moved[1][1])
    sound = sound & torch.isfinite(q.mean).all() & torch.isfinite(q.prescale).all()
    return Gaussian(*(torch.where(sound, new, old) for new, old in zip(q, start, strict=True))), sound


def fit_base(
    f: Objective, theta: Part, q: Gaussian, batches: Batches, by: Optimizer, round: Round, *, samples: int
) -> Part:
    """The base theta after an update for each minibatch, on the mean loss of heads sampled from q anew each time."""
    s, shape = q.std, (samples, len(q.mean))

    def loss(z: Tensor, labels: Rows, mask: Tensor | None, heads: Tensor) -> Tensor:
        return head_losses(heads, z, labels, mask, shape[1] // (z.shape[-1] + 1)).mean()

    def step(carry: tuple[Part, State], b: Batch, i: int) -> tuple[Part, State]:
        theta, state = carry
        heads = torch.addcmul(q.mean, s, round.noise("base", i, shape=shape, dtype=theta.dtype))
        return by.update(theta, f.grad(theta, b, wrt="base", loss=loss, at="features", args=(heads,)), state)

    return steps(step, (theta, by.init(theta)), batches, range(len(batches)))[0]
