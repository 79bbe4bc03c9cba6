"""FedAvg (McMahan et al., AISTATS 2017, arXiv 1602.05629, Algorithm 1).

Departures:
1. The server's mean is weighted as the suite says (the paper: by examples; CAFeMe's tables: uniformly).
2. "Epochs" are passes over a client's minibatches, drawn as the suite says (CAFeMe's code: static ones).
3. `momentum` and `weight_decay` are none of the paper's: each local update begins with a fresh momentum (pFedVEM's and
   FedEC's tables).
4. With `personal_epochs`, a personal model is the global one after so many epochs of the client's own SGD (FedAvg
   with one adaptation); without, there are none.
Special cases: with one client and one step, plain SGD; one local update = `torch.optim.SGD` with that momentum and
decay; with `personal_epochs` = `epochs`, a personal model is what one more local update on the minibatches would send.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Empty, Objective, Round, Take, descend
from pflbench.methods.local_sgd import LocalSGD
from pflbench.typing import Params


@dataclass(frozen=True)
class FedAvg(LocalSGD[Params, Empty, Params]):
    """Federated averaging: local SGD epochs from the global model, then a mean."""

    version: ClassVar[int] = 1
    personal_needs = "personal_epochs"
    weight_decay: float | None = None
    """Weight decay of the layers' weights (not of biases and normalizations); none: without."""
    personal_epochs: int | None = None
    """Epochs of the local SGD that make a personal model of the global one; none: there are none."""
    personal_lr: float | None = None
    """Learning rate of these; none: `lr`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.personal_lr is not None and self.personal_epochs is None:
            raise UsageError(f"{type(self).__name__}: personal_lr needs personal_epochs.")

    def client(self, f: Objective, server: Params, state: Empty, *taken: Batches, round: Round) -> tuple[Params, Empty]:
        (batches,) = taken
        return self._sgd(f, server, batches, self.lr), state

    def adapts(self) -> tuple[Take, ...]:
        if self.personal_epochs is None:
            return super().adapts()
        return (Take(epochs=self.personal_epochs, batch=self.batch),)

    def personalize(
        self, f: Objective, server: Params, state: Empty, sent: Params | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """The global model after the client's own SGD."""
        if self.personal_epochs is None:
            return super().personalize(f, server, state, sent, *taken, round=round)
        (batches,) = taken
        lr = self.lr if self.personal_lr is None else self.personal_lr
        return {"personalized": self._sgd(f, server, batches, lr)}

    def trained(self, sent: Params, state: Empty) -> Params:
        return sent

    def _sgd(self, f: Objective, w: Params, batches: Batches, lr: float) -> Params:
        decay = f.decay(self.weight_decay, w)
        return descend(f.grad, w, batches, lr=lr, beta=self.momentum, decay=decay)
