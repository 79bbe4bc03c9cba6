"""FedCP (Zhang et al., KDD 2023, arXiv 2307.01217), as PFLlib has it: two heads share each row's features.

A policy, linear - layer normalization - ReLU - softmax over two halves, turns f * s / |s| into shares m of the features
f; s is the sum over classes of the weights of the client's own head. The logits are own(m f) + received((1 - m) f), of
the client's own head and the received one, which does not move. With the features F of a minibatch, and F0 those that
the received base makes of it, the loss is CE + lam MMD(F, F0). The kernel of the maximum mean discrepancy is the sum of
exp(-d² / 2a) over a in 10, 15, 20 and 50, of the distance d of two rows.

Base, policy and the mean of both heads are sent and averaged.

Departures:
1. Scores are without the Gumbel noise that shares have in training (PFLlib: with).
2. s is that of the own head when the local update begins, so at first of the initial head (PFLlib: at first uniform
   random numbers). No gradient passes through it.
3. Personal heads begin as copies of the initial head, and the whole cohort keeps its own, whether its upload arrives or
   not. The server's mean is weighted as the suite says.
4. Networks with dropout are refused. `momentum` and `weight_decay` are added.
Special cases: with lam = 0, shares of 1 and a received head without bias, FedPer's local update; with shares of 1/2 and
two equal heads, the plain network but for a second bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, decayed, descend, hyper
from pflbench.methods.feddbe import matrix
from pflbench.methods.fedper import Head, base_then_head
from pflbench.methods.local_sgd import LocalSGD
from pflbench.models.network import Network
from pflbench.models.policy import with_policy
from pflbench.typing import Float, Params, Part, Rows, Scalar, Tensor

BANDWIDTHS = 10, 15, 20, 50
Features = Float[Tensor, "rows width"]


@dataclass(frozen=True)
class FedCP(LocalSGD, Method[Part, Head, Part]):
    """A shared base and policy, which says of each row's features what the client's own head reads of them."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    needs_features = True
    lam: float = hyper(5.0, "Weight of the distance (MMD) from the received base's features.", least=0)

    def network(self, base: Network) -> Network:
        """The suite's with a policy between base and head, if it is a base and then a linear head without dropout."""
        return with_policy(base_then_head(super().network(base)))

    def init(self, new: Initializer, clients: int) -> Part:
        """Base, policy and a received head, which is the initial one."""
        w = new()
        return torch.cat([w[: new.part("policy").stop], w[new.part("head")]])

    def init_client(self, server: Part, new: Initializer) -> Head:
        return new()[new.part("head")]

    def client(self, f: Objective, server: Part, state: Head, *batches: Batches, round: Round) -> tuple[Part, Head]:
        base, policy, head = f.part("base"), f.part("policy"), f.part("head")
        start = self.personal_model(f, server, state, round=round)
        decay, still = f.decay(self.weight_decay, start), torch.zeros_like(start[policy.stop : head.start])

        def grad(w: Params, b: Batch) -> Params:
            g = decayed(f.grad(w, b), w, decay)
            of_base = g[base]
            if self.lam:
                received = f.features(start, b)
                pull = f.grad(w, b, wrt="base", loss=discrepancy, at="features", args=(received,))
                of_base = of_base + self.lam * pull
            # The received head and the context do not move, though they stand in the vector.
            return torch.cat([of_base, g[policy], still, g[head]])

        (passes,) = batches
        w = descend(grad, start, passes, self.local_optimizer(self.lr))
        heads = (w[head] + start[f.part("received")]) / 2
        return torch.cat([w[: policy.stop], heads]), w[head]

    def personal_model(self, f, server, state, *batches, round):
        direction = F.normalize(matrix(state, f.classes).sum(0), dim=0)
        return torch.cat([server, direction, state])


def discrepancy(features: Features, labels: Rows, mask: Tensor | None, received: Features) -> Scalar:
    """The maximum mean discrepancy of a minibatch's real rows' features from the received base's."""
    real = features.new_ones(len(features)) if mask is None else mask.to(features.dtype)
    pairs = torch.outer(real, real)
    kernels = kernel(features, features) + kernel(received, received) - 2 * kernel(features, received)
    return (pairs * kernels).sum() / pairs.sum().clamp(min=1)


def kernel(a: Features, b: Features) -> Float[Tensor, "rows rows"]:
    """Sums of Gaussian kernels of all pairs of rows, over the bandwidths."""
    squares = (a**2).sum(-1)[:, None] + (b**2).sum(-1) - 2 * a @ b.mT
    return torch.stack([torch.exp(-squares / (2 * width)) for width in BANDWIDTHS]).sum(0)
