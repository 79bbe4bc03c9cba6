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

from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Initializer, Method, Objective, Round, Take, Weights, descend
from pflbench.typing import Float, Params, Scalar, Tensor


class L2GDServer(NamedTuple):
    """The mean of all clients' models, and N."""

    mean: Params
    clients: Scalar


@dataclass(frozen=True)
class L2GD(Method[L2GDServer, Params, Params]):
    """Mostly averaging, sometimes local training: personal models around their mean."""

    version: ClassVar[int] = 1
    trains = "everyone"
    asks = "everyone"
    personal_from = "training"
    personal_of = "training"
    p: float = 0.9
    """Probability that a round averages."""
    a: float = 0.1
    """Scale of both rates, a / (N (1 - p)) and lambda times that (the released FedRep code: 1, for 100 clients)."""
    lam: float = 0.5
    """Strength lambda of the pull toward the mean."""
    epochs: int = 5
    """Epochs of a local round."""
    momentum: float | None = None
    """Momentum of the local SGD, fresh in each round; none: without."""
    weight_decay: float | None = None
    """Weight decay of the layers' weights (not of biases and normalizations); none: without."""
    batch: int | None = None
    """Examples per minibatch; none: the suite's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.p < 1:
            raise UsageError(f"L2GD: p must be at least 0 and less than 1, not {self.p}: its rate is a / (N (1 - p)).")
        for name, value in (("a", self.a), ("lam", self.lam)):
            if value < 0:
                raise UsageError(f"L2GD: {name} must be at least 0, not {value}.")

    def phase(self, coin: float) -> str:
        """Averaging with probability p, else local."""
        return "averaging" if coin < self.p else "local"

    def takes(self) -> tuple[Take, ...]:
        """`epochs` passes in a local round."""
        return (Take(epochs=self.epochs, batch=self.batch, phase="local"),)

    def init(self, new: Initializer, clients: int) -> L2GDServer:
        """The seed's model is the mean of all."""
        w = new()
        return L2GDServer(w, w.new_tensor(clients))

    def init_client(self, server: L2GDServer, new: Initializer) -> Params:
        return server.mean

    def client(
        self, f: Objective, server: L2GDServer, state: Params, *taken: Batches, round: Round
    ) -> tuple[Params, Params]:
        """A step toward the mean, or SGD on the client's own loss; the new model is kept, and sent for the mean."""
        rate = self.a / (server.clients * (1 - self.p))
        if round.phase == "averaging":
            x = state - rate * self.lam * (state - server.mean)
            return x, x
        (batches,) = taken
        # The rate is a tensor, as N is, so it scales the gradients.
        decay = f.decay(self.weight_decay, state)
        decay = None if decay is None else rate * decay
        x = descend(lambda x, b: rate * f.grad(x, b), state, batches, lr=1.0, beta=self.momentum, decay=decay)
        return x, x

    def server(
        self, server: L2GDServer, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round
    ) -> L2GDServer:
        """The plain mean, for the next round."""
        return L2GDServer(uploads.mean(0), server.clients)

    def deploy(self, f: Objective, server: L2GDServer, support: Batches) -> Params:
        return server.mean

    def adapts(self) -> tuple[Take, ...]:
        return ()

    def personalize(
        self, f: Objective, server: L2GDServer, state: Params, sent: Params | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        return {"personalized": state}

    def trained(self, sent: Params, state: Params) -> Params:
        return state
