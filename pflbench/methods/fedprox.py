"""FedProx (Li et al., MLSys 2020, arXiv 1812.06127, Algorithm 2).

Departures:
1. Clients solve the local problem by the suite's number of epochs, not to an inexactness gamma.
2. The suite sets the weights of the server's mean (paper: uniform, of clients sampled by their size).
Special cases: mu = 0 is FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import hyper
from pflbench.methods.fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients are pulled back to the global model that they received."""

    version: ClassVar[int] = 1
    mu: float = hyper(0.1, "Strength of the pull.", least=0)

    def client(self, f, server, state, batches, *, round):
        def pulled(w, b):  # the gradient of f(w) + mu/2 |w - server|²
            return f.grad(w, b) + self.mu * (w - server)

        return self.trained(f, server, batches, grad=pulled), state
