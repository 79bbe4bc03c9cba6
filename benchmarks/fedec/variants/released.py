"""Baselines of FedEC's Table 2 as FedRep's released code trains them."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.apfl import APFL
from pflbench.methods.base import SGD, decayed, hyper, steps
from pflbench.methods.scaffold import Scaffold


@dataclass(frozen=True)
class ScaffoldReleased(Scaffold):
    """SCAFFOLD whose corrected gradients are clipped to a norm, before weight decay."""

    version: ClassVar[int] = 1
    clip: float = hyper(10.0, "Greatest norm of a corrected gradient.", above=0)

    def limited(self, g):
        return g / (torch.linalg.vector_norm(g) / self.clip).clamp(min=1)


@dataclass(frozen=True)
class APFLReleased(APFL):
    """APFL that trains v inside alpha v + alpha w, by one velocity for w and v; scored by the right mixture."""

    version: ClassVar[int] = 1

    def client(self, f, server, state, batches, *, round):
        decay, beta, alpha = f.decay(self.weight_decay, server), self.momentum or 0.0, self.alpha
        by = SGD(self.lr, beta)

        def step(carry, b):
            w, v, velocity = carry
            m = alpha * v + alpha * w
            at_w, at_m = decayed(f.grad(w, b), w, decay), decayed(f.grad(m, b), m, decay)
            new_w, velocity = by.update(w, at_w, velocity)
            velocity = torch.add(at_m, velocity, alpha=beta)
            new_v = torch.sub(v, velocity, alpha=self.lr * alpha)
            return f.with_statistics(new_w, w, b), f.with_statistics(new_v, m, b), velocity

        w, v, _ = steps(step, (server, state, by.init(server)), batches)
        return w, v
