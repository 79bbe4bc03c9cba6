"""A method."""

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import SGD, Draw, Method, train


@dataclass(frozen=True)
class LocalSGD(Method):
    """A few local SGD steps, then a mean."""

    version: ClassVar[int] = 1
    count: int = 2
    """Local steps per participation."""
    lr: float = 0.1
    """Local learning rate."""

    def draws(self, round):
        return (Draw(steps=self.count),)

    def client(self, f, server, state, batches, *, round):
        return train(f, server, batches, SGD(self.lr))[0], state
