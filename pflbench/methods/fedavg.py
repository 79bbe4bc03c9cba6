"""FedAvg (McMahan et al., AISTATS 2017, arXiv 1602.05629, Algorithm 1).

Departures:
1. The server's mean is weighted as the suite says (the paper: by examples; CAFeMe's tables: uniformly).
2. "Epochs" are passes over a client's minibatches, drawn as the suite says (CAFeMe's code: static ones).
3. `momentum` and Adam, fresh in each local update, and `weight_decay` are not the paper's (pFedVEM's, FedEC's tables).
4. With `personal_epochs`, a personal model is the global one after so many epochs of the client's own SGD (FedAvg
   with one adaptation); without, there are none.
Special cases: with one client and one step, plain SGD; one local update = `torch.optim.SGD` with that momentum and
decay, or `torch.optim.Adam`; with `personal_epochs` = `epochs`, a personal model is what one more local update on the
minibatches would send.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Draw, Empty, Method, Objective, Round, hyper
from pflbench.methods.local_sgd import LocalEpochs, SGDOptions
from pflbench.optim import Optimizer
from pflbench.typing import Params


@dataclass(frozen=True)
class FedAvg(LocalEpochs, SGDOptions, Method[Params, Empty, Params]):
    """Federated averaging: local SGD epochs from the global model, then a mean."""

    version: ClassVar[int] = 1
    personal_needs = "personal_epochs"
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    personal_epochs: int | None = hyper(None, "Epochs that make a personal model; none: there are none.", least=0)
    personal_lr: float | None = hyper(None, "Learning rate of personal models; none: the local one.", least=0)
    optimizer: Literal["sgd", "adam"] = hyper(
        "sgd", "Optimizer of local updates, at rest when each begins; adam has no `momentum`.", added=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.local_optimizer(self.lr)  # refuses a momentum of Adam
        if self.personal_lr is not None and self.personal_epochs is None:
            raise UsageError(f"{type(self).__name__}: personal_lr needs personal_epochs.")

    def client(
        self, f: Objective, server: Params, state: Empty, *batches: Batches, round: Round
    ) -> tuple[Params, Empty]:
        return self.sgd(f, server, *batches, lr=self.lr), state

    def local_optimizer(self, lr: float) -> Optimizer:
        return self.sgd_or_adam(self.optimizer, lr)

    def personal_draws(self) -> tuple[Draw, ...]:
        return () if self.personal_epochs is None else (Draw(epochs=self.personal_epochs, batch=self.batch),)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return upload
        return self.sgd(f, server, *batches, lr=self.lr if self.personal_lr is None else self.personal_lr)
