"""Cost of a round to a client: gradients, and numbers sent down and up. Counted from its minibatches, without training.

A method's code is run once for each size of a client's minibatches (in each round, if it reads its number), on
tensors of device "meta", which have a shape and no content. So the counts are the same looped and stacked: without a
stack's padding, for each client by itself.

PyTorch finds the shape of most results in Python, which takes long, and imports its compiler for that. Here an
operation is done once, on zeros, and from then on the shape of its result is known (`Shapes`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pflbench.engine.batches import Drawn
from pflbench.engine.client_map import Watched, keyed
from pflbench.engine.objective import ObjectiveFacts, Task
from pflbench.methods.base import Batch, Batches, Method
from pflbench.vector import Kind

Tree = Any
META = torch.device("meta")
_BY_CONTENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}

FORWARD = 1 / 3
"""A forward pass in gradients: the backward pass costs about two."""
SECOND = 3
"""A Hessian-vector product in gradients: two more passes than one, over a longer graph."""


class Counting(ObjectiveFacts):
    """An objective that computes nothing and adds up images; other passes count as fractions of a gradient."""

    def __init__(self, task: Task):
        self.task = task
        self.rows = 0.0

    def entries(self, kind: Kind) -> Tensor:
        return super().entries(kind).to(META)

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


Numbers = Mapping[str, float]
"""Costs of one local update, by name.

`client_gradients`: the images that gradients are taken of, each as often, in minibatches of the run; other passes count
as fractions. `floats_down`, `bytes_down`: the server's state. `floats_up`, `bytes_up`: what the server reads of the
upload.
"""


@dataclass
class Tally:
    """The costs of one run so far, over its local updates."""

    spans: dict[str, tuple[int, float, float, float]] | None = field(default_factory=dict)
    """Count, sum, least and most of each cost; None once something could not be counted."""

    def add(self, asked: Numbers | None, sends: bool) -> None:
        """Add one local update. `sends`: whether the upload arrives."""
        if asked is None or self.spans is None:
            self.spans = None
            return
        for name, number in asked.items():
            if sends or not name.endswith("_up"):
                count, total, least, most = self.spans.get(name, (0, 0.0, number, number))
                self.spans[name] = count + 1, total + number, min(least, number), max(most, number)

    def means(self) -> dict[str, float]:
        """Mean costs of a local update by name, with least and most where they differ; empty if they are not known."""
        found: dict[str, float] = {}
        for name, (count, total, least, most) in (self.spans or {}).items():
            found |= {name: total / count} | ({f"{name}_least": least, f"{name}_most": most} if least < most else {})
        return {name: round(number, 4) for name, number in found.items()}


class _Form(NamedTuple):
    """All that a tensor without content is."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> _Form:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def empty(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=META)


class Shapes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context operations are looked up. `met`: the ids of all tensors that operations were given.

    What reads a tensor's content is left to PyTorch, which refuses it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known: dict[Hashable, Any] = {}
        self.met: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler at the first operation, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The result of one operation."""
        kwargs = kwargs or {}
        tensors = list(_tensors((*args, *kwargs.values())))
        self.met.update(map(id, tensors))
        if not tensors or not _BY_CONTENT.isdisjoint(func.tags) or any(t.device != META for t in tensors):
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            within = func._schema.name.endswith("_") and func._schema.arguments[0].is_write
            return args[0] if within else func(*args, **kwargs)
        key = func, _key(args), _key(tuple(kwargs.items()))
        if key not in self._known:
            self._known[key] = _result(func, args, kwargs)
        return pytree.tree_map(_Form.empty, self._known[key], is_leaf=lambda one: isinstance(one, _Form))


def _result(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The forms of what an operation comes to."""
    on_cpu = {key: torch.device("cpu") if key == "device" and value else value for key, value in kwargs.items()}
    filled, named = pytree.tree_map_only(Tensor, lambda t: torch.zeros(t.shape, dtype=t.dtype), (args, on_cpu))
    result = func(*filled, **named)
    if not all(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(result)):
        raise TypeError(f"{func} reads content, and there is none.")
    return pytree.tree_map(_Form.of, result)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among an operation's arguments, and in lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _key(value: Any) -> Hashable:
    """Part of an argument that the shape of a result depends on; hashable."""
    if isinstance(value, Tensor):
        return _Form.of(value)
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    key: Hashable = (type(value), value)
    return key


@dataclass
class Costs:
    """The costs of a method's local updates, counted once for each kind of them. `batch`: the runs' batch size."""

    method: Method
    task: Task
    batch: int
    _known: dict[Hashable, Numbers | None] = field(default_factory=dict)
    _shapes: Shapes = field(default_factory=Shapes)

    def of(self, server: Tree, state: Tree, taken: Sequence[Drawn], index: int) -> Numbers | None:
        """The costs of a local update on these minibatches; None if the method needs the values of tensors.

        `server`, `state`: the server's and the client's, of which the shapes matter; `index`: the round's.
        """
        kind = tuple(tuple(rows.shape for rows in drawn) for drawn in taken)
        for known in ((kind, None), (kind, index)):
            if known in self._known:
                return self._known[known]
        f, key, asked = Counting(self.task), torch.empty((), dtype=torch.int64, device=META), set[int]()
        now, counted = Watched(index, key, asked), None
        # Somebody's method may read what these tensors do not have: then its costs are not known.
        with contextlib.suppress(Exception), torch.no_grad():
            server, state = pytree.tree_map_only(Tensor, lambda leaf: leaf.to(META), (server, state))
            fed = keyed([without_content(drawn) for drawn in taken], key, self.task)
            with self._shapes:
                upload, _ = self.method.client(f, server, state, *fed, round=now)
            read = self._read(server, upload, now)
            counted = {"client_gradients": f.rows / self.batch, **_sizes(server, "down"), **_sizes(read, "up")}
        self._known[kind, index if asked else None] = counted
        return counted

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


def _sizes(tree: Tree, way: str) -> dict[str, float]:
    """The numbers in a tree of tensors that go this way, and their bytes."""
    leaves = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
    return {
        f"floats_{way}": float(sum(x.numel() for x in leaves)),
        f"bytes_{way}": float(sum(x.nbytes for x in leaves)),
    }
