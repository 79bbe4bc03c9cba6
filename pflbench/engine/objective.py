"""The loss a method sees, for one client at a time (`LoopObjective`) or under `torch.vmap` (`StackedObjective`).

Both gather images from the pool at use, scale uint8 to [0, 1] (and normalize, where the data say so), and take the mean
cross-entropy over real rows, or a method's own loss.
Under `vmap` each call is one `autograd.Function` whose batching rule runs the stacked network on all clients, so the
number of gradient calls does not grow with clients × seeds; derivatives are plain autograd of the summed losses,
which separate exactly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.data.source import Normalization
from pflbench.engine import host
from pflbench.engine.augment import crop_flip
from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Loss
from pflbench.models.network import Network
from pflbench.models.ops import Context
from pflbench.typing import Params, Part, Pool, Scalar
from pflbench.vector import Kind, Layout


def check_tensors(args: tuple[Any, ...]) -> None:
    """Raise `UsageError` for an argument of a method's own loss that is no tensor: a stack has one for each client."""
    for one in args:
        if not isinstance(one, Tensor):
            raise UsageError(
                f"f.grad: args are tensors, and {one!r} is a {type(one).__name__}: write server.new_tensor({one!r})."
            )


class Task(NamedTuple):
    """Network and the rows of a pool that an objective evaluates.

    `bf16`: forward passes compute in bfloat16 where PyTorch's autocast thinks it safe; parameters, losses and
    gradients stay as wide as the parameters. `stack`: how stacks convolve (`models.ops.STACKS`). `normalization`: what
    is done to images in [0, 1] (None: nothing). `augment`: whether batches with a key see images cropped and flipped.
    """

    network: Network
    pool: Pool
    bf16: bool = False
    stack: str = "grouped"
    normalization: Normalization | None = None
    augment: bool = False

    @property
    def noisy(self) -> bool:
        """True if training uses a minibatch's key."""
        return self.augment or self.network.drops

    @property
    def cacheable(self) -> bool:
        return self.network.features is not None and not self.noisy

    def images(self, b: Batch, dtype: torch.dtype) -> Tensor:
        """The images of rows [*lead], augmented where the batch has a key: [*lead, "channels", "height", "width"]."""
        rows = b.rows
        raw = self.pool.index_select(0, rows if rows.dim() == 1 else rows.flatten())
        if self.augment and b.key is not None:
            raw = crop_flip(raw.view(*rows.shape, *raw.shape[1:]), b.key).view_as(raw)
        found = raw.to(dtype)
        if self.normalization is None:
            found.div_(255)
        else:
            shift, scale = _channels(self.normalization, dtype, found.device)
            found.sub_(shift).mul_(scale)
        return found if rows.dim() == 1 else found.view(*rows.shape, *found.shape[1:])

    def logits(self, pieces: list[Tensor], b: Batch, key: Tensor | None = None) -> Tensor:
        """One client's logits ["batch", "classes"] on the images of a batch; with dropout where there is a key."""
        x = self.images(b, pieces[0].dtype)
        context = self._context(b, x)
        with self._precision():
            return self.network.logits(pieces, x, key, context).to(pieces[0].dtype)

    def stacked_logits(self, pieces: list[Tensor], b: Batch, key: Tensor | None = None) -> Tensor:
        """The same for a stack of clients: ["clients", "batch", "classes"]."""
        x = self.images(b, pieces[0].dtype)
        context = self._context(b, x)
        with self._precision():
            return self.network.stacked_logits(pieces, x, b.mask, self.stack, key, context).to(pieces[0].dtype)

    def features(self, pieces: list[Tensor], b: Batch) -> Tensor:
        """One client's features ["batch", "features"]; pieces: the vector, from its start to the end of the base."""
        x = self.images(b, pieces[0].dtype)
        with self._precision():
            return self.network.represent(pieces, x).to(pieces[0].dtype)

    def stacked_features(self, pieces: list[Tensor], b: Batch) -> Tensor:
        """The same for a stack of clients: ["clients", "batch", "features"]."""
        x = self.images(b, pieces[0].dtype)
        with self._precision():
            return self.network.stacked_represent(pieces, x, b.mask, self.stack).to(pieces[0].dtype)

    def _context(self, b: Batch, x: Tensor) -> Context | None:
        """Context that a contextual network has its gates from; x: images of the batch."""
        if not self.network.contextual:
            return None
        c = b.context
        return Context(x, b.labels, b.mask) if c is None else Context(self.images(c, x.dtype), c.labels, c.mask)

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        if not self.bf16:
            return contextlib.nullcontext()
        # Without autocast's cache of casted weights, which knows neither stacks nor captured graphs.
        return torch.autocast(self.pool.device.type, torch.bfloat16, cache_enabled=False)


@lru_cache(maxsize=8)
def _channels(n: Normalization, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """(x / 255 - mean) / std as (x - shift) * scale, shaped for images."""
    mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in n)
    return host.upload((mean * 255).to(dtype), device), host.upload((1 / (std * 255)).to(dtype), device)


@lru_cache(maxsize=32)
def _decay(layout: Layout, rate: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return host.upload(layout.entries("weight").to(dtype), device) * rate


@lru_cache(maxsize=32)
def _entries(layout: Layout, kind: Kind, device: torch.device) -> Tensor:
    return host.upload(layout.entries(kind), device)


class ObjectiveFacts:
    """Properties of an objective that need no computation."""

    task: Task

    @property
    def classes(self) -> int:
        return self.task.network.classes

    @property
    def width(self) -> int:
        return self.task.network.width

    @property
    def cacheable(self) -> bool:
        return self.task.cacheable

    def part(self, name: str) -> slice:
        return self.task.network.layout.part(name)

    def last(self, layers: int) -> slice:
        return self.task.network.layout.last(layers)

    def entries(self, kind: Kind) -> Tensor:
        return _entries(self.task.network.layout, kind, self.task.pool.device)

    def decay(self, rate: float | None, w: Part, *, wrt: str | None = None) -> Part | None:
        return _decay(self.task.network.layout.of(wrt), rate, w.dtype, w.device) if rate else None


class LossFn(NamedTuple):
    """A loss of a method's own: see `Objective.grad`."""

    loss: Loss
    at: Literal["logits", "features"]


def cut(w: Tensor, wrt: slice | None) -> tuple[list[Tensor], Tensor]:
    """Pieces of w along its last axis, and the one that a derivative is taken by (a leaf that requires gradients)."""
    where = wrt or slice(0, w.shape[-1])
    leaf = w[..., where].detach().requires_grad_()
    pieces = [w[..., : where.start].detach(), leaf, w[..., where.stop :].detach()]
    return [p for p in pieces if p.shape[-1] or p is leaf], leaf


PIECE = 100
"""Rows of a larger batch that a network which treats each row alone sees at a time: caches and memory are finite."""


class LoopObjective(ObjectiveFacts):
    """One client at a time; batches are trimmed to their real rows. `gradient_calls` counts autograd calls.

    A large batch is cut into pieces of `PIECE` rows, whose means and gradients are averaged.
    """

    def __init__(self, task: Task):
        self.task = task
        self.gradient_calls = 0

    def _loss(self, pieces: list[Tensor], b: Batch, own: LossFn | None = None, args: tuple[Tensor, ...] = ()) -> Tensor:
        if own is None:
            return F.cross_entropy(self.task.logits(pieces, b, b.key), b.labels)
        outputs = self.task.logits(pieces, b, b.key) if own.at == "logits" else self.task.features(pieces, b)
        return own.loss(outputs, b.labels, b.mask, *args)

    def __call__(self, w: Params, b: Batch) -> Scalar:
        with torch.no_grad():
            return self._mean(b, lambda piece: self._loss([w], piece))

    def _mean(self, b: Batch, fn: Callable[[Batch], Tensor]) -> Tensor:
        """The mean over a batch's rows of what is a mean over a piece's."""
        several = self._pieces(b)
        if len(several) == 1:
            return fn(b)
        total = fn(several[0]).mul_(len(several[0].rows))
        for piece in several[1:]:
            total.add_(fn(piece), alpha=len(piece.rows))
        return total.div_(len(b.rows))

    def _pieces(self, b: Batch) -> list[Batch]:
        # What a key draws goes by places in the whole batch.
        if len(b.rows) <= PIECE or self.task.network.batchwise or b.key is not None:
            return [b]
        return [Batch(*some) for some in zip(torch.split(b.rows, PIECE), torch.split(b.labels, PIECE), strict=True)]

    def grad(
        self,
        w: Params,
        b: Batch,
        *,
        wrt: str | None = None,
        loss: Loss | None = None,
        at: Literal["logits", "features"] = "logits",
        args: tuple[Tensor, ...] = (),
    ) -> Part:
        self.gradient_calls += 1
        check_tensors(args)
        where = self.part(wrt) if wrt else None
        if loss is not None:
            return self._differentiated(w, b, where, LossFn(loss, at), args)
        if self.task.network.gradient is not None and not self.task.bf16:
            return self._derived(w, b, wrt)
        return self._mean(b, lambda piece: self._differentiated(w, piece, where))

    def _differentiated(
        self, w: Params, b: Batch, where: slice | None, own: LossFn | None = None, args: tuple[Tensor, ...] = ()
    ) -> Part:
        with torch.enable_grad():
            pieces, leaf = cut(w, where)
            return torch.autograd.grad(self._loss(pieces, b, own, args), leaf)[0]

    def _derived(self, w: Params, b: Batch, wrt: str | None) -> Part:
        network = self.task.network
        assert network.gradient is not None
        layout = network.layout.of(wrt)
        g = w.new_empty(layout.size)
        images = self.task.images(b, w.dtype)
        network.gradient(network.layout.views([w]), images, b.labels, layout.views([g]))
        return g

    def hvp(self, w: Params, b: Batch, v: Params) -> Params:
        self.gradient_calls += 1
        with torch.enable_grad():
            pieces, leaf = cut(w, None)
            (g,) = torch.autograd.grad(self._loss(pieces, b), leaf, create_graph=True)
            return torch.autograd.grad(g, leaf, v)[0]

    def logits(self, w: Params, b: Batch) -> Tensor:
        with torch.no_grad():
            return self.task.logits([w], b)

    def features(self, w: Params, b: Batch) -> Tensor:
        with torch.no_grad():
            return torch.cat([self.task.features([w], piece) for piece in self._pieces(b)])


class StackedObjective(ObjectiveFacts):
    """The same under `torch.vmap`: w and the batch's tensors carry a hidden leading axis of clients × seeds."""

    def __init__(self, task: Task):
        self.task = task
        self.gradient_calls = 0

    def __call__(self, w: Params, b: Batch) -> Scalar:
        return _apply(self._loss, w, b)

    def grad(
        self,
        w: Params,
        b: Batch,
        *,
        wrt: str | None = None,
        loss: Loss | None = None,
        at: Literal["logits", "features"] = "logits",
        args: tuple[Tensor, ...] = (),
    ) -> Part:
        check_tensors(args)
        where, own = self.part(wrt) if wrt else None, loss and LossFn(loss, at)
        return _apply(lambda w, b, *args: self._grad(w, b, where, own, args), w, b, *args)

    def hvp(self, w: Params, b: Batch, v: Params) -> Params:
        return _apply(self._hvp, w, b, v)

    def logits(self, w: Params, b: Batch) -> Tensor:
        return _apply(self._logits, w, b)

    def features(self, w: Params, b: Batch) -> Tensor:
        return _apply(self._features, w, b)

    # From here on tensors are physical: a leading axis of clients everywhere.

    def _logits(self, w: Tensor, b: Batch) -> Tensor:
        with torch.no_grad():
            return self.task.stacked_logits([w], b)

    def _features(self, w: Tensor, b: Batch) -> Tensor:
        with torch.no_grad():
            return self.task.stacked_features([w], b)

    def _losses(self, pieces: list[Tensor], b: Batch, own: LossFn | None = None, args: Sequence[Tensor] = ()) -> Tensor:
        """Each client's loss ["clients"]."""
        if own is not None:
            at_logits = own.at == "logits"
            outputs = self.task.stacked_logits(pieces, b, b.key) if at_logits else self.task.stacked_features(pieces, b)
            dims = (0, 0, None if b.mask is None else 0, *[0] * len(args))
            losses: Tensor = torch.vmap(own.loss, in_dims=dims)(outputs, b.labels, b.mask, *args)
            return losses
        logits = self.task.stacked_logits(pieces, b, b.key)
        each = F.cross_entropy(logits.flatten(0, 1), b.labels.flatten(), reduction="none").view(b.labels.shape)
        if b.mask is None:
            return each.mean(1)
        return torch.where(b.mask, each, 0).sum(1) / b.mask.sum(1).clamp(min=1)

    def _loss(self, w: Tensor, b: Batch) -> Tensor:
        with torch.no_grad():
            return self._losses([w], b)

    def _grad(self, w: Tensor, b: Batch, where: slice | None, own: LossFn | None, args: Sequence[Tensor]) -> Tensor:
        self.gradient_calls += 1
        with torch.enable_grad():
            pieces, leaf = cut(w, where)
            return torch.autograd.grad(self._losses(pieces, b, own, args).sum(), leaf)[0]

    def _hvp(self, w: Tensor, b: Batch, v: Tensor) -> Tensor:
        self.gradient_calls += 1
        with torch.enable_grad():
            pieces, leaf = cut(w, None)
            (g,) = torch.autograd.grad(self._losses(pieces, b).sum(), leaf, create_graph=True)
            return torch.autograd.grad(g, leaf, v)[0]


def _apply(fn: Callable[..., Tensor], w: Tensor, b: Batch, *more: Tensor) -> Tensor:
    """`fn` on the physical stack behind vmapped arguments."""
    c = b.context
    optional = [b.mask, b.key, *((None,) * 4 if c is None else (c.rows, c.labels, c.mask, c.key))]
    form = _Form(len(more), tuple(tensor is not None for tensor in optional))
    there = [tensor for tensor in optional if tensor is not None]
    result: Tensor = _OnStack.apply(fn, form, w, *more, b.rows, b.labels, *there)
    return result


class _Form(NamedTuple):
    """Meaning of a flat list of tensors: the number of arguments, and which optional ones of the batch are there.

    These are its mask and its key, then rows, labels, mask and key of its context.
    """

    more: int
    there: tuple[bool, ...]


class _OnStack(torch.autograd.Function):
    """An opaque call with a batching rule; never differentiated through."""

    generate_vmap_rule = False

    @staticmethod
    def forward(fn: Callable[..., Tensor], form: _Form, *tensors: Tensor) -> Tensor:
        one = _call(fn, form, [t[None] for t in tensors])
        return one[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], fn: Callable[..., Tensor], form: _Form, *tensors: Tensor) -> Any:
        # A NamedTuple's dimensions are nested: those of the tensors are the last.
        dims = in_dims[len(in_dims) - len(tensors) :]
        stacked = [
            t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)
            for t, d in zip(tensors, dims, strict=True)
        ]
        return _call(fn, form, stacked), 0


def _call(fn: Callable[..., Tensor], form: _Form, tensors: list[Tensor]) -> Tensor:
    w, *rest = tensors
    more, (rows, labels, *optional) = rest[: form.more], rest[form.more :]
    mask, key, *seen = (optional.pop(0) if there else None for there in form.there)
    context = None
    if seen[0] is not None and seen[1] is not None:
        context = Batch(seen[0], seen[1], seen[2], key=seen[3])
    return fn(w, Batch(rows, labels, mask, key=key, context=context), *more)
