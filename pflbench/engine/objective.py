"""The loss a method sees, for one client at a time (`LoopObjective`) or under `torch.vmap` (`StackedObjective`).

Both gather images from the pool at use, scale uint8 to [0, 1] (and normalize, where the data say so), and take the mean
cross-entropy over real rows, or a method's own loss.
Under `vmap` each call is one `autograd.Function` whose batching rule runs the stacked network on all clients, so the
number of gradient calls does not grow with clients × seeds; derivatives are plain autograd of the summed losses,
which separate exactly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from functools import lru_cache, partial
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
        return self.network.features is not None and not self.noisy and not self.network.batchwise

    @property
    def statistics(self) -> Tensor | None:
        """Entries of a model that are running statistics, on the pool's device; None: none are."""
        if self.network.statistics is None:
            return None
        return _entries(self.network.layout, "statistic", self.pool.device)

    def images(self, b: Batch, dtype: torch.dtype) -> Tensor:
        """The images of rows [*lead], augmented where the batch has a key: [*lead, "channels", "height", "width"]."""
        rows = b.rows
        raw = self.pool.index_select(0, rows if rows.dim() == 1 else rows.flatten())
        if self.augment and b.key is not None:
            raw = crop_flip(raw.view(*rows.shape, *raw.shape[1:]), b.key).view_as(raw)
        images = raw.to(dtype)
        if self.normalization is None:
            images.div_(255)
        else:
            shift, scale = _channels(self.normalization, dtype, images.device)
            images.sub_(shift).mul_(scale)
        return images if rows.dim() == 1 else images.view(*rows.shape, *images.shape[1:])

    def logits(self, pieces: list[Tensor], b: Batch, key: Tensor | None = None, training: bool = False) -> Tensor:
        """Logits ["batch", "classes"] on the images of a batch; of a stack ["clients", "batch", "classes"].

        `key`: for dropout; None: without. `training`: without running statistics.
        """
        x = self.images(b, pieces[0].dtype)
        context = self._context(b, x)
        with self._precision():
            stack = self._stack_of(b)
            logits = self.network.logits(pieces, x, key, context, mask=b.mask, stack=stack, training=training)
        return logits.to(pieces[0].dtype)

    def features(self, pieces: list[Tensor], b: Batch, training: bool = False) -> Tensor:
        """Features ["batch", "features"], or of a stack; pieces: the vector, from its start to the end of the base."""
        x = self.images(b, pieces[0].dtype)
        with self._precision():
            features = self.network.represent(pieces, x, mask=b.mask, stack=self._stack_of(b), training=training)
        return features.to(pieces[0].dtype)

    def outputs(self, at: str, pieces: list[Tensor], b: Batch) -> Tensor:
        """Logits or features in training."""
        return self.logits(pieces, b, b.key, True) if at == "logits" else self.features(pieces, b, True)

    def advanced(self, w: Tensor, b: Batch) -> Tensor:
        """The model with the running statistics that a pass of training over the batch leaves; of a stack, each."""
        x = self.images(b, w.dtype)
        with self._precision():
            return self.network.advanced(w, x, b.key, b.mask, self._stack_of(b))

    def _stack_of(self, b: Batch) -> str | None:
        return None if b.rows.dim() == 1 else self.stack

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


FORWARD, SECOND = 1 / 3, 3.0
"""A forward pass and a Hessian-vector product in gradients: a backward pass costs about two forward passes, and the
product is two more passes than a gradient, over a longer graph."""
PIECE = 100
"""Rows of a larger batch that a network which treats each row alone sees at a time: caches and memory are finite."""

FIELDS = len(Batch._fields) - 1
"""Tensors of a batch beside its context."""


class LossFn(NamedTuple):
    """A method's loss: see `Objective.grad`."""

    loss: Loss
    at: Literal["logits", "features"]


def cut(w: Tensor, wrt: slice | None) -> tuple[list[Tensor], Tensor]:
    """Pieces of w along its last axis, and the one that a derivative is taken by (a leaf that requires gradients)."""
    where = wrt or slice(0, w.shape[-1])
    leaf = w[..., where].detach().requires_grad_()
    pieces = [w[..., : where.start].detach(), leaf, w[..., where.stop :].detach()]
    return [p for p in pieces if p.shape[-1] or p is leaf], leaf


class Facts:
    """Properties of a network that methods ask for."""

    network: Network
    device: torch.device

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.network.classes

    @property
    def width(self) -> int:
        """Number of features that the head reads."""
        return self.network.width

    def part(self, name: str) -> slice:
        """A part of the model."""
        return self.network.layout.part(name)

    def last(self, layers: int) -> slice:
        """The last layers of the model."""
        return self.network.layout.last(layers)

    def entries(self, kind: Kind) -> Tensor:
        """The entries of a kind, bool ["params"]."""
        return _entries(self.network.layout, kind, self.device)


class LoopObjective(Facts):
    """The objective of one client at a time; batches are trimmed to their real rows.

    A large batch is cut into pieces of `PIECE` rows, whose means and gradients are averaged.
    """

    def __init__(self, task: Task):
        self.task, self.network, self.device = task, task.network, task.pool.device
        self.gradient_calls = 0
        """Calls of autograd."""
        self.passes: list[tuple[float, Batch]] = []
        """Minibatches that were passed through the network, each with its cost in gradients."""

    @property
    def cacheable(self) -> bool:
        return self.task.cacheable

    def decay(self, rate: float | None, w: Part, *, wrt: str | None = None) -> Part | None:
        return _decay(self.network.layout.of(wrt), rate, w.dtype, w.device) if rate else None

    def images(self, zero: Tensor, free: Collection[int] = ()) -> Tensor:
        """Number of images that gradients were taken of so far, other passes as fractions.

        Args:
            zero: A float64 0 on the device.
            free: The `id` of `Batch.rows` of minibatches that do not count.
        """
        masks: dict[float, list[Tensor]] = {}
        total = zero
        for weight, b in self.passes:
            if id(b.rows) in free:
                continue
            if b.mask is None:
                total = total + weight * b.rows.shape[-1]
            else:
                masks.setdefault(weight, []).append(b.mask)
        for weight, several in masks.items():
            total = total + weight * torch.cat(several, -1).sum(-1)
        return total

    def __call__(self, w: Params, b: Batch) -> Scalar:
        self.passes.append((FORWARD, b))
        return self._apply(self._loss, w, b)

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
        self.passes.append((1.0, b))
        self.gradient_calls += 1
        return self._apply(partial(self._grad, wrt=wrt, custom=loss and LossFn(loss, at)), w, b, *args)

    def hvp(self, w: Params, b: Batch, v: Params) -> Params:
        self.passes.append((SECOND, b))
        self.gradient_calls += 1
        return self._apply(self._hvp, w, b, v)

    def with_statistics(self, new: Part, w: Params, b: Batch, *, wrt: str | None = None) -> Part:
        if self.network.statistics is None:
            return new
        where = slice(None) if wrt is None else self.part(wrt)
        advanced = self._apply(self._advanced, w, b)
        return torch.where(self.entries("statistic")[where], advanced[where], new)

    def logits(self, w: Params, b: Batch) -> Tensor:
        self.passes.append((FORWARD, b))
        return self._apply(self._logits, w, b)

    def features(self, w: Params, b: Batch) -> Tensor:
        self.passes.append((FORWARD, b))
        return self._apply(self._features, w, b)

    # `StackedObjective` calls the functions below with a first axis of clients everywhere.

    def _apply(self, fn: Callable[..., Tensor], w: Tensor, b: Batch, *more: Tensor) -> Tensor:
        return fn(w, b, *more)

    def _losses(
        self, pieces: list[Tensor], b: Batch, custom: LossFn | None = None, args: tuple[Tensor, ...] = ()
    ) -> Tensor:
        """The client's loss; of a stack ["clients"]."""
        if custom is None:
            return F.cross_entropy(self.task.logits(pieces, b, b.key, True), b.labels)
        return custom.loss(self.task.outputs(custom.at, pieces, b), b.labels, b.mask, *args)

    def _loss(self, w: Tensor, b: Batch) -> Tensor:
        with torch.no_grad():
            return self._mean(b, lambda piece: self._losses([w], piece))

    def _grad(self, w: Tensor, b: Batch, *args: Tensor, wrt: str | None, custom: LossFn | None) -> Tensor:
        where = self.part(wrt) if wrt else None
        if custom is not None:
            return self._differentiated(w, b, where, custom, args)
        if self.network.gradient is not None and not self.task.bf16:
            return self._derived(w, b, wrt)
        return self._mean(b, lambda piece: self._differentiated(w, piece, where))

    def _hvp(self, w: Tensor, b: Batch, v: Tensor) -> Tensor:
        with torch.enable_grad():
            pieces, leaf = cut(w, None)
            (g,) = torch.autograd.grad(self._losses(pieces, b).sum(), leaf, create_graph=True)
            return torch.autograd.grad(g, leaf, v)[0]

    def _advanced(self, w: Tensor, b: Batch) -> Tensor:
        with torch.no_grad():
            return self.task.advanced(w, b)

    def _logits(self, w: Tensor, b: Batch) -> Tensor:
        with torch.no_grad():
            return self.task.logits([w], b)

    def _features(self, w: Tensor, b: Batch) -> Tensor:
        with torch.no_grad():
            return torch.cat([self.task.features([w], piece) for piece in self._pieces(b)])

    def _differentiated(
        self, w: Tensor, b: Batch, where: slice | None, custom: LossFn | None = None, args: tuple[Tensor, ...] = ()
    ) -> Tensor:
        with torch.enable_grad():
            pieces, leaf = cut(w, where)
            losses = self._losses(pieces, b, custom, args)
            return torch.autograd.grad(losses.sum() if losses.dim() else losses, leaf)[0]

    def _derived(self, w: Tensor, b: Batch, wrt: str | None) -> Tensor:
        network = self.network
        assert network.gradient is not None
        layout = network.layout.of(wrt)
        g = w.new_empty(layout.size)
        images = self.task.images(b, w.dtype)
        network.gradient(network.layout.views([w]), images, b.labels, layout.views([g]))
        return g

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
        if len(b.rows) <= PIECE or self.network.batchwise or b.key is not None:
            return [b]
        return [Batch(*some) for some in zip(torch.split(b.rows, PIECE), torch.split(b.labels, PIECE), strict=True)]


class StackedObjective(LoopObjective):
    """The same under `torch.vmap`: w and the batch's tensors carry a hidden leading axis of clients × seeds."""

    def _apply(self, fn: Callable[..., Tensor], w: Tensor, b: Batch, *more: Tensor) -> Tensor:
        """`fn` on the physical stack behind vmapped arguments."""
        count, others = len(more), () if b.context is None else b.context[:-1]

        def physical(w: Tensor, *tensors: Any) -> Tensor:
            rows, context = tensors[count : count + FIELDS], tensors[count + FIELDS :]
            return fn(w, Batch._make((*rows, Batch(*context) if context else None)), *tensors[:count])

        result: Tensor = _OnStack.apply(physical, w, *more, *b[:-1], *others)
        return result

    def _losses(
        self, pieces: list[Tensor], b: Batch, custom: LossFn | None = None, args: tuple[Tensor, ...] = ()
    ) -> Tensor:
        if custom is not None:
            outputs = self.task.outputs(custom.at, pieces, b)
            dims = (0, 0, None if b.mask is None else 0, *[0] * len(args))
            losses: Tensor = torch.vmap(custom.loss, in_dims=dims)(outputs, b.labels, b.mask, *args)
            return losses
        logits = self.task.logits(pieces, b, b.key, True)
        each = F.cross_entropy(logits.flatten(0, 1), b.labels.flatten(), reduction="none").view(b.labels.shape)
        if b.mask is None:
            return each.mean(1)
        return torch.where(b.mask, each, 0).sum(1) / b.mask.sum(1).clamp(min=1)

    def _grad(self, w: Tensor, b: Batch, *args: Tensor, wrt: str | None, custom: LossFn | None) -> Tensor:
        return self._differentiated(w, b, self.part(wrt) if wrt else None, custom, args)

    def _pieces(self, b: Batch) -> list[Batch]:
        return [b]


class _OnStack(torch.autograd.Function):
    """An opaque call with a batching rule; never differentiated through. Tensors may be None."""

    generate_vmap_rule = False

    @staticmethod
    def forward(fn: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
        return fn(*[None if t is None else t[None] for t in tensors])[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], fn: Callable[..., Tensor], *tensors: Tensor | None) -> Any:
        def stacked(t: Tensor | None, dim: int | None) -> Tensor | None:
            if t is None:
                return None
            return t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)

        return fn(*[stacked(t, dim) for t, dim in zip(tensors, in_dims[1:], strict=True)]), 0
