"""What a round costs a client: gradients, and numbers sent down and up. Counted from its minibatches, without training.

A method's code is run once for each size of a client's minibatches (in each round, if it reads its number), on
tensors of device "meta", which have a shape and no content. So the counts are the same looped and stacked: without a
stack's padding, for each client by itself.
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
from pflbench.engine.client_map import Watched, keyed
from pflbench.engine.objective import Known, Task
from pflbench.engine.shapes import META, Shapes
from pflbench.methods.base import Batch, Batches, Method

Tree = Any

FORWARD = 1 / 3
"""A forward pass in gradients: the backward pass costs about two."""
SECOND = 3
"""A Hessian-vector product in gradients: two more passes than one, over a longer graph."""


class Counting(Known):
    """An objective that computes nothing and adds up images; other passes count as fractions of a gradient."""

    def __init__(self, task: Task):
        self.task = task
        self.rows = 0.0

    def __call__(self, w: Tensor, b: Batch) -> Tensor:
        self.rows += FORWARD * b.rows.shape[-1]
        return w.new_empty(())

    def grad(self, w: Tensor, b: Batch, *, wrt: str | None = None, **_: Any) -> Tensor:
        self.rows += b.rows.shape[-1]
        return torch.empty_like(w[self.part(wrt)] if wrt else w)

    def hvp(self, w: Tensor, b: Batch, v: Tensor) -> Tensor:
        self.rows += SECOND * b.rows.shape[-1]
        return torch.empty_like(w)

    def logits(self, w: Tensor, b: Batch) -> Tensor:
        self.rows += FORWARD * b.rows.shape[-1]
        return w.new_empty(b.rows.shape[-1], self.task.network.classes)

    def features(self, w: Tensor, b: Batch) -> Tensor:
        self.rows += FORWARD * b.rows.shape[-1]
        return w.new_empty(b.rows.shape[-1], self.task.network.width)


class Size(NamedTuple):
    """How many numbers a tree of tensors has, and their bytes."""

    numbers: int
    bytes: int


class UpdateCost(NamedTuple):
    """What one local update costs.

    `rows`: images, each counted as often as a gradient of it is taken, other passes as fractions. `down`: the server's
    state. `up`: what the server reads of the upload.
    """

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

    def summary(self, name: str) -> dict[str, float]:
        """The mean under this name and, where numbers differ, the least and the most; nothing without numbers."""
        if not self.count:
            return {}
        ends = {} if self.least == self.most else {f"{name}_least": self.least, f"{name}_most": self.most}
        return {name: self.total / self.count} | ends


@dataclass
class Tally:
    """The costs of one run so far, over its local updates; None once something could not be counted."""

    spans: dict[str, Span] | None = field(default_factory=dict)

    def add(self, asked: UpdateCost | None, batch: int, sends: bool) -> None:
        """Add one local update. `batch`: the run's batch size; `sends`: whether the upload arrives."""
        if asked is None or self.spans is None:
            self.spans = None
            return
        numbers = {
            "client_gradients": asked.rows / batch,
            "floats_down": asked.down.numbers,
            "bytes_down": asked.down.bytes,
        }
        if sends:
            numbers |= {"floats_up": asked.up.numbers, "bytes_up": asked.up.bytes}
        for name, number in numbers.items():
            self.spans.setdefault(name, Span()).add(float(number))

    def means(self) -> dict[str, float]:
        """Mean costs of a local update by name, with least and most where they differ; empty if they are not known."""
        spans = self.spans or {}
        return {key: round(value, 4) for name, span in spans.items() for key, value in span.summary(name).items()}


@dataclass
class Costs:
    """The costs of a method's local updates, counted once for each kind of them."""

    method: Method[Any, Any, Any]
    task: Task
    _known: dict[Hashable, UpdateCost | None] = field(default_factory=dict)
    _shapes: Shapes = field(default_factory=Shapes)

    def of(self, server: Tree, state: Tree, taken: Sequence[Drawn], index: int) -> UpdateCost | None:
        """The costs of a local update on these minibatches; None if the method needs the values of tensors.

        `server`, `state`: the server's and the client's, of which the shapes matter; `index`: the round's.
        """
        kind = tuple(tuple(rows.shape for rows in drawn) for drawn in taken)
        for key in ((kind, None), (kind, index)):
            if key in self._known:
                return self._known[key]
        asked: set[int] = set()
        counted = None
        # Somebody's method may read what these tensors do not have: then its costs are not known.
        with contextlib.suppress(Exception), torch.no_grad():
            server, state = pytree.tree_map(_empty, server), pytree.tree_map(_empty, state)
            counted = self._followed(server, state, taken, index, asked)
        self._known[kind, index if asked else None] = counted
        return counted

    def _followed(self, server: Tree, state: Tree, taken: Sequence[Drawn], index: int, asked: set[int]) -> UpdateCost:
        f, key = Counting(self.task), torch.empty((), dtype=torch.int64, device=META)
        fed = keyed([without_content(drawn) for drawn in taken], key, self.task)
        now = Watched(index, key, asked)
        with self._shapes:
            upload, _ = self.method.client(f, server, state, *fed, round=now)
        return UpdateCost(f.rows, size(server), size(self._read(server, upload, now)))

    def _read(self, server: Tree, upload: Tree, now: Watched) -> list[Tensor]:
        """The tensors of an upload that the server's update reads; what it does not read need not be sent.

        All of them, where the update needs the values of tensors.
        """
        sent, structure = pytree.tree_flatten(upload)
        stacked = [leaf.new_empty((2, *leaf.shape)) if isinstance(leaf, Tensor) else leaf for leaf in sent]
        self._shapes.met.clear()
        try:
            with self._shapes:
                share = torch.empty(2, device=META)
                new = self.method.server(server, pytree.tree_unflatten(stacked, structure), share, now)
        except Exception:
            return [leaf for leaf in sent if isinstance(leaf, Tensor)]
        used = self._shapes.met | {id(leaf) for leaf in pytree.tree_leaves(new)}
        return [one for one, copy in zip(sent, stacked, strict=True) if isinstance(one, Tensor) and id(copy) in used]


def without_content(drawn: Drawn) -> Batches:
    """Minibatches of the same sizes on device "meta"."""
    batches = []
    for rows in drawn:
        numbers = torch.empty(rows.shape[-1], dtype=torch.int64, device=META)
        batches.append(Batch(numbers, numbers, places=numbers if rows.ndim == 2 else None))
    return tuple(batches)


def size(tree: Tree) -> Size:
    """The numbers in a tree of tensors."""
    leaves = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
    return Size(sum(leaf.numel() for leaf in leaves), sum(leaf.nbytes for leaf in leaves))


def _empty(leaf: Any) -> Any:
    return leaf.to(META) if isinstance(leaf, Tensor) else leaf
