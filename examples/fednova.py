"""FedNova (Wang et al., NeurIPS 2020, arXiv 2007.07481) for plain local SGD, as a user of pflbench would write it.

Departures: none; minibatches and weights are the suite's.
Special cases: where all clients make the same number of steps, FedAvg.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from pflbench.methods.base import SGD, Draw, Method, hyper, mean, steps, train


class Upload(NamedTuple):
    """A client's mean step, and the number of its steps."""

    step: Any
    made: Any


@dataclass(frozen=True)
class FedNova(Method):
    """Federated averaging of normalized updates: a client with more data makes more steps, but does not pull harder."""

    trains_statistics = False  # its server may step further than to the mean
    epochs: int = hyper(2, "Local epochs per round.", least=0)
    lr: float = hyper(0.01, "Local learning rate (plain SGD).", least=0)

    def draws(self, round):
        return (Draw(epochs=self.epochs),)

    def client(self, f, server, state, batches, *, round):
        w, _ = train(f, server, batches, SGD(self.lr))
        made = steps(lambda made, b: made + 1, server.new_zeros(()), batches)  # padded steps do not count
        return Upload((w - server) / made, made), state

    def server(self, server, uploads, n, round):
        return server + mean(uploads.made, n) * mean(uploads.step, n)
