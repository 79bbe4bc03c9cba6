"""One stack of clients: trees stacked, minibatches padded to one shape, the function mapped by `torch.vmap`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.engine.batches import Drawn
from pflbench.engine.chunks import Shape
from pflbench.methods.base import Batch, Batches

Tree = Any
Upload = Callable[[np.ndarray], Tensor]
"""Brings an array to the device."""


@dataclass(frozen=True)
class Plan:
    """How one `Take`'s padded tensors become minibatches again, inside vmap."""

    steps: int
    masked: bool
    padded: bool

    def unpack(self, packed: list[Tensor]) -> Batches:
        """One client's minibatches from its part of the padded tensors."""
        rows, labels, *rest = packed
        mask = rest[0] if self.masked else None
        real = rest[-1] if self.padded else None
        return tuple(
            Batch(
                rows[s],
                labels[s],
                None if mask is None else mask[s],
                None if real is None else real[s],
            )
            for s in range(self.steps)
        )


def shape(drawn: Drawn) -> Shape:
    """What a client's minibatches of one `Take` need of a stack."""
    return Shape(len(drawn), max((len(rows) for rows in drawn), default=0), sum(len(rows) for rows in drawn))


def pad(
    drawn: Sequence[Drawn], offsets: Sequence[int], labels: np.ndarray, upload: Upload
) -> tuple[Plan, list[Tensor]]:
    """Pad the clients' minibatches of one `Take` to one shape ["clients", "steps", "batch"]; masks only where needed.

    `offsets`: the first pool row of each client's seed.
    """
    n_steps = max(len(d) for d in drawn)
    n_rows = max((len(rows) for d in drawn for rows in d), default=1)
    rows = np.zeros((len(drawn), n_steps, n_rows), np.int64)
    mask = np.zeros(rows.shape, bool)
    for i, (d, offset) in enumerate(zip(drawn, offsets, strict=True)):
        rows[i] = offset  # a padded row is some real image, so that nothing overflows
        for s, mine in enumerate(d):
            rows[i, s, : len(mine)] = mine + offset
            mask[i, s, : len(mine)] = True
    real = np.asarray(mask.any(-1))
    packed = [upload(rows), upload(labels[rows])]
    if not mask.all():
        packed.append(upload(mask))
    if not real.all():
        packed.append(upload(real))
    return Plan(n_steps, not bool(mask.all()), not bool(real.all())), packed


def stack_trees(trees: Sequence[Tree]) -> tuple[list[Tensor], Any]:
    """Leaves stacked along a new first axis, and the trees' common structure.

    Raises:
        TypeError: A leaf is no tensor.
    """
    flat = [pytree.tree_flatten(tree) for tree in trees]
    for leaf in flat[0][0]:
        if not isinstance(leaf, Tensor):
            raise TypeError(f"states hold tensors only, not {type(leaf).__name__}; write () for nothing")
    return [torch.stack(leaves) for leaves in zip(*[leaves for leaves, _ in flat], strict=True)], flat[0][1]


@dataclass
class Mapped:
    """A client function over a stack, from a flat list of tensors to another: what a graph captures.

    `result` is the structure of one client's result, known after the first call.
    """

    call: Callable[..., Tree]
    plans: tuple[Plan, ...]
    own: Any
    common: Any
    broadcast: bool
    """Whether all clients of the stack share one common tree (they are of one seed)."""
    result: Any = None

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """What two stacks must share, besides the function and the tensors' shapes, to be the same computation."""
        return self.plans, str(self.own), str(self.common), self.broadcast

    def __call__(self, tensors: list[Tensor]) -> list[Tensor]:
        """Stacked leaves of the clients' results."""
        owns, commons = self.own.num_leaves, self.common.num_leaves
        counts = [2 + plan.masked + plan.padded for plan in self.plans]
        packed = tensors[owns + commons :]
        parts, start = [], 0
        for count in counts:
            parts.append(packed[start : start + count])
            start += count

        def one(own: list[Tensor], common: list[Tensor], packed: list[list[Tensor]]) -> list[Tensor]:
            taken = [plan.unpack(p) for plan, p in zip(self.plans, packed, strict=True)]
            tree = self.call(pytree.tree_unflatten(common, self.common), pytree.tree_unflatten(own, self.own), *taken)
            leaves, self.result = pytree.tree_flatten(tree)
            return leaves

        dims = (0, None if self.broadcast else 0, 0)
        found: list[Tensor] = torch.vmap(one, in_dims=dims)(tensors[:owns], tensors[owns : owns + commons], parts)
        return found
