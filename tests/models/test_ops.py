"""Convolutions and the normalization of single rows: torch's own for one client, the same numbers in every stack."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.models.ops import STACKS, Ops, Stacked

CLIENTS, ROWS, CHANNELS = 3, 4, 6
IMAGE = (CHANNELS, 7, 8)
Layer = Callable[[Ops, Tensor, Tensor, Tensor], Tensor]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def apart(ops: Stacked, stack: str, x: Tensor) -> Tensor:
    """What a layer made of a stack's images as ["clients", "batch", "channels", "height", "width"]."""
    return x.movedim(-1, 2) if stack == "columns" else x.unflatten(1, (ops.clients, -1)).transpose(0, 1)


def held(layer: Layer, expected: Callable[[Tensor, Tensor, Tensor], Tensor], x: Tensor, *more: Tensor) -> None:
    """A layer on every stack and on each client alone against torch's own, with its derivatives."""
    leaves = [t.requires_grad_() for t in (x, *more)]
    own = torch.stack([expected(*(t[i] for t in leaves)) for i in range(CLIENTS)])
    weight = numbers(*own.shape, seed=9)
    derived = torch.autograd.grad((own * weight).sum(), leaves)
    images = x.dim() == 5
    for i in range(CLIENTS):
        ops = Ops()
        close(layer(ops, ops.images(x[i]) if images else x[i], *(t[i] for t in more)), own[i])
    for stack, kind in STACKS.items():
        ops = kind(CLIENTS, None)
        out = layer(ops, ops.images(x) if images else x, *more)
        out = apart(ops, stack, out) if images else out
        close(out, own)
        for a, b in zip(torch.autograd.grad((out * weight).sum(), leaves), derived, strict=True):
            close(a, b)


@pytest.mark.parametrize("padding", [0, 1])
def test_convolutions(padding: int) -> None:
    weight, bias = numbers(CLIENTS, 5, CHANNELS, 3, 3, seed=1), numbers(CLIENTS, 5, seed=2)
    held(
        lambda ops, x, w, b: ops.conv(x, w, b, padding),
        lambda x, w, b: F.conv2d(x, w, b, padding=padding),
        numbers(CLIENTS, ROWS, *IMAGE),
        weight,
        bias,
    )


def test_layer_normalization() -> None:
    held(
        lambda ops, x, scale, shift: ops.layer_norm(x, scale, shift),
        lambda x, scale, shift: F.layer_norm(x, (CHANNELS,), scale, shift),
        numbers(CLIENTS, ROWS, CHANNELS),
        numbers(CLIENTS, CHANNELS, seed=1),
        numbers(CLIENTS, CHANNELS, seed=2),
    )
