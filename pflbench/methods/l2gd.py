"""L2GD (Hanzely & Richtárik 2020, arXiv 2002.05516, Algorithm 1), as FedEC's table uses it.

Every training client has a model x_i, all of them take part in every round, and one coin decides for all: with
probability p they move toward their mean, else each trains alone, both at the rate a / (N (1 - p)).

Departures (all from the released FedRep code, from which FedEC's protocol comes):
1. A local round is so many epochs of SGD with momentum, not one full-batch gradient step.
2. Averaging moves x_i by the factor a lambda / (N (1 - p)), the local rate times lambda (the paper: a lambda / (N p)).
3. The mean is the plain one of all x_i before any of them moves (the released code counts the first client twice; the
   paper's is the same), whatever weights the suite has; where uploads get lost, of those that arrived last.
The global model is that mean.
Special cases: lambda = 0: each client trains alone in the local rounds; a first averaging round moves nothing, as all
clients start from the seed's common model; where the factor is 1, averaging makes all models the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pflbench.methods.base import Batch, Batches, Draw, Initializer, Method, Objective, Round, Weights, descend, hyper
from pflbench.methods.local_sgd import LocalEpochs, Pull, SGDOptions
from pflbench.optim import SGD
from pflbench.typing import Float, Params, Scalar, Tensor


class L2GDServer(NamedTuple):
    """The mean of all clients' models, and N."""

    mean: Params
    clients: Scalar


@dataclass(frozen=True)
class L2GD(LocalEpochs, Pull, SGDOptions, Method[L2GDServer, Params, Params], lam=0.5):
    """Mostly averaging, sometimes local training: personal models around their mean.

    `epochs` are those of a local round; `lam` is the strength of the pull toward the mean.
    """

    version: ClassVar[int] = 1
    joins = "everyone"
    commits = "trained"
    personal_of = "training"
    p: float = hyper(0.9, "Probability that a round averages; the rate is a / (N (1 - p)).", least=0, below=1)
    a: float = hyper(
        0.1, "Scale of both rates, a / (N (1 - p)) and lambda times that (the released FedRep code: 1).", least=0
    )

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """Nothing in a round that averages; `epochs` passes in a local one."""
        assert round.coin is not None
        return () if round.coin < self.p else super().draws(round)

    def init(self, new: Initializer, clients: int) -> L2GDServer:
        """The seed's model is the mean of all."""
        w = new()
        return L2GDServer(w, w.new_tensor(clients))

    def init_client(self, server: L2GDServer, new: Initializer) -> Params:
        return server.mean

    def client(
        self, f: Objective, server: L2GDServer, state: Params, *batches: Batches, round: Round
    ) -> tuple[Params, Params]:
        """The new model is kept, and sent for the mean."""
        rate = self.a / (server.clients * (1 - self.p))
        if not batches:  # x <- x - rate lambda (x - mean)
            x = state - rate * self.lam * (state - server.mean)
            return x, x

        # SGD on the client's own loss. The rate is a tensor, as N is, so it scales the gradients.
        def scaled(x: Params, b: Batch) -> Params:
            return rate * f.grad(x, b)

        decay = f.decay(self.weight_decay, state)
        by = SGD(1.0, self.momentum)
        x = descend(scaled, state, batches[0], by, decay=None if decay is None else rate * decay)
        return x, x

    def server(
        self, server: L2GDServer, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round
    ) -> L2GDServer:
        """The plain mean, for the next round."""
        return L2GDServer(uploads.mean(0), server.clients)

    def deploy(self, f: Objective, server: L2GDServer, support: Batches) -> Params:
        return server.mean

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return state
        return state
