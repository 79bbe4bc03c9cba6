"""What clients are asked for: gradients, and numbers sent down and up. Counted from what they draw, computing nothing.

A method's code is followed once for each size of what a client draws, on tensors of device "meta", which have a shape
and no content. So the counts are the same looped and stacked: without a stack's padding, for each client by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.engine.batches import Drawn
from pflbench.engine.client_map import keyed
from pflbench.engine.objective import Known, Task
from pflbench.engine.watched import Watched
from pflbench.methods.base import Batch, Batches, Method

Tree = Any

FORWARD = 1 / 3
"""A forward pass in gradients: the backward pass costs about two."""
SECOND = 3
"""A Hessian-vector product in gradients: two more passes than one, over a longer graph."""
META = torch.device("meta")


class Counting(Known):
    """An objective that computes nothing: it adds up rows, in gradients' worth."""

    def __init__(self, task: Task):
        self.task = task
        self.rows = 0.0

    def __call__(self, w: Tensor, b: Batch) -> Tensor:
        """See `methods.base.Objective`, as of all below."""
        self.rows += FORWARD * b.rows.shape[-1]
        return w.new_empty(())

    def grad(self, w: Tensor, b: Batch, *, wrt: str | None = None, **_: Any) -> Tensor:
        """A gradient of this shape."""
        self.rows += b.rows.shape[-1]
        return torch.empty_like(w[self.part(wrt)] if wrt else w)

    def hvp(self, w: Tensor, b: Batch, v: Tensor) -> Tensor:
        """A Hessian-vector product of this shape."""
        self.rows += SECOND * b.rows.shape[-1]
        return torch.empty_like(w)

    def logits(self, w: Tensor, b: Batch) -> Tensor:
        """Logits of this shape."""
        self.rows += FORWARD * b.rows.shape[-1]
        return w.new_empty(b.rows.shape[-1], self.task.network.classes)

    def features(self, w: Tensor, b: Batch) -> Tensor:
        """Features of this shape."""
        self.rows += FORWARD * b.rows.shape[-1]
        return w.new_empty(b.rows.shape[-1], self.task.network.width)


class Size(NamedTuple):
    """How many numbers a tree of tensors has, and their bytes."""

    numbers: int
    bytes: int


class Participation(NamedTuple):
    """What one client is asked for in one round: rows in gradients' worth, the server's state down, its upload up."""

    rows: float
    down: Size
    up: Size


@dataclass
class Span:
    """Numbers, of which the mean, the least and the most are kept."""

    count: int = 0
    total: float = 0.0
    least: float = float("inf")
    most: float = 0.0

    def add(self, number: float) -> None:
        """One number more."""
        self.count, self.total = self.count + 1, self.total + number
        self.least, self.most = min(self.least, number), max(self.most, number)

    def told(self, name: str) -> dict[str, float]:
        """The mean under this name and, where numbers differ, the least and the most; nothing without numbers."""
        if not self.count:
            return {}
        ends = {} if self.least == self.most else {f"{name}_least": self.least, f"{name}_most": self.most}
        return {name: self.total / self.count} | ends


@dataclass
class Tally:
    """The costs of one run so far, by participation; None once something could not be counted."""

    spans: dict[str, Span] | None = field(default_factory=dict)

    def add(self, found: Participation | None, batch: int, sends: bool) -> None:
        """One participation; `batch`: the suite's, `sends`: whether its upload arrives."""
        if found is None or self.spans is None:
            self.spans = None
            return
        numbers = {
            "client_gradients": found.rows / batch,
            "floats_down": found.down.numbers,
            "bytes_down": found.down.bytes,
        }
        if sends:
            numbers |= {"floats_up": found.up.numbers, "bytes_up": found.up.bytes}
        for name, number in numbers.items():
            self.spans.setdefault(name, Span()).add(float(number))

    def told(self) -> dict[str, float]:
        """What a client is asked for in a round that it takes part in, on average, flat; empty if it is not known."""
        spans = self.spans or {}
        return {key: round(value, 4) for name, span in spans.items() for key, value in span.told(name).items()}


@dataclass
class Costs:
    """What participations of a method come to, each kind of them followed once."""

    method: Method[Any, Any, Any]
    task: Task
    _known: dict[Hashable, Participation | None] = field(default_factory=dict)

    def of(
        self, server: Tree, state: Tree, taken: Sequence[Drawn], index: int, phase: str | None
    ) -> Participation | None:
        """One participation on what a client drew; None if the method cannot be followed without content.

        `server`, `state`: the server's and the client's, of which the shapes matter; `index`, `phase`: the round's.
        """
        kind = phase, tuple(tuple(rows.shape for rows in drawn) for drawn in taken)
        if kind in self._known:
            return self._known[kind]
        asked: set[int] = set()
        key = torch.empty((), dtype=torch.int64, device=META)
        fed = keyed([without_content(drawn) for drawn in taken], key, self.task)
        found = None
        # Somebody's method may read what these tensors do not have: then its costs are not known.
        with contextlib.suppress(Exception), torch.no_grad():
            f, server, state = Counting(self.task), pytree.tree_map(_empty, server), pytree.tree_map(_empty, state)
            upload, _ = self.method.client(f, server, state, *fed, round=Watched(index, key, phase, asked))
            found = Participation(f.rows, size(server), size(upload))
        if not asked:  # what depends on the round's number is followed anew each time
            self._known[kind] = found
        return found


def without_content(drawn: Drawn) -> Batches:
    """Minibatches of these sizes."""
    found = []
    for rows in drawn:
        numbers = torch.empty(rows.shape[-1], dtype=torch.int64, device=META)
        found.append(Batch(numbers, numbers, places=numbers if rows.ndim == 2 else None))
    return tuple(found)


def size(tree: Tree) -> Size:
    """The numbers in a tree of tensors."""
    leaves = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
    return Size(sum(leaf.numel() for leaf in leaves), sum(leaf.nbytes for leaf in leaves))


def _empty(leaf: Any) -> Any:
    return leaf.to(META) if isinstance(leaf, Tensor) else leaf
