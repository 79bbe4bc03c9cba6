"""Stacks of clients: grouping, stacked trees, minibatches padded to one shape, and the function under `torch.vmap`.

Clients of a stack are of like length, so that little is padded, and so few that their memory suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.engine.batches import Drawn
from pflbench.methods.base import Batch, Batches

Tree = Any
MOST_PADDING = 1.25
"""Padded cells of a stack over real ones, at most."""


class DrawShape(NamedTuple):
    """Size of one client's part of one `Draw`: minibatches, rows of the largest one, and rows in all."""

    steps: int
    rows: int
    total: int


def real(client: Sequence[DrawShape]) -> int:
    """Rows that a client's minibatches hold in all."""
    return sum(shape.total for shape in client)


@dataclass
class Chunk:
    """Clients of one stack, by number."""

    members: list[int] = field(default_factory=list)
    real_rows: int = 0
    widest: tuple[DrawShape, ...] = ()
    """Per `Draw`, the largest number of minibatches and of rows; every client of the stack gets as many."""

    def with_(self, number: int, client: tuple[DrawShape, ...]) -> Chunk:
        """This chunk and one more client."""
        widest = tuple(
            DrawShape(max(a.steps, b.steps), max(a.rows, b.rows), 0) for a, b in zip(self.widest, client, strict=True)
        )
        return Chunk([*self.members, number], self.real_rows + real(client), widest if self.members else client)

    @property
    def padded_rows(self) -> int:
        """Rows that the stack computes."""
        return len(self.members) * sum(shape.steps * shape.rows for shape in self.widest)


def chunked(
    clients: Sequence[tuple[DrawShape, ...]], most: int | None = None, most_padding: float = MOST_PADDING
) -> list[Chunk]:
    """Chunks of clients, longest clients first, each as large as `most_padding` and `most` (None: any) allow.

    A client whose own minibatches are ragged may be above that alone; it then shares with none that make it worse.
    The order inside a chunk is that of the clients' numbers.
    """
    chunks: list[Chunk] = []
    for i in sorted(range(len(clients)), key=lambda i: (-real(clients[i]), i)):
        if chunks and (most is None or len(chunks[-1].members) < most):
            together = chunks[-1].with_(i, clients[i])
            if together.padded_rows <= most_padding * together.real_rows:
                chunks[-1] = together
                continue
        chunks.append(Chunk([i], real(clients[i]), clients[i]))
    for chunk in chunks:
        chunk.members.sort()
    return chunks


@dataclass(frozen=True)
class Unpacking:
    """Way from one `Draw`'s padded tensors back to minibatches, inside vmap."""

    steps: int
    masked: bool
    padded: bool
    indexed: bool

    @property
    def tensors(self) -> int:
        """Number of tensors."""
        return 2 + self.masked + self.padded + self.indexed

    def unpack(self, packed: list[Tensor]) -> Batches:
        """One client's minibatches from its part of the padded tensors."""
        rows, labels, *rest = packed
        optional = [rest.pop(0) if present else None for present in (self.masked, self.padded, self.indexed)]

        def one(s: int) -> Batch:
            mask, real, places = (None if tensor is None else tensor[s] for tensor in optional)
            return Batch(rows[s], labels[s], mask, real, places)

        return tuple(map(one, range(self.steps)))


def shape(drawn: Drawn) -> DrawShape:
    """The steps and batch size that a client's minibatches of one `Draw` need in a stack."""
    sizes = [rows.shape[-1] for rows in drawn]
    return DrawShape(len(drawn), max(sizes, default=0), sum(sizes))


def pad(
    drawn: Sequence[Drawn], offsets: Sequence[int], labels: np.ndarray, upload: Callable[[np.ndarray], Tensor]
) -> tuple[Unpacking, list[Tensor]]:
    """Pad the clients' minibatches of one `Draw` to one shape ["clients", "steps", "batch"]; masks only where needed.

    `offsets`: the first pool row of each client's run; `upload`: brings an array to the device.
    """
    n_steps = max(len(d) for d in drawn)
    n_rows = max((rows.shape[-1] for d in drawn for rows in d), default=1)
    indexed = any(rows.ndim == 2 for d in drawn for rows in d)
    rows = np.zeros((len(drawn), n_steps, n_rows), np.int64)
    mask, index = np.zeros(rows.shape, bool), np.zeros_like(rows)
    for i, (d, offset) in enumerate(zip(drawn, offsets, strict=True)):
        rows[i] = offset  # a padded row is some real image, so that nothing overflows
        for s, step in enumerate(d):
            numbers, places = step if indexed else (step, 0)
            rows[i, s, : len(numbers)] = numbers + offset
            mask[i, s, : len(numbers)] = True
            index[i, s, : len(numbers)] = places
    real = np.asarray(mask.any(-1))
    packed = [upload(rows), upload(labels[rows])]
    if not mask.all():
        packed.append(upload(mask))
    if not real.all():
        packed.append(upload(real))
    if indexed:
        packed.append(upload(index))
    return Unpacking(n_steps, not bool(mask.all()), not bool(real.all()), indexed), packed


def stack_trees(trees: Sequence[Tree]) -> tuple[list[Tensor], Any]:
    """Leaves stacked along a new first axis, and the trees' common structure."""
    flat = [pytree.tree_flatten(tree) for tree in trees]
    return [torch.stack(leaves) for leaves in zip(*[leaves for leaves, _ in flat], strict=True)], flat[0][1]


@dataclass
class Mapped:
    """A client function over a stack, from a flat list of tensors to another: what a graph captures.

    `result` is the structure of one client's result, known after the first call.
    """

    call: Callable[..., Tree]
    plans: tuple[Unpacking, ...]
    private: Any
    common: Any
    broadcast: bool
    """True if all clients of the stack share one common tree (they are of one run)."""
    result: Any = None

    @property
    def identity(self) -> tuple[Hashable, ...]:
        """Key of a computation: two stacks with equal keys, functions and shapes compute the same."""
        return self.plans, str(self.private), str(self.common), self.broadcast

    def __call__(self, tensors: list[Tensor]) -> list[Tensor]:
        """Stacked leaves of the clients' results."""
        rest = iter(tensors)
        counts = [self.private.num_leaves, self.common.num_leaves, *[p.tensors for p in self.plans]]
        privates, commons, *packed = (list(islice(rest, count)) for count in counts)

        def one(private: list[Tensor], common: list[Tensor], packed: list[list[Tensor]]) -> list[Tensor]:
            taken = [plan.unpack(p) for plan, p in zip(self.plans, packed, strict=True)]
            tree = self.call(
                pytree.tree_unflatten(common, self.common), pytree.tree_unflatten(private, self.private), *taken
            )
            leaves, self.result = pytree.tree_flatten(tree)
            return leaves

        dims = (0, None if self.broadcast else 0, 0)
        results: list[Tensor] = torch.vmap(one, in_dims=dims)(privates, commons, packed)
        return results
