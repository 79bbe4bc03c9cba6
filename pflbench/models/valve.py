"""GPFL's valve: a scale and a shift of the features, made from a conditional input of the client's own."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pflbench.models.network import Gate, Network, linear_parameters
from pflbench.models.ops import Ops
from pflbench.vector import Parameter


def with_valve(base: Network) -> Network:
    """The network with a valve and its conditional input between features and head. Refuses dropout."""
    plain, width, maps = base.features, base.width, ("valve.gamma", "valve.beta")
    assert plain is not None, "the head is one linear layer"
    weight, bias = (p.name for p in base.parameters if p.part == "head")
    added = [
        *(p for name in maps for p in linear_parameters(name, width, width)),
        *(Parameter(f"{name}.scale", (width,), fill=1.0, role="normalization") for name in maps),
        *(Parameter(f"{name}.shift", (width,), role="normalization") for name in maps),
        Parameter("condition.input", (width,)),
    ]

    def valve(ops: Ops, p: dict[str, Tensor], name: str) -> Tensor:
        h = ops.context_linear(p["condition.input"], p[f"{name}.weight"], p[f"{name}.bias"]).relu()
        normal: Tensor = F.layer_norm(h, h.shape[-1:])
        return normal * p[f"{name}.scale"] + p[f"{name}.shift"]

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h, (gamma, beta) = plain(ops, p, x, gate), (valve(ops, p, name) for name in maps)
        return ((1 + ops.over(h, gamma)) * h + ops.over(h, beta)).relu()

    def forward(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        return ops.linear(features(ops, p, x, gate), p[weight], p[bias])

    return base.extended(tuple(added), forward, features)
