"""Per-FedAvg on halves of each minibatch, first order (Fallah et al., NeurIPS 2020, arXiv 2002.07948).

A meta step takes a minibatch apart: u = w - a·grad(w; its first rows), then w descends along grad(u; the others).
Departures:
1. First order: the paper's factor I - a·Hessian is left out; `per-fedavg` has it.
2. Both gradients come from one minibatch, taken apart, over epochs (the paper: independently drawn batches). It is what
   the released FedRep code intends but does not do: there both gradients are taken at w and added.
3. `momentum` and `weight_decay` are none of the paper's: they act on the meta step, at w, and each local update begins
   with a fresh momentum (FedRep's code). The step to u is plain SGD.
4. A minibatch whose first part would be empty, of one row that is, makes no step.
5. A personal model is the server's after plain SGD on whole minibatches, `personal_epochs` or `personal_steps` of
   them.
6. The server's mean is weighted as the suite says.
PFLlib's Per-FedAvg is `share = 0.5` on minibatches twice as large as the suite's, one rate, and `personal_steps = 1`.
Special cases: inner_lr = 0 = FedAvg on the minibatches' second parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import (
    Batch,
    Batches,
    Draw,
    Empty,
    Method,
    Objective,
    Round,
    decayed,
    descend,
    hyper,
    split,
    steps,
)
from pflbench.methods.local_sgd import Adapted, LocalEpochs, PersonalRate, SGDOptions, TwoRates
from pflbench.optim import SGD, State, sgd
from pflbench.typing import Params

Carry = tuple[Params, State]
"""The model w and the meta step's velocity."""


@dataclass(frozen=True)
class PerFedAvgSplit(
    LocalEpochs,
    TwoRates,
    Adapted,
    PersonalRate,
    SGDOptions,
    Method[Params, Empty, Params],
    outer_lr=0.01,
    personal_epochs=1,
    personal_lr=0.01,
):
    """First-order MAML in a federation; minibatches are taken apart into support and query.

    `epochs` are of meta steps; `momentum` and `weight_decay` act on these; `inner_lr` is a, `outer_lr` b.
    """

    version: ClassVar[int] = 1
    personal_needs = "personal_epochs"
    share: float = hyper(0.8, "Share of a minibatch's rows that are support, rounded down.", above=0, below=1)
    personal_steps: int | None = hyper(
        None, "Minibatches of the suite's size that make a personal model; none: `personal_epochs`.", least=0
    )

    def client(
        self, f: Objective, server: Params, state: Empty, *batches: Batches, round: Round
    ) -> tuple[Params, Empty]:
        decay, by = f.decay(self.weight_decay, server), SGD(self.outer_lr, self.momentum)

        def meta(carry: Carry, support: Batch, query: Batch) -> Carry:
            w, velocity = carry
            # u = w - a grad f(w; support), then w descends along grad f(u; query)
            u = sgd(w, f.grad(w, support), lr=self.inner_lr)
            return by.update(w, decayed(f.grad(u, query), w, decay), velocity)

        parts = [pair for b in batches[0] if (pair := split(b, self.share)) is not None]
        supports = tuple(support for support, _ in parts)
        return steps(meta, (server, by.init(server)), supports, [query for _, query in parts])[0], state

    def personal_draws(self) -> tuple[Draw, ...]:
        if self.personal_steps is None:
            return super().personal_draws()
        return (Draw(steps=self.personal_steps, in_passes=True),)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        """The server's model after plain SGD on whole minibatches."""
        if upload is not None:
            return upload
        return descend(f.grad, server, batches[0], SGD(self.personal_rate(self.inner_lr)))
