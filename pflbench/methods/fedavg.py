"""FedAvg (McMahan et al., AISTATS 2017, arXiv 1602.05629, Algorithm 1).

Departures:
1. The server's mean is weighted as the suite says (the paper: by examples; CAFeMe's tables: uniformly).
2. "Epochs" are passes over a client's minibatches, drawn as the suite says (CAFeMe's code: static ones).
3. `momentum` is none of the paper's: each participation begins with a fresh one (pFedVEM's tables).
Special cases: with one client and one step, plain SGD; one participation = `torch.optim.SGD` with that momentum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import Batches, Method, Objective, Round, Take, descend
from pflbench.typing import Params


@dataclass(frozen=True)
class FedAvg(Method[Params, tuple[()], Params]):
    """Federated averaging: local SGD epochs from the global model, then a mean."""

    version: ClassVar[int] = 1
    epochs: int = 5
    """Local epochs per participation."""
    lr: float = 1e-3
    """Local learning rate (SGD)."""
    momentum: float | None = None
    """Momentum of the local SGD, fresh in each round; none: without."""
    batch: int | None = None
    """Rows per minibatch; none: the suite's."""

    def takes(self) -> tuple[Take, ...]:
        """`epochs` passes."""
        return (Take(epochs=self.epochs, batch=self.batch),)

    def client(
        self, f: Objective, server: Params, state: tuple[()], *taken: Batches, round: Round
    ) -> tuple[Params, tuple[()]]:
        """Local SGD."""
        (batches,) = taken
        return descend(f.grad, server, batches, lr=self.lr, beta=self.momentum), state
