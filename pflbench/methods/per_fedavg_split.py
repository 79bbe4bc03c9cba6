"""Per-FedAvg on halves of each minibatch, first order (Fallah et al., NeurIPS 2020, arXiv 2002.07948).

A meta step takes a minibatch apart: u = w - a·grad(w; its first rows), then w descends along grad(u; the others).
Departures:
1. First order: the paper's factor I - a·Hessian is left out; `per-fedavg` has it.
2. Both gradients come from one minibatch, taken apart, over epochs (the paper: independently drawn batches). It is what
   the released FedRep code intends but does not do: there both gradients are taken at w and added.
3. `momentum` and `weight_decay` are none of the paper's: they act on the meta step, at w, and each local update begins
   with a fresh momentum (FedRep's code). The step to u is plain SGD.
4. A minibatch whose first part would be empty, of one row that is, makes no step.
5. A personal model is the server's after `personal_epochs` of plain SGD on whole minibatches.
6. The server's mean is weighted as the suite says.
Special cases: inner_lr = 0 = FedAvg on the minibatches' second parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Empty, Method, Objective, Round, Take, decayed, descend, split, steps
from pflbench.optim import momentum, sgd
from pflbench.typing import Params

Carry = tuple[Params, Params]
"""The model w and the meta step's velocity."""


@dataclass(frozen=True)
class PerFedAvgSplit(Method[Params, Empty, Params]):
    """First-order MAML in a federation; minibatches are taken apart into support and query."""

    version: ClassVar[int] = 1
    epochs: int = 5
    """Epochs of meta steps per local update."""
    inner_lr: float = 0.01
    """Learning rate a of the step to u (plain SGD)."""
    outer_lr: float = 0.01
    """Learning rate b of the meta step."""
    share: float = 0.8
    """Share of a minibatch's rows that are support, rounded down."""
    personal_epochs: int = 1
    """Epochs that make a personal model."""
    personal_lr: float = 0.01
    """Learning rate of these (plain SGD)."""
    momentum: float | None = None
    """Momentum of the meta steps, fresh in each round; none: without."""
    weight_decay: float | None = None
    """Weight decay of the meta steps, of layers' weights alone; none: without."""
    batch: int | None = None
    """Examples per minibatch; none: the suite's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1:
            raise UsageError(f"PerFedAvgSplit: share must be between 0 and 1, not {self.share}.")

    def takes(self) -> tuple[Take, ...]:
        return (Take(epochs=self.epochs, batch=self.batch),)

    def client(self, f: Objective, server: Params, state: Empty, *taken: Batches, round: Round) -> tuple[Params, Empty]:
        """A meta step per minibatch that has both parts."""
        (batches,) = taken
        decay = f.decay(self.weight_decay, server)

        def meta(carry: Carry, support: Batch, query: Batch) -> Carry:
            w, velocity = carry
            u = sgd(w, f.grad(w, support), lr=self.inner_lr)
            g = decayed(f.grad(u, query), w, decay)
            return momentum(w, g, velocity, lr=self.outer_lr, beta=self.momentum or 0.0)

        parts = [pair for b in batches if (pair := split(b, self.share)) is not None]
        supports = tuple(support for support, _ in parts)
        w, _ = steps(meta, (server, torch.zeros_like(server)), supports, [query for _, query in parts])
        return w, state

    def adapts(self) -> tuple[Take, ...]:
        return (Take(epochs=self.personal_epochs, batch=self.batch),)

    def personalize(
        self, f: Objective, server: Params, state: Empty, sent: Params | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """The server's model after plain SGD."""
        (batches,) = taken
        return {"personalized": descend(f.grad, server, batches, lr=self.personal_lr)}

    def trained(self, sent: Params, state: Empty) -> Params:
        """The model that was sent, not adapted."""
        return sent
