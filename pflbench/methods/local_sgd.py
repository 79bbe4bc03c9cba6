"""Local SGD: the hyperparameters that the local updates of many methods have in common."""

from __future__ import annotations

from dataclasses import dataclass

from pflbench.methods.base import C, Method, S, Take, U


@dataclass(frozen=True)
class LocalSGD(Method[S, C, U]):
    """A method whose clients train by epochs of minibatch SGD."""

    epochs: int = 5
    """Local epochs per round."""
    lr: float = 1e-3
    """Local learning rate (SGD)."""
    momentum: float | None = None
    """Momentum of the local SGD, fresh in each round; none: without."""
    batch: int | None = None
    """Examples per minibatch; none: the suite's."""

    def takes(self) -> tuple[Take, ...]:
        return (Take(epochs=self.epochs, batch=self.batch),)
