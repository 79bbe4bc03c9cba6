"""Local training: no communication; the baseline below which federation does not pay (pFedVEM, CVPR 2023, Table 1).

All clients start from the seed's common initial model. One round is the whole training; further rounds go on where
the last one stopped, with a fresh momentum or, with `keep_momentum`, as if there had been no rounds.

Its global model is that initial one, which no client changes: it can be fine-tuned (stage "finetuned"), as by a client
that never trains in a federation, and is not shown itself. With `epochs` = 0 nothing is trained at all.

Departures: pFedVEM's tables give each client the best learning rate and batch size of a grid; here a run has one of
each, and the suite chooses.
Special cases: one round = `torch.optim.SGD`, or with `optimizer="adam"` `torch.optim.Adam`, for so many epochs; two
rounds without momentum = one of twice the epochs on the same minibatches, and with `keep_momentum` of any momentum;
fine-tuned, plain SGD from the initial model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch

from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Initializer, Method, Objective, Round, Weights, descend_on, hyper
from pflbench.methods.local_sgd import LocalSGD
from pflbench.optim import SGD, Optimizer
from pflbench.typing import Float, Params, Scalar, Tensor


class Moving(NamedTuple):
    """A model on its way, and its velocity."""

    w: Params
    velocity: Params


Own = Params | Moving
"""A client's model, with its velocity if that is kept."""


@dataclass(frozen=True)
class Local(LocalSGD, Method[Params, Own, Scalar], epochs=20):
    """Every client on its own, from the common initial model."""

    version: ClassVar[int] = 1
    commits = "trained"
    global_model = "initial"
    personal_of = "training"
    optimizer: Literal["sgd", "adam"] = hyper(
        "sgd", "Optimizer of local updates, at rest when each begins; adam has no `momentum`.", added=True
    )
    keep_momentum: bool | None = hyper(
        None, "One training of all clients over all rounds: momentum is kept between them, and no cohort is sampled."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.local_optimizer(self.lr)  # refuses a momentum of Adam
        if self.keep_momentum and self.momentum is None:
            raise UsageError("Local: keep_momentum needs a momentum.")

    @property
    def joins(self) -> Literal["cohort", "everyone"]:  # type: ignore[override]
        """All training clients, if training is one over all rounds."""
        return "everyone" if self.keep_momentum else "cohort"

    def init_client(self, server: Params, new: Initializer) -> Own:
        """The common initial model, at rest."""
        return Moving(server, torch.zeros_like(server)) if self.keep_momentum else server

    def client(self, f: Objective, server: Params, state: Own, *batches: Batches, round: Round) -> tuple[Scalar, Own]:
        """Train the client's own model further; the upload says nothing."""
        if isinstance(state, Tensor):
            return server.new_zeros(()), self.sgd(f, state, *batches, lr=self.lr)
        by, decay = SGD(self.lr, self.momentum), f.decay(self.weight_decay, state.w)
        return server.new_zeros(()), Moving(*descend_on(f.grad, (state.w, state.velocity), batches[0], by, decay=decay))

    def server(self, server: Params, uploads: Float[Tensor, "cohort"], n: Weights, round: Round) -> Params:
        """The initial model, which never changes."""
        return server

    def local_optimizer(self, lr: float) -> Optimizer:
        return self.sgd_or_adam(self.optimizer, lr)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return state if isinstance(state, Tensor) else state.w
        return state if isinstance(state, Tensor) else state.w
