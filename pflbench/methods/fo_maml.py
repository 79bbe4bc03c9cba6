"""First-order MAML in a federation (Per-FedAvg as a tutorial gives it).

MAML is Finn et al., ICML 2017, arXiv 1703.03400; Per-FedAvg is Fallah et al., NeurIPS 2020, arXiv 2002.07948. As in the
tutorial, it drops three parts of Per-FedAvg: the factor I - a Hessian, local meta steps (the server makes one a round),
and minibatches of their own for the second gradient.

Departures:
1. The adaptation is plain SGD over minibatches, and the sent gradient is that of the client's whole support, which the
   adaptation also uses (the tutorial: gradients of F_k).
2. A personal model is the server's after the same adaptation.
The server's mean is plain, whatever weights the suite has.
Special cases: inner_lr = 0 = gradient descent on the clients' mean loss, one step a round; outer_lr = 0 never moves.
"""

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import SGD, Draw, Method, hyper, sgd, train


@dataclass(frozen=True)
class FOMaml(Method):
    """Clients send the gradient at the model they adapted; the server descends along the mean."""

    version: ClassVar[int] = 1
    trains_statistics = False
    epochs: int | None = hyper(None, "Epochs of the adaptation; none: 1.", least=0)
    steps: int | None = hyper(None, "Steps of the adaptation, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    inner_lr: float = hyper(0.01, "Learning rate of the adaptation.", least=0)
    outer_lr: float = hyper(0.1, "Learning rate of the server.", least=0)

    def draws(self, round):
        return *self.personal_draws(), Draw(whole=True)

    def client(self, f, server, state, batches, everything, *, round):
        return f.grad(self.personal_model(f, server, state, batches, round=round), everything[0]), state

    def server(self, server, uploads, n, round):
        return sgd(server, uploads.mean(0), lr=self.outer_lr)

    def personal_draws(self):
        if self.steps is not None:
            return (Draw(steps=self.steps, batch=self.batch),)
        return (Draw(epochs=1 if self.epochs is None else self.epochs, batch=self.batch),)

    def personal_model(self, f, server, state, batches, *, round):
        return train(f, server, batches, SGD(self.inner_lr))[0]
