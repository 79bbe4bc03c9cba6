"""FedAvg (McMahan et al., AISTATS 2017, arXiv 1602.05629, Algorithm 1).

Departures:
1. The suite sets the weights of the server's mean (paper: numbers of examples; CAFeMe's tables: uniform).
2. Momentum, weight decay and Adam (pFedVEM's and FedEC's tables); each local update starts with an empty memory.
3. `personal_epochs` makes a personal model from the global one by local SGD; without it, FedAvg has none.
Special cases: one client and one step: plain SGD. One local update is `torch.optim.SGD` or `torch.optim.Adam`. With
`personal_epochs` = `epochs`, a personal model is what one more local update would send.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.methods.base import Draw, Method, UsageError, hyper, local_draw, optimizer, train


@dataclass(frozen=True)
class FedAvg(Method):
    """Clients train the global model; the server averages their models."""

    version: ClassVar[int] = 1
    personal_needs = "personal_epochs"
    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs; none: epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD, from rest in each update; none: without.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights; none: without.", least=0)
    optimizer: Literal["sgd", "adam"] = hyper(
        "sgd", "Optimizer of local updates, from rest in each; adam has no `momentum`.", added=True
    )
    personal_epochs: int | None = hyper(None, "Epochs that make a personal model; none: no such model.", least=0)
    personal_lr: float | None = hyper(None, "Learning rate of personal models; none: `lr`.", least=0)

    def __post_init__(self):
        super().__post_init__()
        optimizer(self.optimizer, self.lr, self.momentum)  # refuses a momentum of Adam
        if self.personal_lr is not None and self.personal_epochs is None:
            raise UsageError(f"{type(self).__name__}: personal_lr needs personal_epochs.")

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def client(self, f, server, state, batches, *, round):
        return self.trained(f, server, batches), state

    def personal_draws(self):
        return () if self.personal_epochs is None else (Draw(epochs=self.personal_epochs, batch=self.batch),)

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        if upload is not None:
            return upload
        return self.trained(f, self.deploy(f, server, ()), batches, lr=self.personal_lr)

    def trained(self, f, w, batches, *, lr=None, grad=None, wrt=None):
        """The vector w after local training.

        Args:
            f: The objective.
            w: The model.
            batches: Minibatches, one step each.
            lr: Learning rate; None: the local one.
            grad: Gradient at (w, minibatch), of the part `wrt`; None: of the loss.
            wrt: Name of the part that is trained; None: all.
        """
        by = optimizer(self.optimizer, self.lr if lr is None else lr, self.momentum)
        decay = f.decay(self.weight_decay, w if wrt is None else w[f.part(wrt)], wrt=wrt)
        return train(f, w, batches, by, grad=grad, wrt=wrt, decay=decay)[0]
