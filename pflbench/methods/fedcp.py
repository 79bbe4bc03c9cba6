"""FedCP (Zhang et al., KDD 2023, arXiv 2307.01217), as PFLlib has it: two heads share each row's features.

A policy, linear - layer normalization - ReLU - softmax over two halves, turns f * s / |s| into shares m of the features
f; s is the sum over classes of the personal head's weights. The logits are personal(m f) + received((1 - m) f), of the
personal head and the received one, which does not move. With a minibatch's features F, and F0 those of the received
base, the loss is CE + lam MMD(F, F0), whose kernel sums exp(-d² / 2a) of two rows' distance d over a = 10, 15, 20, 50.
Base, policy and the mean of both heads are sent and averaged.

Departures:
1. Scores are without the Gumbel noise that shares have in training (PFLlib: with).
2. s is that of the personal head when the local update starts (PFLlib: at first uniform random numbers); no gradient
   passes through it.
3. Personal heads start as copies of the initial head; the whole cohort keeps them, even if the upload is lost.
4. The suite sets the weights of the mean.
5. Networks with dropout are refused.
6. Momentum and weight decay.
Special cases: lam = 0, shares of 1 and a received head without bias: FedPer's local update; shares of 1/2 and two equal
heads: the plain network but for a second bias.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from pflbench.methods.base import SGD, Method, decayed, hyper, local_draw, train
from pflbench.methods.feddbe import matrix
from pflbench.models.policy import with_policy

BANDWIDTHS = 10, 15, 20, 50


@dataclass(frozen=True)
class FedCP(Method):
    """A shared base and policy; of each row's features the policy decides how much the personal head reads."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    needs_features = True
    trains_statistics = False
    lam: float = hyper(5.0, "Weight of the distance (MMD) from the received base's features.", least=0)
    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)

    def network(self, base):
        return with_policy(super().network(base))

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def init(self, new, clients):
        w = new()
        return torch.cat([w[: new.part("policy").stop], w[new.part("head")]])  # the received head is the initial one

    def init_client(self, server, new):
        return new()[new.part("head")]

    def client(self, f, server, state, batches, *, round):
        base, policy, head = f.part("base"), f.part("policy"), f.part("head")
        start = self.personal_model(f, server, state, round=round)
        decay, still = f.decay(self.weight_decay, start), torch.zeros_like(start[policy.stop : head.start])

        def grad(w, b):
            g = decayed(f.grad(w, b), w, decay)
            of_base = g[base]
            if self.lam:
                received = f.features(start, b)
                of_base = of_base + self.lam * f.grad(w, b, wrt="base", loss=mmd, at="features", args=(received,))
            # The received head and s do not move, though they are in the vector.
            return torch.cat([of_base, g[policy], still, g[head]])

        w, _ = train(f, start, batches, SGD(self.lr, self.momentum), grad=grad)
        heads = (w[head] + start[f.part("received")]) / 2
        return torch.cat([w[: policy.stop], heads]), w[head]

    def personal_model(self, f, server, state, *, round):
        return torch.cat([server, F.normalize(matrix(state, f.classes).sum(0), dim=0), state])


def mmd(z, labels, mask, received):
    """The maximum mean discrepancy of the real rows' features ["rows", "width"] from the received base's."""
    real = z.new_ones(len(z)) if mask is None else mask.to(z.dtype)
    pairs = torch.outer(real, real)
    kernels = kernel(z, z) + kernel(received, received) - 2 * kernel(z, received)
    return (pairs * kernels).sum() / pairs.sum().clamp(min=1)


def kernel(a, b):
    """Sums of Gaussian kernels of all pairs of rows over the bandwidths, ["rows", "rows"]."""
    squares = (a**2).sum(-1)[:, None] + (b**2).sum(-1) - 2 * a @ b.mT
    return torch.stack([torch.exp(-squares / (2 * width)) for width in BANDWIDTHS]).sum(0)
