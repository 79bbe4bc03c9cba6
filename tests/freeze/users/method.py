"""A method from nothing."""

from dataclasses import dataclass

from pflbench.methods.base import SGD, Draw, Method, train


@dataclass(frozen=True)
class Mine(Method):
    """One epoch of SGD."""

    lr: float = 0.05

    def draws(self, round):
        return (Draw(epochs=1),)

    def client(self, f, server, state, batches, *, round):
        return train(f, server, batches, SGD(self.lr))[0], state
