"""A method of single steps, with an inner and an outer rate."""

from dataclasses import dataclass

from pflbench.methods.base import Draw, Method, descend
from pflbench.methods.local_sgd import LocalSteps, OwnBatch, TwoRates
from pflbench.optim import SGD


@dataclass(frozen=True)
class Mine(LocalSteps, TwoRates, OwnBatch, Method, steps=3, outer_lr=0.5):
    """Reptile of a few steps."""

    def draws(self, round):
        return (Draw(steps=self.steps, batch=self.batch),)

    def client(self, f, server, state, batches, *, round):
        w = descend(f.grad, server, batches, SGD(self.inner_lr))
        return server + self.outer_lr * (w - server), state
