"""Local SGD, with other defaults."""

from dataclasses import dataclass

from pflbench.methods.base import Method, descend
from pflbench.methods.local_sgd import LocalSGD


@dataclass(frozen=True)
class Mine(LocalSGD, Method, epochs=1, momentum=0.5):
    """Federated averaging, written again."""

    def client(self, f, server, state, batches, *, round):
        return descend(f.grad, server, batches, self.sgd(self.lr)), state
