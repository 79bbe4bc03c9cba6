"""Optimizers as pure functions on vectors; they agree with `torch.optim` (a test compares them)."""

from __future__ import annotations

from typing import NamedTuple

import torch

from pflbench.typing import Part, Scalar


def sgd(w: Part, g: Part, *, lr: float) -> Part:
    """Plain gradient descent: w - lr * g, in one pass over memory."""
    return torch.sub(w, g, alpha=lr)


def momentum(w: Part, g: Part, velocity: Part, *, lr: float, beta: float = 0.9) -> tuple[Part, Part]:
    """Gradient descent with momentum as `torch.optim.SGD` has it; returns (w, velocity). The first velocity is 0."""
    velocity = torch.add(g, velocity, alpha=beta)
    return torch.sub(w, velocity, alpha=lr), velocity


class AdamState(NamedTuple):
    """Adam's memory: first and second moment, and the number of updates made (float64, so that powers are exact)."""

    first: Part
    second: Part
    updates: Scalar


def adam_init(w: Part) -> AdamState:
    """A fresh state for a vector like `w`."""
    return AdamState(torch.zeros_like(w), torch.zeros_like(w), w.new_zeros((), dtype=torch.float64))


def adam(
    w: Part, g: Part, state: AdamState, *, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> tuple[Part, AdamState]:
    """One Adam update (Kingma & Ba 2015, Algorithm 1, with PyTorch's placement of eps). Returns (w, state)."""
    b1, b2 = betas
    updates = state.updates + 1
    # In place wherever a vector is this function's own: a CPU spends the time on memory.
    first = torch.lerp(state.first, g, 1 - b1)
    second = torch.addcmul(b2 * state.second, g, g, value=1 - b2)
    scale = (lr / (1 - b1**updates)).to(w.dtype)
    root = torch.sqrt(1 - b2**updates).to(w.dtype)
    move = second.sqrt().div_(root).add_(eps).reciprocal_().mul_(first).mul_(scale)
    return w - move, AdamState(first, second, updates)
