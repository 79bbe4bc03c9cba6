"""SCAFFOLD (Karimireddy et al., ICML 2020, arXiv 1910.06378, Algorithm 1, option II).

Departures:
1. A client's K counts its steps, which differ between clients as their numbers of minibatches do (paper: one K).
2. N counts the training clients. Means are plain, as in the paper, for any weights of the suite.
3. With `momentum` and `weight_decay` (FedRep's released code), control variates are no longer means of gradients: the
   steps are divided by K times the learning rate.
4. Only clients with an arrived upload replace their control variates, so that the server's stays the mean of all.
Special cases: one client and a server step of 1: plain SGD. The clients' control variates always sum to N times the
server's.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.base import SGD, Method, UsageError, hyper, local_draw, mean_statistics, steps, train


class Server(NamedTuple):
    """The model x, the server's control variate c, and N."""

    x: Any
    c: Any
    clients: Any


class Upload(NamedTuple):
    """Changes of the model and of the client's control variate."""

    model: Any
    control: Any


@dataclass(frozen=True)
class Scaffold(Method):
    """Local SGD with control variates against client drift."""

    version: ClassVar[int] = 1
    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs; none: epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-2, "Local learning rate.", above=0)
    momentum: float | None = hyper(None, "Momentum of local SGD, from rest in each update; none: without.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights; none: without.", least=0)
    server_lr: float = hyper(1.0, "The server's step along the mean change of the models.", least=0)

    def __post_init__(self):
        super().__post_init__()
        if (self.epochs if self.steps is None else self.steps) < 1:
            raise UsageError("Scaffold needs at least one epoch or step: control variates are divided by the steps.")

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def init(self, new, clients):
        x = new()
        return Server(x, torch.zeros_like(x), x.new_tensor(clients))

    def init_client(self, server, new):
        return torch.zeros_like(server.x)

    def client(self, f, server, state, batches, *, round):
        correction = server.c - state

        def corrected(y, b):  # grad f(y) - c_i + c
            return self.limited(f.grad(y, b) + correction)

        by, decay = SGD(self.lr, self.momentum), f.decay(self.weight_decay, server.x)
        y, _ = train(f, server.x, batches, by, grad=corrected, decay=decay)
        made = steps(lambda made, b: made + 1, server.x.new_zeros(()), batches)  # padded steps do not count
        # Option II: c_i <- c_i - c + (x - y) / (K lr)
        control = (server.x - y) / (made * self.lr) - correction
        return Upload(y - server.x, control - state), control

    def limited(self, g):
        """A corrected gradient as the steps use it, before weight decay."""
        return g

    def server(self, server, uploads, n, round):
        change = uploads.model.mean(0)
        x = mean_statistics(server.x + self.server_lr * change, server.x + change, round)
        return Server(x, server.c + uploads.control.sum(0) / server.clients, server.clients)

    def deploy(self, f, server, support):
        return server.x
