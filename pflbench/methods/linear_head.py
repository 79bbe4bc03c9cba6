"""A linear head on fixed features: its cross-entropy and the gradient in closed form, for many heads at a time.

A head is one vector, as it lies in a model: weight ["classes", "width"] flattened, then bias ["classes"]. Where the
base is frozen, features are computed once, and these functions are all that a step on the head costs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pflbench.methods.base import Batches, Objective, Optimizer, Params, State, decayed, steps, train
from pflbench.typing import Bool, Float, Rows

Features = Float[Tensor, "rows width"]
Heads = Float[Tensor, "*samples head"]
Mask = Bool[Tensor, "rows"]
PerClass = Float[Tensor, "heads classes rows"]
"""Rows last: over a short last axis a CPU's softmax takes twenty times as long."""


def train_head(
    f: Objective, w: Params, z: Features | None, batches: Batches, by: Optimizer, weight_decay: float | None
) -> tuple[Heads, State]:
    """The head of w after descent, and the optimizer's memory.

    `z`: features of all the client's rows, if w's base gives them in every pass (`f.cacheable`); `batches` are then
    `indexed`.
    """
    head = w[f.part("head")]
    decay = f.decay(weight_decay, head, wrt="head")
    if z is None:
        w, memory = train(f, w, batches, by, wrt="head", decay=decay)
        return w[f.part("head")], memory

    def step(carry, b):
        h, memory = carry
        g = head_gradient(h, z.index_select(0, b.places), b.labels, b.mask, f.classes)
        return by.update(h, decayed(g, h, decay), memory)

    return steps(step, (head, by.init(head)), batches)


def head_gradient(h: Heads, z: Features, labels: Rows, mask: Mask | None, classes: int) -> Heads:
    """The gradient of each head's mean cross-entropy over the real rows (no mask: all)."""
    return _gradient(h, z, _logits(h, z, classes).softmax(1), labels, mask)


def head_losses(h: Heads, z: Features, labels: Rows, mask: Mask | None, classes: int) -> Float[Tensor, "*samples"]:
    """Each head's mean cross-entropy over the real rows (no mask: all); autograd may go through it to the features."""
    return _losses(_logits(h, z, classes).log_softmax(1), labels, mask).reshape(h.shape[:-1])


def head_losses_and_gradient(
    h: Heads, z: Features, labels: Rows, mask: Mask | None, classes: int
) -> tuple[Float[Tensor, "*samples"], Heads]:
    """Both of them, for little more than the gradient."""
    likelihoods = _logits(h, z, classes).log_softmax(1)
    losses = _losses(likelihoods, labels, mask).reshape(h.shape[:-1])
    return losses, _gradient(h, z, likelihoods.exp(), labels, mask)


def _logits(h: Heads, z: Features, classes: int) -> PerClass:
    """All heads' logits, by one matrix product."""
    h = h.reshape(-1, h.shape[-1])
    weight, bias = h[:, :-classes].reshape(-1, z.shape[-1]), h[:, -classes:].reshape(-1, 1)
    return torch.addmm(bias, weight, z.t()).view(-1, classes, z.shape[0])


def _gradient(h: Heads, z: Features, p: PerClass, labels: Rows, mask: Mask | None) -> Heads:
    """From the probabilities: p minus one-hot is the derivative by the logits, and these are linear in h."""
    one_hot = labels == torch.arange(p.shape[1], device=labels.device)[:, None]
    d = p - one_hot.to(p.dtype)
    d = d if mask is None else torch.where(mask, d, 0)
    weight = d.flatten(0, 1) @ z
    return torch.cat([weight.view(len(p), -1), d.sum(-1)], 1).div(_count(z, mask)).reshape(h.shape)


def _losses(likelihoods: PerClass, labels: Rows, mask: Mask | None) -> Float[Tensor, "heads"]:
    right = likelihoods.gather(1, labels.expand(len(likelihoods), 1, -1))[:, 0]
    return -(right if mask is None else torch.where(mask, right, 0)).sum(-1) / _count(right.mT, mask)


def _count(z: Features, mask: Mask | None) -> Tensor | int:
    return len(z) if mask is None else mask.sum().clamp(min=1)
