"""FedBABU (Oh et al., ICLR 2022, arXiv 2106.06042, Algorithm 1): body aggregation and body update.

Departures:
1. The head, which nobody trains, is sent along, as a difference of 0: the counted costs include it.
2. The server's mean is weighted as the suite says (the paper: by examples).
3. `momentum` and `weight_decay` hold in fine-tuning as in training; each local update begins with a fresh momentum.
Special cases: with `train_head`, FedAvg with `personal_epochs`; with `epochs` = 0, the initial model is fine-tuned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import Batch, Batches, Empty, Method, Objective, Round, Weights, hyper, mean
from pflbench.methods.local_sgd import Adapted, LocalSGD, PersonalRate
from pflbench.models.network import Network
from pflbench.typing import Float, Params, Part, Tensor
from pflbench.vector import replace


@dataclass(frozen=True)
class FedBABU(LocalSGD, Adapted, PersonalRate, Method[Params, Empty, Params], epochs=1, personal_epochs=5):
    """The base alone is trained and averaged, under the initial head; a personal model is fine-tuned, head and all."""

    version: ClassVar[int] = 1
    personal_needs = "personal_epochs"
    train_head: bool = hyper(False, "Train the head in the federation, too: FedAvg.")

    def network(self, base: Network) -> Network:
        """The suite's. Raises `UsageError` if it has no base; with `train_head` it needs none."""
        if not self.train_head:
            base.layout.part("base")
        return base

    def client(
        self, f: Objective, server: Params, state: Empty, *batches: Batches, round: Round
    ) -> tuple[Params, Empty]:
        if self.train_head:
            return self.sgd(f, server, *batches, lr=self.lr), state
        where = f.part("base")

        def by_base(base: Part, b: Batch) -> Part:
            return f.grad(replace(server, where, base), b, wrt="base")

        base = self.sgd(f, server[where], *batches, lr=self.lr, grad=by_base, wrt="base")
        # Differences, since the mean of equal heads would drift by roundings.
        return replace(server, where, base) - server, state

    def server(self, server: Params, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Params:
        return mean(uploads, n) if self.train_head else server + mean(uploads, n)

    def personal_model(self, f, server, state, *batches, round):
        """The global model after epochs of the client's own SGD on all of it."""
        return self.sgd(f, server, *batches, lr=self.personal_rate(self.lr))
