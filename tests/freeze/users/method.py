"""A method from nothing."""

from dataclasses import dataclass

from pflbench.methods.base import Draw, Method, descend
from pflbench.optim import SGD


@dataclass(frozen=True)
class Mine(Method):
    """One epoch of SGD."""

    lr: float = 0.05

    def draws(self, round):
        return (Draw(epochs=1),)

    def client(self, f, server, state, batches, *, round):
        return descend(f.grad, server, batches, SGD(self.lr)), state
