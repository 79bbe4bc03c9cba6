"""A module's forward pass on parameters out of a vector, for one client or for a stack of them."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pflbench.models.layers import Lowered, Now, plain_attention
from pflbench.models.network import Gate, Network
from pflbench.models.ops import Ops, Stacked


class _Own(threading.local):
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
        self.own, self.names, self.contiguous = _Own(module, now), names, contiguous
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
        now = self.own.now
        now.mask, now.key, now.dropouts = mask, key, 0
        try:
            with plain_attention():
                made: Tensor = functional_call(self.own.module, (values, self._constants(x)), (x,))
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
