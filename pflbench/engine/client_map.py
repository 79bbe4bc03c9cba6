"""Run one function for many clients: one by one (`loop`) or as a stack (`vectorized`). The same numbers, to rounding.

The function is written for one client of one seed: `fn(f, shared, own, *taken) -> tree of tensors`, where `shared`
is what all clients of a seed get (the server state), `own` the client's state, `taken` its minibatches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.engine.batches import Drawn
from pflbench.engine.objective import LoopObjective, StackedObjective, Task
from pflbench.methods.base import Batch, Batches

Execution = Literal["loop", "vectorized"]
Tree = Any
ClientFunction = Callable[..., Tree]


@dataclass(frozen=True)
class Data:
    """The examples of all seeds of a group: one pool on the device, labels on the host, each seed's first row."""

    task: Task
    labels: np.ndarray
    offsets: tuple[int, ...]

    @property
    def device(self) -> torch.device:
        """Where the pool lies, and so where everything is computed."""
        return self.task.pool.device


@dataclass(frozen=True)
class Item:
    """One client's part of a map: the number of its seed in the group, its state, its minibatches."""

    seed: int
    own: Tree
    taken: tuple[Drawn, ...]

    @property
    def length(self) -> int:
        """Minibatches in all."""
        return sum(len(drawn) for drawn in self.taken)


@dataclass
class ClientMap:
    """Maps a function over clients and seeds in one flat axis.

    `chunk`: at most so many clients in a stack (None: all); it changes memory and speed, and numbers by
    rounding only.
    `gradient_calls` counts autograd calls so far.
    """

    data: Data
    execution: Execution = "loop"
    chunk: int | None = None
    gradient_calls: int = field(default=0, init=False)

    def __call__(self, fn: ClientFunction, shared: Sequence[Tree], items: Sequence[Item]) -> list[Tree]:
        """The function's results, one tree of tensors per item, in the items' order."""
        with torch.no_grad():
            return self._loop(fn, shared, items) if self.execution == "loop" else self._stack(fn, shared, items)

    def _loop(self, fn: ClientFunction, shared: Sequence[Tree], items: Sequence[Item]) -> list[Tree]:
        f = LoopObjective(self.data.task)
        results = []
        for item in items:
            taken = [tuple(self._batch(rows, item.seed) for rows in drawn) for drawn in item.taken]
            results.append(fn(f, shared[item.seed], item.own, *taken))
        self.gradient_calls += f.gradient_calls
        return results

    def _batch(self, rows: np.ndarray, seed: int) -> Batch:
        rows = rows + self.data.offsets[seed]
        return Batch(self._tensor(rows), self._tensor(self.data.labels[rows]))

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.data.device)

    def _stack(self, fn: ClientFunction, shared: Sequence[Tree], items: Sequence[Item]) -> list[Tree]:
        f = StackedObjective(self.data.task)
        size = self.chunk or max(len(items), 1)
        # Clients of like length share a chunk, so that little is padded.
        order = sorted(range(len(items)), key=lambda i: items[i].length)
        results: list[Tree] = [None] * len(items)
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            for i, result in zip(chosen, self._one_stack(f, fn, shared, [items[i] for i in chosen]), strict=True):
                results[i] = result
        self.gradient_calls += f.gradient_calls
        return results

    def _one_stack(
        self, f: StackedObjective, fn: ClientFunction, shared: Sequence[Tree], items: list[Item]
    ) -> list[Tree]:
        owns, own_spec = _stack_trees([item.own for item in items])
        commons, common_spec = self._common(shared, items)
        plans, tensors = [], []
        for drawn in zip(*[item.taken for item in items], strict=True):
            plan, packed = self._pad(drawn, [item.seed for item in items])
            plans.append(plan)
            tensors.append(packed)
        in_dims = (0, None if len({i.seed for i in items}) == 1 else 0, 0)

        def call(own: list[Tensor], common: list[Tensor], packed: list[list[Tensor]]) -> list[Tensor]:
            taken = [plan.unpack(p) for plan, p in zip(plans, packed, strict=True)]
            result = fn(f, pytree.tree_unflatten(common, common_spec), pytree.tree_unflatten(own, own_spec), *taken)
            leaves, out_spec[:] = pytree.tree_flatten(result)[0], [pytree.tree_flatten(result)[1]]
            return leaves

        out_spec: list[Any] = []
        leaves = torch.vmap(call, in_dims=in_dims)(owns, commons, tensors)
        return [pytree.tree_unflatten([leaf[i] for leaf in leaves], out_spec[0]) for i in range(len(items))]

    def _common(self, shared: Sequence[Tree], items: list[Item]) -> tuple[list[Tensor], Any]:
        seeds = [item.seed for item in items]
        if len(set(seeds)) == 1:  # one seed's state is broadcast, not copied
            return pytree.tree_flatten(shared[seeds[0]])
        return _stack_trees([shared[seed] for seed in seeds])

    def _pad(self, drawn: Sequence[Drawn], seeds: list[int]) -> tuple[_Plan, list[Tensor]]:
        """Pad the clients' minibatches to one shape ["clients", "steps", "batch"]; masks only where needed."""
        n_steps = max(len(d) for d in drawn)
        n_rows = max((len(rows) for d in drawn for rows in d), default=1)
        rows = np.zeros((len(drawn), n_steps, n_rows), np.int64)
        mask = np.zeros(rows.shape, bool)
        for i, (d, seed) in enumerate(zip(drawn, seeds, strict=True)):
            rows[i] = self.data.offsets[seed]  # a padded row is some real image, so that nothing overflows
            for s, mine in enumerate(d):
                rows[i, s, : len(mine)] = mine + self.data.offsets[seed]
                mask[i, s, : len(mine)] = True
        real = np.asarray(mask.any(-1))
        packed = [self._tensor(rows), self._tensor(self.data.labels[rows])]
        if not mask.all():
            packed.append(self._tensor(mask))
        if not real.all():
            packed.append(self._tensor(real))
        return _Plan(n_steps, not bool(mask.all()), not bool(real.all())), packed


@dataclass(frozen=True)
class _Plan:
    """How one `Take`'s padded tensors become minibatches again, inside vmap."""

    steps: int
    masked: bool
    padded: bool

    def unpack(self, packed: list[Tensor]) -> Batches:
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


def _stack_trees(trees: list[Tree]) -> tuple[list[Tensor], Any]:
    flat = [pytree.tree_flatten(tree) for tree in trees]
    for leaf in flat[0][0]:
        if not isinstance(leaf, Tensor):
            raise TypeError(f"states hold tensors only, not {type(leaf).__name__}; write () for nothing")
    return [torch.stack(leaves) for leaves in zip(*[leaves for leaves, _ in flat], strict=True)], flat[0][1]
