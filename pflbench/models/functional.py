"""Forward pass of a module on parameters out of a vector, for one client or for a stack of them.

Layers that see a batch are replaced: batch normalization of real rows, dropout with keys.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from pflbench import noise
from pflbench.models.network import Gate, Network
from pflbench.models.ops import Ops, Stacked


@dataclass
class Now:
    """Facts of the running forward pass that the layers of one module need, here for one client.

    `mask` ["batch"]: real rows, None for all; `key`: what dropout draws from, None in tests; `dropouts`: how many the
    pass went through so far.
    """

    mask: Tensor | None = None
    key: Tensor | None = None
    dropouts: int = 0


class BatchNorm(nn.Module):
    """Normalization by the statistics of a batch's real rows, in place of one with running statistics.

    One lone value per channel normalizes to the shift (PyTorch refuses it).
    """

    def __init__(self, like: _BatchNorm, now: Now):
        super().__init__()
        self.weight, self.bias, self.eps, self.now = like.weight, like.bias, like.eps, now

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x ["batch", "channels", …]. Raises ValueError where its rows are not the batch's."""
        mask = self.now.mask
        if mask is None and x.numel() > x.shape[1]:
            return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)
        if mask is not None and len(mask) != len(x):
            raise ValueError(f"batch normalization of {len(x)} rows, where the batch has {len(mask)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        tail = [1] * (x.dim() - 2)
        over, dims = (1, -1, *tail), (0, *range(2, x.dim()))
        real = (y.new_ones(len(x)) if mask is None else mask.to(y.dtype)).view(-1, 1, *tail)
        n = (real.sum() * x.shape[2:].numel()).clamp(min=1)
        center = y - (y * real).sum(dims, keepdim=True) / n
        variance = (center.square() * real).sum(dims, keepdim=True) / n
        y = center * (variance + self.eps).rsqrt()
        y = y if self.weight is None else y * self.weight.view(over)
        return (y if self.bias is None else y + self.bias.view(over)).to(x.dtype)


class Dropout(nn.Module):
    """Each entry 0 with this probability, the others divided by the rest of it; as they are in tests.

    What is dropped depends on the batch's key, the layer's place in the pass, the row's in the batch (which must be
    the first axis), and the entry alone.
    """

    def __init__(self, rate: float, now: Now):
        super().__init__()
        self.rate, self.now = rate, now

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries of x ["batch", …]."""
        place, self.now.dropouts = self.now.dropouts, self.now.dropouts + 1
        if self.now.key is None or self.rate == 0:
            return x
        wide = torch.promote_types(x.dtype, torch.float32)
        drawn = noise.uniform(self.now.key, ("dropout", place), x.numel(), wide).view(x.shape)
        return x * (drawn > self.rate) / max(1 - self.rate, 1e-9)


_FORMS = torch.backends.cuda
_SWITCHES: tuple[tuple[Callable[[], bool], Callable[[bool], None]], ...] = (
    (_FORMS.flash_sdp_enabled, _FORMS.enable_flash_sdp),
    (_FORMS.mem_efficient_sdp_enabled, _FORMS.enable_mem_efficient_sdp),
    (_FORMS.cudnn_sdp_enabled, _FORMS.enable_cudnn_sdp),
)
"""PyTorch's switches of the other forms of attention, on a CPU too: whether one is on, and what sets it."""


class _Plain:
    """Number of passes that need plain attention now, and the former switches, which all threads share.

    (`torch.nn.attention.sdpa_kernel` must be left by the thread that entered it.)
    """

    lock = threading.Lock()
    passes = 0
    before: tuple[bool, ...] = ()


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention by matrix products and a softmax: its other forms know neither stacks nor second derivatives."""
    with _Plain.lock:
        if _Plain.passes == 0:
            _Plain.before = tuple(enabled() for enabled, _ in _SWITCHES)
            _set((False,) * len(_SWITCHES))
        _Plain.passes += 1
    try:
        yield
    finally:
        with _Plain.lock:
            _Plain.passes -= 1
            if _Plain.passes == 0:
                _set(_Plain.before)


def _set(values: tuple[bool, ...]) -> None:
    for (_, switch), value in zip(_SWITCHES, values, strict=True):
        switch(value)


_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


class Lowered(TorchFunctionMode):
    """Convolutions in this type, for a stack under autocast: inside `torch.vmap` a CPU's does not reach them."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See `TorchFunctionMode`."""
        if func in _CONVOLUTIONS:
            args = [self._cast(x) for x in args]
            kwargs = {name: self._cast(x) for name, x in (kwargs or {}).items()}
        return func(*args, **(kwargs or {}))

    def _cast(self, x: Any) -> Any:
        return x.to(self.dtype) if isinstance(x, Tensor) and x.dtype == torch.float32 else x


class _PerThread(threading.local):
    """A module for each thread, with the same tensors: a pass puts its client's parameters in their place."""

    def __init__(self, module: nn.Module, now: Now):
        self.module, self.now = _copied(module, now)


class Pass:
    """A forward pass of a network: a module on the parameters of one client, or of a stack by `torch.vmap`.

    `names`: the parameters' in the module → in the network; `contiguous`: whether they, and images, lie in memory as
    the module's own would, for one that takes views of what it computes. Else convolutions are channels-last, which is
    faster; in a stack they never are, as PyTorch's adaptive pooling of channels-last images has no form for stacks.
    """

    def __init__(self, module: nn.Module, now: Now, names: Mapping[str, str], contiguous: bool):
        self.modules, self.names, self.contiguous = _PerThread(module, now), names, contiguous
        self.plain = dict(module.named_buffers())
        self.buffers: dict[tuple[torch.dtype, torch.device], dict[str, Tensor]] = {}

    def __call__(self, ops: Ops, p: dict[str, Tensor], x: Tensor, _: Gate) -> Tensor:
        """See `Forward`."""
        values = {n: p[named] for n, named in self.names.items()}
        if self.contiguous or isinstance(
            ops, Stacked
        ):  # in its strides, too: a channels-last one of one channel is contiguous
            values = {n: v.contiguous().view(-1).view(v.shape) for n, v in values.items()}
        if isinstance(ops, Stacked):
            dims = (0, 0, None if ops.mask is None else 0, None if ops.key is None else 0)
            device = x.device.type
            low = Lowered(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else nullcontext()
            with low:
                made: Tensor = torch.vmap(self._one, in_dims=dims)(values, x, ops.mask, ops.key)
            return made
        return self._one(values, x if self.contiguous else ops.images(x), None, ops.key)

    def _one(self, values: dict[str, Tensor], x: Tensor, mask: Tensor | None, key: Tensor | None) -> Tensor:
        now = self.modules.now
        now.mask, now.key, now.dropouts = mask, key, 0
        try:
            with plain_attention():
                made: Tensor = functional_call(self.modules.module, (values, self._constants(x)), (x,))
                return made
        finally:
            now.mask = now.key = None

    def _constants(self, x: Tensor) -> dict[str, Tensor]:
        """The module's buffers, as precise as the images and where they are."""
        like = x.dtype, x.device
        if like not in self.buffers:
            to = {n: b.to(x.device, x.dtype if b.is_floating_point() else b.dtype) for n, b in self.plain.items()}
            self.buffers[like] = to
        return self.buffers[like]


def _copied(module: nn.Module, now: Now) -> tuple[nn.Module, Now]:
    """A copy of a module that shares its tensors, and of what its layers see."""
    shared = {id(t): t for t in (*module.parameters(), *module.buffers())}
    return copy.deepcopy((module, now), shared)


def with_features(network: Network, features: Pass, head: Sequence[str]) -> Network:
    """The network as its features and a linear head, whose weight and bias have these names."""
    weight, bias = head

    def forward(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        return ops.linear(features(ops, p, x, gate), p[weight], p[bias])

    width = {p.name: p for p in network.parameters}[weight].shape[1]
    return replace(network, forward=forward, features=features, width=width)


def trunk(module: nn.Module, now: Now, head: str) -> tuple[nn.Module, Now]:
    """A module that returns what its head is given."""
    module, now = _copied(module, now)
    parent, _, name = head.rpartition(".")
    module.get_submodule(parent)._modules[name] = nn.Identity()
    return module, now
