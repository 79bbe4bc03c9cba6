"""APFL (Deng et al. 2020, arXiv 2003.13461, Algorithm 1), as FedEC's table uses it.

A client trains the global model w and, on the same minibatches, its own model v inside the mixture
m = alpha v + (1 - alpha) w.

Departures:
1. alpha is fixed (the paper adapts it), and rounds are epochs.
2. Momentum and weight decay are none of the paper's: fresh buffers in each round, one for w, one for v; the decay of
   v's step is taken at m.
3. The server's mean is the plain one, whatever weights the suite has.
4. `released`: as the released FedRep code trains, m = alpha v + alpha w, and the steps of w and v share one momentum
   buffer, w first. Models are scored by the right mixture there, too.
5. `private_init`: a client that never took part has v = w, the server's (the released FedRep code, by accident: see
   `partly_shared`).
Special cases: alpha = 0: the personal models are FedAvg's global one under uniform weights; alpha = 1: v is trained as
by SGD alone on the client's minibatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Weights, decayed, hyper, steps
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.partly_shared import Private, PrivateStart, kept, own
from pflbench.optim import SGD
from pflbench.typing import Float, Params, Tensor

Carry = tuple[Params, Params, Params, Params]
"""w and v, and the velocity of each."""


@dataclass(frozen=True)
class APFL(LocalSGD, PrivateStart, Method[Params, Private, Params]):
    """A personal model mixed with the global one, both trained at once."""

    version: ClassVar[int] = 1
    personal_of = "training"
    alpha: float = hyper(0.75, "Weight of the client's own model in the mixture.", least=0, most=1)
    released: bool | None = hyper(None, "Train as the released FedRep code does.")

    def init_client(self, server: Params, new: Initializer) -> Private:
        """The client's model v is the common initial one."""
        return self.unseen(server)

    def client(
        self, f: Objective, server: Params, state: Private, *batches: Batches, round: Round
    ) -> tuple[Params, Private]:
        """SGD on w alone and on v inside the mixture, side by side; w is sent, v is kept."""
        decay, beta = f.decay(self.weight_decay, server), self.momentum or 0.0
        by, of_mixture = SGD(self.lr, beta), SGD(self.lr * self.alpha, beta)

        def step(carry: Carry, b: Batch) -> Carry:
            w, v, velocity, of_v = carry
            m = self.alpha * v + self.alpha * w if self.released else self.mixture(v, w)
            g, of_m = decayed(f.grad(w, b), w, decay), decayed(f.grad(m, b), m, decay)
            w, velocity = by.update(w, g, velocity)
            v, of_v = of_mixture.update(v, of_m, velocity if self.released else of_v)
            return w, v, of_v if self.released else velocity, of_v

        rest = torch.zeros_like(server)
        w, v, _, _ = steps(step, (server, own(state, server), rest, rest), *batches)
        return w, kept(state, v)

    def server(self, server: Params, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Params:
        return uploads.mean(0)

    def local_model(self, upload: Params, state: Private) -> Params:
        """The mixture of both models as the client's last local update left them."""
        return self.mixture(own(state, upload), upload)

    def personalize(self, f: Objective, server: Params, state: Private, *batches: Batches, round: Round) -> Params:
        """The mixture of the client's model and the new global one."""
        return self.mixture(own(state, server), server)

    def mixture(self, v: Params, w: Params) -> Params:
        """Alpha v + (1 - alpha) w."""
        return torch.lerp(w, v, self.alpha)
