"""APFL (Deng et al. 2020, arXiv 2003.13461, Algorithm 1), as in FedEC's table.

A client trains the global model w and, on the same minibatches, its model v inside the mixture
m = alpha v + (1 - alpha) w.

Departures:
1. alpha is fixed (paper: adapted), and rounds are epochs.
2. Momentum and weight decay are FedEC's: one empty memory for w and one for v in each round; the decay of v's step is
   taken at m.
3. The server's mean is plain, for any weights of the suite.
Special cases: alpha = 0: personal models are FedAvg's global one under uniform weights. alpha = 1: v is trained as by
SGD alone on the client's minibatches.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import SGD, Method, decayed, hyper, local_draw, steps


@dataclass(frozen=True)
class APFL(Method):
    """A personal model mixed with the global one, both trained at once."""

    version: ClassVar[int] = 1
    personal_of = "training"
    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs; none: epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD, from rest in each update; none: without.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights; none: without.", least=0)
    alpha: float = hyper(0.75, "Weight of the client's model in the mixture.", least=0, most=1)

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def init_client(self, server, new):
        return server

    def client(self, f, server, state, batches, *, round):
        decay, alpha = f.decay(self.weight_decay, server), self.alpha
        by_w, by_v = SGD(self.lr, self.momentum), SGD(self.lr * alpha, self.momentum)

        def step(carry, b):
            w, v, w_memory, v_memory = carry
            m = torch.lerp(w, v, alpha)
            at_w, at_m = decayed(f.grad(w, b), w, decay), decayed(f.grad(m, b), m, decay)
            new_w, w_memory = by_w.update(w, at_w, w_memory)
            new_v, v_memory = by_v.update(v, at_m, v_memory)
            return f.with_statistics(new_w, w, b), f.with_statistics(new_v, m, b), w_memory, v_memory

        w, v, _, _ = steps(step, (server, state, by_w.init(server), by_v.init(state)), batches)
        return w, v

    def server(self, server, uploads, n, round):
        return uploads.mean(0)

    def personal_model(self, f, server, state, *, round, upload=None):
        return torch.lerp(server if upload is None else upload, state, self.alpha)
