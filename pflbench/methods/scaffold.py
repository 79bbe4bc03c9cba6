"""SCAFFOLD (Karimireddy et al., ICML 2020, arXiv 1910.06378, Algorithm 1, option II).

Departures:
1. A client's K counts the steps it makes, which differ between clients as their numbers of minibatches do (the paper
   has one K for all).
2. N counts the training clients.
3. `momentum`, `weight_decay` and `clip` are none of the paper's: with them, as in the released FedRep code, momentum is
   over the corrected gradient, clipped to a norm and then decayed; what the steps are divided by stays K times the
   learning rate, so that control variates are no longer means of gradients.
The server's means are plain ones, as in the paper, whatever weights the suite has; and only clients whose uploads
arrive replace their control variates, so that the server's stays the mean of all clients'.
Special cases: with one client and a server step of 1, plain SGD; the clients' control variates always sum to N times
the server's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Initializer, Objective, Round, Weights, decayed, steps
from pflbench.methods.local_sgd import LocalSGD
from pflbench.optim import momentum, sgd
from pflbench.typing import Float, Params, Scalar, Tensor


class ScaffoldServer(NamedTuple):
    """The model x, the server's control variate c, and N."""

    x: Params
    c: Params
    clients: Scalar


class ScaffoldUpload(NamedTuple):
    """How far the model and the client's control variate went."""

    model: Float[Tensor, "*cohort params"]
    control: Float[Tensor, "*cohort params"]


Velocity = Any
"""A velocity, or () without momentum."""


@dataclass(frozen=True)
class Scaffold(LocalSGD[ScaffoldServer, Params, ScaffoldUpload]):
    """Local SGD with control variates against client drift."""

    version: ClassVar[int] = 1
    lr: float = 1e-2
    """Local learning rate (SGD)."""
    server_lr: float = 1.0
    """The server's step along the mean update."""
    weight_decay: float | None = None
    """Weight decay of the layers' weights (not of biases and normalizations); none: without."""
    clip: float | None = None
    """Greatest norm of a corrected gradient, before weight decay; none: any."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"Scaffold: clip must be greater than 0, not {self.clip}.")
        if self.epochs < 1:
            raise UsageError("Scaffold needs at least one epoch: its control variates are divided by the steps made.")

    def init(self, new: Initializer, clients: int) -> ScaffoldServer:
        """The seed's model, and a control variate of 0."""
        x = new()
        return ScaffoldServer(x, torch.zeros_like(x), x.new_tensor(clients))

    def init_client(self, server: ScaffoldServer, new: Initializer) -> Params:
        return torch.zeros_like(server.x)

    def client(
        self, f: Objective, server: ScaffoldServer, state: Params, *taken: Batches, round: Round
    ) -> tuple[ScaffoldUpload, Params]:
        """Corrected SGD from x; the new control variate is the mean of the gradients on the way."""
        (batches,) = taken
        correction = server.c - state

        decay = f.decay(self.weight_decay, server.x)

        def local(carry: tuple[Params, Velocity, Scalar], b: Batch) -> tuple[Params, Velocity, Scalar]:
            y, velocity, made = carry  # counted in the carry, so that padded steps do not count
            g = decayed(self._clipped(f.grad(y, b) + correction), y, decay)
            if self.momentum is None:
                return sgd(y, g, lr=self.lr), velocity, made + 1
            return *momentum(y, g, velocity, lr=self.lr, beta=self.momentum), made + 1

        start = (server.x, () if self.momentum is None else torch.zeros_like(server.x), server.x.new_zeros(()))
        y, _, made = steps(local, start, batches)
        control = (server.x - y) / (made * self.lr) - correction
        return ScaffoldUpload(y - server.x, control - state), control

    def server(self, server: ScaffoldServer, uploads: ScaffoldUpload, n: Weights, round: Round) -> ScaffoldServer:
        """Plain means: of the models over the cohort, of the control variates over all N clients."""
        x = server.x + self.server_lr * uploads.model.mean(0)
        return ScaffoldServer(x, server.c + uploads.control.sum(0) / server.clients, server.clients)

    def deploy(self, f: Objective, server: ScaffoldServer, support: Batches) -> Params:
        return server.x

    def _clipped(self, g: Params) -> Params:
        return g if self.clip is None else g / (torch.linalg.vector_norm(g) / self.clip).clamp(min=1)
