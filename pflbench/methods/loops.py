"""Loops over minibatches that a stack of clients can make together, and what else local updates are composed of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.methods.objective import Batch, Batches, Objective
from pflbench.noise import branch
from pflbench.optim import Optimizer, State
from pflbench.typing import Float, Params, Part, Scalar

Carry = TypeVar("Carry")


def steps(fn: Callable[..., Carry], carry: Carry, batches: Batches, *more: Sequence[Any]) -> Carry:
    """Fold `fn(carry, batch, *others)` over minibatches: the only loop over batches a method writes.

    A padded step leaves the whole carry (parameters, momentum, moments, counters) as it was. `more` are further
    sequences of the same length, handed to `fn` element by element.
    """
    for b, *others in zip(batches, *more, strict=True):
        carry = keep(b, fn(carry, b, *others), carry)
    return carry


def keep(b: Batch, new: Carry, old: Carry) -> Carry:
    """`new` if the step of `b` is real, else `old`."""
    if b.real is None:
        return new
    real = b.real
    return cast(Carry, pytree.tree_map(lambda x, y: torch.where(real, x, y), new, old))


def path(fn: Callable[[Carry, Batch], Carry], carry: Carry, batches: Batches) -> tuple[Carry, list[Carry]]:
    """`steps`, keeping the carry before every step (for differentiating through the path)."""
    before: list[Carry] = []

    def visit(now: Carry, b: Batch) -> Carry:
        before.append(now)
        return fn(now, b)

    return steps(visit, carry, batches), before


def descend(
    grad: Callable[[Part, Batch], Part], w: Part, batches: Batches, by: Optimizer, *, decay: Part | None = None
) -> Part:
    """Descend over `batches`, one update each, by an optimizer at rest: `descend(f.grad, w, batches, SGD(lr))`.

    `decay`: what `Objective.decay` returns, times w, is added to the gradient (None: nothing).
    """
    return descend_on(grad, (w, by.init(w)), batches, by, decay=decay)[0]


def descend_on(
    grad: Callable[[Part, Batch], Part],
    start: tuple[Part, State],
    batches: Batches,
    by: Optimizer,
    *,
    decay: Part | None = None,
) -> tuple[Part, State]:
    """`descend` by an optimizer that goes on from a memory; returns the memory, too."""

    def step(carry: tuple[Part, State], b: Batch) -> tuple[Part, State]:
        w, state = carry
        return by.update(w, decayed(grad(w, b), w, decay), state)

    return steps(step, start, batches)


def decayed(g: Part, w: Part, decay: Part | None) -> Part:
    """The gradient with weight decay at w (None: without)."""
    return g if decay is None else torch.addcmul(g, decay, w)


def split(b: Batch, share: float) -> tuple[Batch, Batch] | None:
    """The first floor(share · n) of a minibatch's n real rows, and the others; each half with a key of its own.

    Real rows come first in `b` and in both halves, since a row's augmentation depends on its place. A step whose first
    half is empty is not real. `share` is in (0, 1); the product is rounded in float64.

    Returns:
        None where the first half is empty for every client, so that there is no step.
    """
    width = b.rows.shape[-1]
    most = math.floor(share * width)
    if not most:
        return None
    keys = [None if b.key is None else branch(b.key, "split", half) for half in (0, 1)]
    if b.mask is None:
        front, back = (_picked(b, itemgetter(part)) for part in (slice(most), slice(most, width)))
        return front._replace(key=keys[0]), back._replace(key=keys[1])
    n = b.mask.sum(-1)
    first = (share * n.double()).floor().long()
    real = first > 0 if b.real is None else b.real & (first > 0)
    places = torch.arange(width, device=b.rows.device)
    behind = (places[: width - most] + first).clamp(max=width - 1)  # where the second half's rows stand in b
    front, back = _picked(b, itemgetter(slice(most))), _picked(b, lambda x: x.gather(-1, behind))
    return (
        front._replace(mask=places[:most] < first, real=real, key=keys[0]),
        back._replace(mask=places[: width - most] < n - first, real=real, key=keys[1]),
    )


def _picked(b: Batch, pick: Callable[[Tensor], Tensor]) -> Batch:
    """A minibatch of some of another's rows."""
    places = None if b.places is None else pick(b.places)
    return b._replace(rows=pick(b.rows), labels=pick(b.labels), places=places)


def row_mean(values: Float[Tensor, "rows *shape"], mask: Tensor | None) -> Float[Tensor, "*shape"]:
    """The mean over a minibatch's real rows; no mask: all are real."""
    if mask is None:
        return values.mean(0)
    real = mask.view(-1, *[1] * (values.dim() - 1))
    return torch.where(real, values, 0).sum(0) / mask.sum().clamp(min=1)


def total_loss(f: Objective, w: Params, batches: Batches) -> Scalar:
    """The sum of minibatch losses over `batches`."""
    return steps(lambda total, b: total + f(w, b), w.new_zeros(()), batches)
