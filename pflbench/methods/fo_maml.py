"""First-order MAML in a federation (Per-FedAvg as a tutorial gives it).

MAML is Finn et al., ICML 2017, arXiv 1703.03400; Per-FedAvg is Fallah et al., NeurIPS 2020, arXiv 2002.07948.
What it drops of Per-FedAvg, as the tutorial does: the factor I - a·Hessian between the gradient at the adapted model
and that of the meta-loss; the several local meta steps of a local update (here the server makes one a round); and
minibatches of their own for the second gradient.
Departures:
1. The adaptation is plain SGD over minibatches, epochs or steps of them, and the gradient that is sent is that of the
   client's whole support, which the adaptation saw, too (the tutorial: gradients of F_k, the number of steps open).
2. A personal model is the server's after the same adaptation.
The server's mean is a plain one, whatever weights the suite has.
Special cases: inner_lr = 0 = gradient descent on the clients' mean loss, a step a round; outer_lr = 0 never moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import Batches, Empty, Method, Objective, Round, Take, Weights, descend
from pflbench.methods.reptile import inner_take
from pflbench.optim import sgd
from pflbench.typing import Float, Params, Tensor


@dataclass(frozen=True)
class FOMaml(Method[Params, Empty, Params]):
    """Clients send the gradient at the model they adapted; the server descends along the mean."""

    version: ClassVar[int] = 1
    epochs: int | None = None
    """Epochs of the adaptation; none: 1, unless `steps` are given."""
    steps: int | None = None
    """Minibatches of the adaptation, in place of epochs."""
    inner_lr: float = 0.01
    """Learning rate a of the adaptation (plain SGD)."""
    outer_lr: float = 0.1
    """The server's learning rate b (plain SGD)."""
    batch: int | None = None
    """Examples per minibatch of the adaptation; none: the suite's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        inner_take(self.epochs, self.steps, self.batch)

    def takes(self) -> tuple[Take, ...]:
        """The adaptation's minibatches, and the whole support."""
        return *self.adapts(), Take(whole=True)

    def client(self, f: Objective, server: Params, state: Empty, *taken: Batches, round: Round) -> tuple[Params, Empty]:
        """The whole support's gradient at the adapted model."""
        batches, (whole,) = taken
        return f.grad(self._adapt(f, server, batches), whole), state

    def server(self, server: Params, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Params:
        """One step down the mean of the gradients."""
        return sgd(server, uploads.mean(0), lr=self.outer_lr)

    def adapts(self) -> tuple[Take, ...]:
        return (inner_take(self.epochs, self.steps, self.batch),)

    def personalize(
        self, f: Objective, server: Params, state: Empty, sent: Params | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """The server's model, adapted."""
        return {"personalized": self._adapt(f, server, *taken)}

    def _adapt(self, f: Objective, w: Params, batches: Batches) -> Params:
        return descend(f.grad, w, batches, lr=self.inner_lr)
