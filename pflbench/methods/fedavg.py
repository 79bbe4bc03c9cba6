"""FedAvg (McMahan et al. 2017, Algorithm 1).

Departures: the server's mean is weighted as the suite says (CAFeMe's tables: uniform), minibatches are static
(CAFeMe's code); "epochs" are passes over a client's minibatches.
Special cases: with one client and one step, plain SGD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import Batches, Method, Objective, Round, Take, steps
from pflbench.optim import sgd
from pflbench.typing import Params


@dataclass(frozen=True)
class FedAvg(Method[Params, tuple[()], Params]):
    """Federated averaging: local SGD epochs from the global model, then a mean."""

    version: ClassVar[int] = 1
    epochs: int = 5
    """Local epochs per participation."""
    lr: float = 1e-3
    """Local learning rate (plain SGD)."""

    def takes(self) -> tuple[Take, ...]:
        """`epochs` passes."""
        return (Take(epochs=self.epochs),)

    def client(
        self, f: Objective, server: Params, state: tuple[()], *taken: Batches, round: Round
    ) -> tuple[Params, tuple[()]]:
        """Local SGD."""
        (batches,) = taken
        return steps(lambda w, b: sgd(w, f.grad(w, b), lr=self.lr), server, batches), state
