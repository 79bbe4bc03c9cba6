"""Optimizers as values with pure functions, composed where they are needed; they agree with `torch.optim` (a test)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from pflbench.typing import Part, Scalar

State = Any
"""State of an optimizer between two updates: a tree of tensors."""


@runtime_checkable
class Optimizer(Protocol):
    """Makes updates of a vector, at a client or at the server."""

    def init(self, w: Part) -> State:
        """Its memory before the first update of a vector like `w`."""

    def update(self, w: Part, g: Part, state: State) -> tuple[Part, State]:
        """The vector and the memory after one update along the gradient `g`."""


def sgd(w: Part, g: Part, *, lr: float) -> Part:
    """Plain gradient descent: w - lr * g, in one pass over memory."""
    return torch.sub(w, g, alpha=lr)


@dataclass(frozen=True)
class SGD:
    """Gradient descent, with momentum as `torch.optim.SGD` has it (None: without, and nothing is remembered)."""

    lr: float
    momentum: float | None = None

    def init(self, w: Part) -> State:
        """The velocity: 0."""
        return () if self.momentum is None else torch.zeros_like(w)

    def update(self, w: Part, g: Part, state: State) -> tuple[Part, State]:
        """One step; the state is the velocity."""
        if self.momentum is None:
            return sgd(w, g, lr=self.lr), state
        velocity = torch.add(g, state, alpha=self.momentum)
        return sgd(w, velocity, lr=self.lr), velocity


class AdamState(NamedTuple):
    """Adam's memory: first and second moment, and the number of updates made (float64, so that powers are exact)."""

    first: Part
    second: Part
    updates: Scalar


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015, Algorithm 1, with PyTorch's placement of eps)."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def init(self, w: Part) -> AdamState:
        """Moments of 0, and no update made."""
        return AdamState(torch.zeros_like(w), torch.zeros_like(w), w.new_zeros((), dtype=torch.float64))

    def update(self, w: Part, g: Part, state: AdamState) -> tuple[Part, AdamState]:
        """One step."""
        b1, b2 = self.betas
        updates = state.updates + 1
        # In place wherever a vector is this function's own: a CPU spends the time on memory.
        first = torch.lerp(state.first, g, 1 - b1)
        second = torch.addcmul(b2 * state.second, g, g, value=1 - b2)
        scale = (self.lr / (1 - b1**updates)).to(w.dtype)
        root = torch.sqrt(1 - b2**updates).to(w.dtype)
        move = second.sqrt().div_(root).add_(self.eps).reciprocal_().mul_(first).mul_(scale)
        return w - move, AdamState(first, second, updates)
