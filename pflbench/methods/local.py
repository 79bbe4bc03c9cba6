"""Local training without communication, the baseline below which federation does not pay (pFedVEM's Table 1).

All clients start from the seed's common initial model. A further round continues the training, with an empty momentum
or, with `keep_momentum`, as if all rounds were one. The global model is the initial one: it can be fine-tuned (stage
"finetuned"), as by a client that never trains in a federation.

Departure: pFedVEM's tables choose each client's learning rate and batch size from a grid; here the suite sets them.
Special cases: one round is `torch.optim.SGD` or `torch.optim.Adam` for these epochs. Two rounds without momentum, or
with `keep_momentum`, are one of twice the epochs on the same minibatches.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pflbench.methods.base import SGD, UsageError, hyper, train
from pflbench.methods.fedavg import FedAvg


class Moving(NamedTuple):
    """A model and its velocity."""

    w: Any
    velocity: Any


@dataclass(frozen=True)
class Local(FedAvg):
    """Every client trains alone, from the common initial model."""

    version: ClassVar[int] = 1
    commits = "trained"
    global_model = "initial"
    personal_of = "training"
    epochs: int = hyper(20, "Local epochs per round.", least=0)
    keep_momentum: bool | None = hyper(
        None, "One training of all clients over all rounds: momentum is kept between them, and no cohort is sampled."
    )

    def __post_init__(self):
        super().__post_init__()
        if self.keep_momentum and self.momentum is None:
            raise UsageError("Local: keep_momentum needs a momentum.")

    @property
    def joins(self):
        """All training clients, if training is one over all rounds."""
        return "everyone" if self.keep_momentum else "cohort"

    def init_client(self, server, new):
        return Moving(server, SGD(self.lr, self.momentum).init(server)) if self.keep_momentum else server

    def client(self, f, server, state, batches, *, round):
        nothing = server.new_zeros(())
        if not self.keep_momentum:
            return nothing, self.trained(f, state, batches)
        by, decay = SGD(self.lr, self.momentum), f.decay(self.weight_decay, state.w)
        return nothing, Moving(*train(f, state.w, batches, by, decay=decay, memory=state.velocity))

    def server(self, server, uploads, n, round):
        return server

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        w = state.w if self.keep_momentum else state
        return self.trained(f, w, batches, lr=self.personal_lr)
