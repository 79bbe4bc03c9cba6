"""Optimizers as values with pure functions; they agree with `torch.optim` (a test)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pflbench.typing import Part, Scalar

State = Any
"""Memory of an optimizer between two updates: a tree of tensors."""


class Optimizer(ABC):
    """Updates of a vector, or of each field of a NamedTuple of vectors, at a client or at the server."""

    def init(self, w: Any) -> State:
        """Memory before the first update of a vector like `w`; for a NamedTuple, one of memories."""
        return self.rest(w) if isinstance(w, Tensor) else type(w)(*map(self.init, w))

    def update(self, w: Any, g: Any, memory: State) -> tuple[Any, State]:
        """Return w and the memory after one update along the gradient `g`."""
        if isinstance(w, Tensor):
            return self.step(w, g, memory)
        moved = [self.update(*one) for one in zip(w, g, memory, strict=True)]
        return type(w)(*[new for new, _ in moved]), type(w)(*[kept for _, kept in moved])

    @abstractmethod
    def rest(self, w: Part) -> State:
        """Return the memory before the first update of one vector."""

    @abstractmethod
    def step(self, w: Part, g: Part, memory: State) -> tuple[Part, State]:
        """Return one vector and its memory after an update."""


def sgd(w: Part, g: Part, *, lr: float) -> Part:
    """Plain gradient descent: w - lr * g, in one pass over memory."""
    return torch.sub(w, g, alpha=lr)


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent, with momentum as in `torch.optim.SGD` (None: without, and the memory is empty)."""

    lr: float
    momentum: float | None = None

    def rest(self, w: Part) -> State:
        """Return the velocity: 0."""
        return () if self.momentum is None else torch.zeros_like(w)

    def step(self, w: Part, g: Part, memory: State) -> tuple[Part, State]:
        """Make one step; the memory is the velocity."""
        if self.momentum is None:
            return sgd(w, g, lr=self.lr), memory
        velocity = torch.add(g, memory, alpha=self.momentum)
        return sgd(w, velocity, lr=self.lr), velocity


class AdamState(NamedTuple):
    """Adam's memory: first and second moment, and the number of updates made (float64, so that powers are exact)."""

    first: Part
    second: Part
    updates: Scalar


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, Algorithm 1, with PyTorch's position of eps)."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def rest(self, w: Part) -> AdamState:
        """Return moments of 0, and no update made."""
        return AdamState(torch.zeros_like(w), torch.zeros_like(w), w.new_zeros((), dtype=torch.float64))

    def step(self, w: Part, g: Part, memory: AdamState) -> tuple[Part, AdamState]:
        """Make one step."""
        b1, b2 = self.betas
        updates = memory.updates + 1
        # In place wherever a vector is this function's own: a CPU spends the time on memory.
        first = torch.lerp(memory.first, g, 1 - b1)
        second = torch.addcmul(b2 * memory.second, g, g, value=1 - b2)
        scale = (self.lr / (1 - b1**updates)).to(w.dtype)
        root = torch.sqrt(1 - b2**updates).to(w.dtype)
        move = second.sqrt().div_(root).add_(self.eps).reciprocal_().mul_(first).mul_(scale)
        return w - move, AdamState(first, second, updates)
