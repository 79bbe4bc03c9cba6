"""FedProx (Li et al., MLSys 2020, arXiv 1812.06127, Algorithm 2).

Departures:
1. The local problem is solved by a fixed number of SGD epochs for every client, not to a chosen inexactness gamma.
2. The server's mean is weighted as the suite says (the paper: a uniform mean of clients sampled by their size).
3. `momentum` and `weight_decay` are none of the paper's (pFedVEM's tables); the proximal term is part of the gradient
   that momentum gathers.
Special cases: mu = 0 = FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import Batch, Batches, Empty, Method, Objective, Round, hyper
from pflbench.methods.local_sgd import LocalSGD
from pflbench.typing import Params


@dataclass(frozen=True)
class FedProx(LocalSGD, Method[Params, Empty, Params]):
    """Federated averaging whose clients are pulled back to the global model they received."""

    version: ClassVar[int] = 1
    mu: float = hyper(0.1, "Strength of the pull.", least=0)

    def client(
        self, f: Objective, server: Params, state: Empty, *batches: Batches, round: Round
    ) -> tuple[Params, Empty]:
        # The gradient of f(w) + mu/2 |w - server|².
        def pulled(w: Params, b: Batch) -> Params:
            return f.grad(w, b) + self.mu * (w - server)

        return self.sgd(f, server, *batches, lr=self.lr, grad=pulled), state
