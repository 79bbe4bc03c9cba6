"""A method composed of the shared hyperparameters of local training that docs/methods.md lists."""

from dataclasses import dataclass

from pflbench.methods.base import Method, descend
from pflbench.methods.local_sgd import Adapted, LocalEpochs, LocalRate, PersonalRate, Pull, ServerRate, SGDOptions
from pflbench.optim import SGD


@dataclass(frozen=True)
class Mine(
    LocalEpochs, LocalRate, SGDOptions, Adapted, PersonalRate, Pull, ServerRate, Method, lam=1.0, personal_epochs=2
):
    """FedAvg with a pull and a server's rate."""

    personal_needs = "personal_epochs"

    def client(self, f, server, state, batches, *, round):
        w = self.sgd(f, server, batches, lr=self.lr, grad=lambda v, b: f.grad(v, b) + self.lam * (v - server))
        return self.server_lr * w, state

    def personal_model(self, f, server, state, batches, *, round):
        return descend(f.grad, server, batches, SGD(self.personal_rate(self.lr)))
