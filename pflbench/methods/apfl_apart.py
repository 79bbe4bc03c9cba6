"""APFL as PFLlib has it (d832e76; Deng et al. 2020, arXiv 2003.13461): two models, mixed once a round.

A client trains the global model w and its personal model v by SGD on the same minibatches, each along its own gradient,
and its weight alpha in every step; after the last one v becomes alpha v + (1 - alpha) w, which is scored.

Departures (PFLlib):
1. The gradient of v is taken at v (paper: at the mixture), and the mixture replaces v (paper: v stays).
2. Alpha is adapted in every step by FedTorch's rule, from the gradients before the step and the models after it, and
   goes on from round to round.
3. The suite sets the weights of the mean (paper: uniform).
4. Momentum and weight decay.
Special cases: `adaptive = false` with alpha = 1: v is trained by SGD alone; with alpha = 0 it is the sent model.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.base import SGD, Method, decayed, hyper, local_draw, steps

SHRINKAGE = 0.02
"""FedTorch's pull of alpha toward 0."""


class Client(NamedTuple):
    """The personal model, and its weight in the next mixture."""

    v: Any
    alpha: Any


@dataclass(frozen=True)
class APFLApart(Method):
    """A personal model beside the global one; after a round's training the two are mixed."""

    version: ClassVar[int] = 1
    personal_of = "training"
    alpha: float = hyper(1.0, "First weight of the personal model in the mixture.", least=0, most=1)
    adaptive: bool = hyper(True, "Each client adapts its alpha in every step.")
    epochs: int = hyper(1, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def init_client(self, server, new):
        return Client(server, server.new_tensor(self.alpha))

    def client(self, f, server, state, batches, *, round):
        by, decay = SGD(self.lr, self.momentum), f.decay(self.weight_decay, server)

        def step(carry, b):
            w, v, alpha, of_w, of_v = carry
            at_w, at_v = f.grad(w, b), f.grad(v, b)
            new_w, of_w = by.update(w, decayed(at_w, w, decay), of_w)
            new_v, of_v = by.update(v, decayed(at_v, v, decay), of_v)
            w, v = f.with_statistics(new_w, w, b), f.with_statistics(new_v, v, b)
            return w, v, adapted(alpha, v - w, at_v, at_w, self.lr) if self.adaptive else alpha, of_w, of_v

        start = server, state.v, state.alpha, by.init(server), by.init(state.v)
        w, v, alpha, _, _ = steps(step, start, batches)
        return w, Client(torch.lerp(w, v, alpha), alpha)

    def personal_model(self, f, server, state, *, round, upload=None):
        return state.v

    def diagnose(self, state):
        return {"alpha": state.alpha}


def adapted(alpha, between, of_v, of_w, lr):
    """FedTorch's next alpha. `between`: v - w; `of_v`, `of_w`: gradients at v (APFL: at the mixture) and at w."""
    slope = torch.dot(between, torch.lerp(of_w, of_v, alpha)) + SHRINKAGE * alpha
    return torch.clamp(alpha - lr * slope, 0, 1)
