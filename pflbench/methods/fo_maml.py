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

from pflbench.methods.base import Batches, Draw, Empty, Method, Objective, Round, Weights, descend
from pflbench.methods.local_sgd import TwoRates
from pflbench.methods.reptile import EpochsOrSteps
from pflbench.optim import SGD, sgd
from pflbench.typing import Float, Params, Tensor


@dataclass(frozen=True)
class FOMaml(EpochsOrSteps, TwoRates, Method[Params, Empty, Params], outer_lr=0.1):
    """Clients send the gradient at the model they adapted; the server descends along the mean."""

    version: ClassVar[int] = 1

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """The adaptation's minibatches, and the whole support."""
        return *self.personal_draws(), Draw(whole=True)

    def client(
        self, f: Objective, server: Params, state: Empty, *batches: Batches, round: Round
    ) -> tuple[Params, Empty]:
        """The whole support's gradient at the adapted model."""
        for_adapting, (whole,) = batches
        adapted = self.personal_model(f, server, state, for_adapting, round=round)
        return f.grad(adapted, whole), state

    def server(self, server: Params, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Params:
        # One step down the mean of the gradients.
        return sgd(server, uploads.mean(0), lr=self.outer_lr)

    def personal_draws(self) -> tuple[Draw, ...]:
        """Minibatches of the adaptation; default: 1 epoch."""
        return (self.inner(1),)

    def personal_model(self, f, server, state, *batches, round):
        """The server's model after the adaptation."""
        return descend(f.grad, server, batches[0], SGD(self.inner_lr))
