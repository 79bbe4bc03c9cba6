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
from typing import ClassVar, NamedTuple

import torch

from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Weights, decayed, hyper, steps
from pflbench.methods.local_sgd import LocalSGD, ServerRate
from pflbench.optim import SGD, State
from pflbench.typing import Float, Params, Scalar, Tensor


class ScaffoldServer(NamedTuple):
    """The model x, the server's control variate c, and N."""

    x: Params
    c: Params
    clients: Scalar


class ScaffoldUpload(NamedTuple):
    """Changes of the model and of the client's control variate."""

    model: Float[Tensor, "*cohort params"]
    control: Float[Tensor, "*cohort params"]


@dataclass(frozen=True)
class Scaffold(LocalSGD, ServerRate, Method[ScaffoldServer, Params, ScaffoldUpload]):
    """Local SGD with control variates against client drift."""

    version: ClassVar[int] = 1
    lr: float = hyper(1e-2, "Local learning rate.", above=0)
    clip: float | None = hyper(None, "Greatest norm of a corrected gradient, before weight decay; none: any.", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.epochs if self.steps is None else self.steps) < 1:
            raise UsageError(
                "Scaffold needs at least one epoch or step: its control variates are divided by the steps made."
            )

    def init(self, new: Initializer, clients: int) -> ScaffoldServer:
        """The seed's model, and a control variate of 0."""
        x = new()
        return ScaffoldServer(x, torch.zeros_like(x), x.new_tensor(clients))

    def init_client(self, server: ScaffoldServer, new: Initializer) -> Params:
        return torch.zeros_like(server.x)

    def client(
        self, f: Objective, server: ScaffoldServer, state: Params, *batches: Batches, round: Round
    ) -> tuple[ScaffoldUpload, Params]:
        correction, decay, by = server.c - state, f.decay(self.weight_decay, server.x), SGD(self.lr, self.momentum)

        # y descends along grad f(y) - c_i + c. Steps are counted in the carry, so that padded ones do not count.
        def local(carry: tuple[Params, State, Scalar], b: Batch) -> tuple[Params, State, Scalar]:
            y, velocity, made = carry
            g = decayed(self._clipped(f.grad(y, b) + correction), y, decay)
            return *by.update(y, g, velocity), made + 1

        y, _, made = steps(local, (server.x, by.init(server.x), server.x.new_zeros(())), *batches)
        # Option II: c_i <- c_i - c + (x - y) / (K lr)
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
