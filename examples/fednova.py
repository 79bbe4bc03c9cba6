"""FedNova (Wang et al., NeurIPS 2020, arXiv 2007.07481) for plain local SGD, as a user of pflbench would write it.

Departures: none; minibatches and weights are the suite's.
Special cases: where all clients make the same number of steps, FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from pflbench.methods.base import Batch, Batches, Draw, Method, Objective, Round, mean, steps


class Upload(NamedTuple):
    """A client's mean step, and the number of its steps."""

    step: Tensor
    made: Tensor


@dataclass(frozen=True)
class FedNova(Method[Tensor, tuple[()], Upload]):
    """Federated averaging of normalized updates: a client with more data makes more steps, but does not pull harder."""

    epochs: int = 2
    """Local epochs per participation."""
    lr: float = 0.01
    """Local learning rate (plain SGD)."""

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (Draw(epochs=self.epochs),)

    def client(
        self, f: Objective, server: Tensor, state: tuple[()], *taken: Batches, round: Round
    ) -> tuple[Upload, tuple[()]]:
        def local(carry: tuple[Tensor, Tensor], b: Batch) -> tuple[Tensor, Tensor]:
            w, made = carry  # `made` is part of the carry, so that padded steps do not count
            return w - self.lr * f.grad(w, b), made + 1

        w, made = steps(local, (server, server.new_zeros(())), taken[0])
        return Upload((w - server) / made, made), state

    def server(self, server: Tensor, uploads: Upload, n: Tensor, round: Round) -> Tensor:
        return server + mean(uploads.made, n) * mean(uploads.step, n)
