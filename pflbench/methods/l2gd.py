"""L2GD (Hanzely & Richtárik 2020, arXiv 2002.05516, Algorithm 1), as in FedEC's table.

Every training client has a model x_i and takes part in every round. One coin decides for all: with probability p they
move toward their mean, else each trains alone, both at the rate a / (N (1 - p)).

Departures (released FedRep code, from which FedEC's protocol comes):
1. A local round is epochs of SGD with momentum, not one full-batch gradient step.
2. Averaging moves x_i by the factor a lambda / (N (1 - p)), the local rate times lambda (paper: a lambda / (N p)).
3. The mean is the plain one of all x_i before any of them moves (released code: counts the first client twice), for
   any weights of the suite; where uploads get lost, of those that arrived last.
The global model is that mean.
Special cases: lambda = 0: each client trains alone in the local rounds. A first averaging round moves nothing, as all
clients start from the seed's common model. Where the factor is 1, averaging makes all models the mean.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.base import SGD, Method, hyper, local_draw, train


class Server(NamedTuple):
    """The mean of all clients' models, and N."""

    mean: Any
    clients: Any


@dataclass(frozen=True)
class L2GD(Method):
    """Mostly averaging, sometimes local training: personal models around their mean."""

    version: ClassVar[int] = 1
    joins = "everyone"
    commits = "trained"
    personal_of = "training"
    epochs: int = hyper(5, "Local epochs of a local round.", least=0)
    steps: int | None = hyper(None, "Local steps of a local round, in place of epochs; none: epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    momentum: float | None = hyper(None, "Momentum of local SGD, from rest in each update; none: without.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights; none: without.", least=0)
    lam: float = hyper(0.5, "Strength lambda of the pull toward the mean.", least=0)
    p: float = hyper(0.9, "Probability that a round averages; the rate is a / (N (1 - p)).", least=0, below=1)
    a: float = hyper(
        0.1, "Scale of both rates, a / (N (1 - p)) and lambda times that (released FedRep code: 1).", least=0
    )

    def draws(self, round):
        return () if round.coin < self.p else (local_draw(self.epochs, self.steps, self.batch),)

    def init(self, new, clients):
        w = new()
        return Server(w, w.new_tensor(clients))

    def init_client(self, server, new):
        return server.mean

    def client(self, f, server, state, *batches, round):
        rate = self.a / (server.clients * (1 - self.p))
        if not batches:  # x <- x - rate lambda (x - mean)
            x = state - rate * self.lam * (state - server.mean)
            x = torch.where(f.entries("statistic"), state, x)
            return x, x
        # SGD on the client's loss. The rate is a tensor, as N is, so it scales the gradients.
        decay, by = f.decay(self.weight_decay, state), SGD(1.0, self.momentum)
        decay = None if decay is None else rate * decay
        x, _ = train(f, state, batches[0], by, grad=lambda x, b: rate * f.grad(x, b), decay=decay)
        return x, x

    def server(self, server, uploads, n, round):
        return Server(uploads.mean(0), server.clients)

    def deploy(self, f, server, support):
        return server.mean

    def personal_model(self, f, server, state, *, round, upload=None):
        return state
