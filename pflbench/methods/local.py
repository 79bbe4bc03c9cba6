"""Local training: no communication; the baseline below which federation does not pay (pFedVEM, CVPR 2023, Table 1).

All clients start from the seed's common initial model. One round is the whole training; further rounds go on where
the last one stopped, with a fresh momentum.

Departures: pFedVEM's tables give each client the best learning rate and batch size of a grid; here a run has one of
each, and the suite chooses.
Special cases: one round = `torch.optim.SGD` for so many epochs; two rounds without momentum = one of twice the epochs
on the same minibatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import Batches, Initializer, Method, Objective, Round, Take, Weights, descend
from pflbench.typing import Float, Params, Scalar, Tensor


@dataclass(frozen=True)
class Local(Method[Params, Params, Scalar]):
    """Every client on its own, from the common initial model."""

    version: ClassVar[int] = 1
    trains = "everyone"
    personal_from = "training"
    epochs: int = 20
    """Epochs per round."""
    lr: float = 1e-3
    """Learning rate (SGD)."""
    momentum: float | None = None
    """Momentum of SGD, fresh in each round; none: without."""
    batch: int | None = None
    """Rows per minibatch; none: the suite's."""

    def takes(self) -> tuple[Take, ...]:
        """`epochs` passes."""
        return (Take(epochs=self.epochs, batch=self.batch),)

    def init_client(self, server: Params, new: Initializer) -> Params:
        """The common initial model."""
        return server

    def client(
        self, f: Objective, server: Params, state: Params, *taken: Batches, round: Round
    ) -> tuple[Scalar, Params]:
        """Train the client's own model further; the upload says nothing."""
        (batches,) = taken
        return state.new_zeros(()), descend(f.grad, state, batches, lr=self.lr, beta=self.momentum)

    def server(self, server: Params, uploads: Float[Tensor, "cohort"], n: Weights, round: Round) -> Params:
        """The initial model, for ever."""
        return server

    def adapts(self) -> tuple[Take, ...]:
        """Nothing: what is trained is used."""
        return ()

    def personalize(
        self, f: Objective, server: Params, state: Params, sent: Scalar | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """The client's own model."""
        return {"personalized": state}
