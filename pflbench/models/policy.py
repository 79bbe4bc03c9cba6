"""FedCP's conditional policy: it shares out the features of each row between a client's head and the received one."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pflbench.models.network import Gate, Network, linear_parameters
from pflbench.models.ops import Ops
from pflbench.vector import Parameter


def with_policy(base: Network) -> Network:
    """The network with a policy, a received head and a context between base and head. Refuses dropout.

    The policy's shares have Gumbel noise in training, which depends on the minibatch's key.
    """
    plain, width, classes = base.features, base.width, base.classes
    assert plain is not None, "the head is one linear layer"
    weight, bias = (p.name for p in base.parameters if p.part == "head")
    added = (
        *linear_parameters("policy.linear", width, 2 * width),
        Parameter("policy.scale", (2 * width,), fill=1.0, role="normalization"),
        Parameter("policy.shift", (2 * width,), role="normalization"),
        Parameter("received.weight", (classes, width)),
        Parameter("received.bias", (classes,)),
        Parameter("context.direction", (width,)),
    )

    def forward(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        f = plain(ops, p, x, gate)
        z = f * ops.over(f, p["context.direction"])
        z = ops.linear(z, p["policy.linear.weight"], p["policy.linear.bias"])
        own, others = ops.layer_norm(z, p["policy.scale"], p["policy.shift"]).relu().chunk(2, -1)
        gap = (own - others).to(torch.promote_types(z.dtype, torch.float32))
        drawn = ops.uniform(gap, "policy")
        # A softmax over both with Gumbel noise: two Gumbel numbers differ by a logistic one. In float32 one in 2^24
        # is infinite; its share is 1 and has no gradient.
        share = torch.sigmoid(gap if drawn is None else gap + drawn.logit())
        return ops.linear(share * f, p[weight], p[bias]) + ops.linear(
            (1 - share) * f, p["received.weight"], p["received.bias"]
        )

    return replace(base.extended(added, forward, plain), drops=True)
