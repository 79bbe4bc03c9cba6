"""Multilayer perceptrons, with a gradient derived by hand: on a CPU a small step is mostly autograd's bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.models.network import Gate, Network, linear_parameters, with_linear_head
from pflbench.models.ops import Ops


def mlp(shape: tuple[int, int, int], classes: int) -> Network:
    """One hidden layer of 100, ReLU: 79,510 parameters on 1×28×28 images with 10 classes (pFedVEM, Sec. 5.1)."""
    return perceptron(shape, classes, hidden=(100,))


def mlp3(shape: tuple[int, int, int], classes: int) -> Network:
    """Hidden layers of 512 and 256: 535,818 parameters on 1×28×28 images with 10 classes (FedEC: three layers).

    FedEC prints no widths: these are the first two of the released FedRep code's network of four layers.
    """
    return perceptron(shape, classes, hidden=(512, 256))


def mlp4(shape: tuple[int, int, int], classes: int) -> Network:
    """Hidden layers of 512, 256 and 64: 550,346 parameters on 1×28×28 images with 10 classes (FedRep's code)."""
    return perceptron(shape, classes, hidden=(512, 256, 64))


def mlp3_softmax(shape: tuple[int, int, int], classes: int) -> Network:
    """`mlp3` whose outputs are a softmax of its last layer, so that a loss applies a second one (FedRep's code)."""
    return _ending_in_softmax(mlp3(shape, classes))


def mlp4_softmax(shape: tuple[int, int, int], classes: int) -> Network:
    """`mlp4` whose outputs are a softmax of its last layer, as FedRep's code has it."""
    return _ending_in_softmax(mlp4(shape, classes))


def _ending_in_softmax(plain: Network) -> Network:
    def forward(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        return plain.forward(ops, p, x, gate).softmax(-1)

    # Its head is more than one linear layer, and its gradient is autograd's.
    return replace(plain, forward=forward, gradient=None, features=None, width=0)


def perceptron(shape: tuple[int, int, int], classes: int, *, hidden: tuple[int, ...]) -> Network:
    """Dense layers with ReLU on the flattened image. Parts: `base` (hidden layers) and `head` (the last layer)."""
    sizes = (shape[0] * shape[1] * shape[2], *hidden)
    layers = [*(f"base.dense{i}" for i in range(len(hidden))), "head.out"]
    base = [p for name, (a, b) in zip(layers[:-1], pairwise(sizes), strict=True) for p in linear_parameters(name, a, b)]

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = ops.flatten(ops.images(x))
        for name in layers[:-1]:
            h = ops.linear(h, p[f"{name}.weight"], p[f"{name}.bias"]).relu()
        return h

    def gradient(p: Mapping[str, Tensor], x: Tensor, labels: Tensor, g: Mapping[str, Tensor]) -> None:
        h = [x.flatten(1)]
        for name in layers[:-1]:
            h.append(torch.addmm(p[f"{name}.bias"], h[-1], p[f"{name}.weight"].t()).relu_())
        # The mean cross-entropy's derivative by the logits: softmax minus one-hot, over the batch's size.
        d = torch.addmm(p["head.out.bias"], h[-1], p["head.out.weight"].t()).softmax(1)
        d.sub_(F.one_hot(labels, classes)).div_(len(labels))
        for i, name in reversed(list(enumerate(layers))):
            if f"{name}.weight" in g:
                torch.mm(d.t(), h[i], out=g[f"{name}.weight"])
                torch.sum(d, 0, out=g[f"{name}.bias"])
            if not any(f"{below}.weight" in g for below in layers[:i]):
                return
            d = (d @ p[f"{name}.weight"]).mul_(h[i] > 0)

    return with_linear_head(base, features, sizes[-1], shape, classes, gradient)
