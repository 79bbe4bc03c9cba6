"""APFL (Deng et al. 2020, arXiv 2003.13461, Algorithm 1), as FedEC's table uses it.

A client trains the global model w and, on the same minibatches, its own model v inside the mixture
m = alpha v + (1 - alpha) w.

Departures:
1. alpha is fixed (the paper adapts it), and rounds are epochs. `adaptive`: it is adapted as in FedTorch, the code of
   APFL's authors. In the first step of a client's local update, alpha - lr (<v - w, alpha g(m) + (1 - alpha) g(w)> +
   0.02 alpha), clipped to [0, 1], takes alpha's place, from that step's two gradients without weight decay and the v, w
   and alpha before it; the steps after it, the client's scores and its next local updates have the new one. FedTorch
   mixes the two models' outputs; here, as elsewhere, their parameters are mixed.
2. Momentum and weight decay are none of the paper's: fresh buffers in each round, one for w, one for v; the decay of
   v's step is taken at m.
3. The server's mean is the plain one, whatever weights the suite has.
4. `released`: as the released FedRep code trains, m = alpha v + alpha w, and the steps of w and v share one momentum
   buffer, w first. Models are scored by the right mixture there, too.
5. `private_init`: a client that never took part has v = w, the server's (the released FedRep code, by accident: see
   `partly_shared`).
Special cases: alpha = 0: the personal models are FedAvg's global one under uniform weights; alpha = 1: v is trained as
by SGD alone on the client's minibatches. `adaptive` at a rate of 0 leaves alpha as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from pflbench.methods.base import (
    Batch,
    Batches,
    Empty,
    Initializer,
    Method,
    Objective,
    Round,
    Weights,
    decayed,
    hyper,
    steps,
)
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.partly_shared import Private, PrivateStart, kept, own
from pflbench.optim import SGD
from pflbench.typing import Float, Params, Scalar, Tensor

SHRINKAGE = 0.02
"""FedTorch's pull of alpha toward 0."""


class Mixed(NamedTuple):
    """A client's own model, and the weight that it has in the client's mixture."""

    own: Private
    alpha: Scalar


State = Private | Mixed
Weight = float | Scalar
Carry = tuple[Params, Params, Params, Params, Scalar | Empty]
"""w and v, the velocity of each, and alpha where it is the client's."""


def adapted(alpha: Scalar, between: Params, of_v: Params, of_w: Params, lr: float) -> Scalar:
    """FedTorch's next alpha. `between`: v - w; `of_v`, `of_w`: the gradients that their steps follow."""
    slope = torch.dot(between, torch.lerp(of_w, of_v, alpha)) + SHRINKAGE * alpha
    return torch.clamp(alpha - lr * slope, 0, 1)


@dataclass(frozen=True)
class APFL(LocalSGD, PrivateStart, Method[Params, State, Params]):
    """A personal model mixed with the global one, both trained at once."""

    version: ClassVar[int] = 1
    personal_of = "training"
    alpha: float = hyper(0.75, "Weight of the client's own model in the mixture.", least=0, most=1)
    released: bool | None = hyper(None, "Train as the released FedRep code does.")
    adaptive: bool | None = hyper(None, "Whether each client adapts its alpha, by FedTorch's rule.")

    def init_client(self, server: Params, new: Initializer) -> State:
        """The client's model v is the common initial one."""
        v = self.unseen(server)
        return Mixed(v, server.new_tensor(self.alpha)) if self.adaptive else v

    def client(
        self, f: Objective, server: Params, state: State, *batches: Batches, round: Round
    ) -> tuple[Params, State]:
        """SGD on w alone and on v inside the mixture, side by side; w is sent, v is kept."""
        decay, beta = f.decay(self.weight_decay, server), self.momentum or 0.0
        by = SGD(self.lr, beta)

        def step(carry: Carry, b: Batch, i: int) -> Carry:
            w, v, velocity, of_v, held = carry
            alpha = held if isinstance(held, Tensor) else self.alpha
            m = alpha * v + alpha * w if self.released else torch.lerp(w, v, alpha)
            g, of_m = f.grad(w, b), f.grad(m, b)
            then = adapted(held, v - w, of_m, g, self.lr) if isinstance(held, Tensor) and i == 0 else held
            moved, velocity = by.update(w, decayed(g, w, decay), velocity)
            of_v = torch.add(decayed(of_m, m, decay), velocity if self.released else of_v, alpha=beta)
            return moved, self.stepped(v, of_v, alpha), of_v if self.released else velocity, of_v, then

        rest, mine, (taken,) = torch.zeros_like(server), self.mine(state), batches
        start = server, own(mine, server), rest, rest, state.alpha if isinstance(state, Mixed) else ()
        w, v, _, _, alpha = steps(step, start, taken, range(len(taken)))
        return w, Mixed(kept(mine, v), alpha) if isinstance(alpha, Tensor) else kept(mine, v)

    def stepped(self, v: Params, velocity: Params, alpha: Weight) -> Params:
        """The client's model v after a step of alpha times the rate."""
        if isinstance(alpha, Tensor):
            return torch.addcmul(v, velocity, alpha, value=-self.lr)
        return torch.sub(v, velocity, alpha=self.lr * alpha)

    def mine(self, state: State) -> Private:
        """The client's own model, as it is kept."""
        return state.own if isinstance(state, Mixed) else state

    def server(self, server: Params, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Params:
        return uploads.mean(0)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        """The mixture of the client's model and the new global one."""
        if upload is not None:
            return self.mixture(state, upload)
        return self.mixture(state, server)

    def mixture(self, state: State, w: Params) -> Params:
        """Alpha v + (1 - alpha) w."""
        return torch.lerp(w, own(self.mine(state), w), state.alpha if isinstance(state, Mixed) else self.alpha)

    def diagnose(self, state: State) -> dict[str, Scalar]:
        """The client's alpha, where it is its own."""
        return {"alpha": state.alpha} if isinstance(state, Mixed) else {}
