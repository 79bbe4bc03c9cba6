"""A method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import Batches, Draw, Method, Objective, Round, steps
from pflbench.typing import Params


@dataclass(frozen=True)
class LocalSGD(Method[Params, tuple[()], Params]):
    """A few local SGD steps, then a mean."""

    version: ClassVar[int] = 1
    count: int = 2
    """Local steps per participation."""
    lr: float = 0.1
    """Local learning rate."""

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (Draw(steps=self.count),)

    def client(
        self, f: Objective, server: Params, state: tuple[()], *taken: Batches, round: Round
    ) -> tuple[Params, tuple[()]]:
        (batches,) = taken
        return steps(lambda w, b: w - self.lr * f.grad(w, b), server, batches), state
