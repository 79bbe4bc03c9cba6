"""SCAFFOLD (Karimireddy et al. 2020, Algorithm 1, option II), as a user of pflbench would write it.

Departures: none; minibatches are the suite's, and N counts the training clients.
Special cases: with one client, plain SGD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Take, mean, steps


class Server(NamedTuple):
    """The model x, the server's control variate c, and N."""

    x: Tensor
    c: Tensor
    clients: Tensor


class Upload(NamedTuple):
    """How far the model and the client's control variate went."""

    model: Tensor
    control: Tensor


@dataclass(frozen=True)
class Scaffold(Method[Server, Tensor, Upload]):
    """Local SGD with control variates against client drift."""

    epochs: int = 2
    """Local epochs per participation."""
    lr: float = 0.01
    """Local learning rate (plain SGD)."""
    server_lr: float = 1.0
    """The server's step along the mean update."""

    def takes(self) -> tuple[Take, ...]:
        return (Take(epochs=self.epochs),)

    def init(self, new: Initializer, clients: int) -> Server:
        x = new()
        return Server(x, torch.zeros_like(x), x.new_tensor(clients))

    def init_client(self, server: Server, new: Initializer) -> Tensor:
        return torch.zeros_like(server.x)

    def client(
        self, f: Objective, server: Server, state: Tensor, *taken: Batches, round: Round
    ) -> tuple[Upload, Tensor]:
        (batches,) = taken

        def local(carry: tuple[Tensor, Tensor], b: Batch) -> tuple[Tensor, Tensor]:
            y, made = carry  # `made` is part of the carry, so that padded steps do not count
            return y - self.lr * (f.grad(y, b) - state + server.c), made + 1

        y, made = steps(local, (server.x, server.x.new_zeros(())), batches)
        control = state - server.c + (server.x - y) / (made * self.lr)
        return Upload(y - server.x, control - state), control

    def server(self, server: Server, uploads: Upload, n: Tensor, round: Round) -> Server:
        share = len(n) / server.clients
        return Server(
            server.x + self.server_lr * mean(uploads.model, n),
            server.c + share * uploads.control.mean(0),
            server.clients,
        )

    def deploy(self, f: Objective, server: Server, support: Batches) -> Tensor:
        return server.x
