"""Ditto (Li et al., ICML 2021, arXiv 2012.04221, Algorithm 1), as in CAFeMe's tables.

Departures:
1. The global part uses Adam, whose memory a client keeps between local updates (CAFeMe's code); `optimizer="sgd"`:
   plain SGD (CAFeMe's text).
2. CAFeMe's tables score the fine-tuned global model, never the personal one. The personal steps still advance the
   client's stream, as in CAFeMe's code.
Special case: lam = 0: the personal model is trained by plain local SGD on the same minibatches.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from pflbench.methods.base import SGD, Adam, Draw, Method, hyper, train


class Client(NamedTuple):
    """The personal model v, and the memory of the global part's optimizer."""

    v: Any
    memory: Any


@dataclass(frozen=True)
class Ditto(Method):
    """A personal model pulled toward the global one, beside ordinary federated training."""

    version: ClassVar[int] = 1
    personal_of = "training"
    steps: int = hyper(5, "Local steps of each part.", least=0)
    epochs: int | None = hyper(None, "Local epochs of each part, in place of steps; none: steps.", least=0)
    lr: float = hyper(1e-3, "Learning rate of the global part.", least=0)
    personal_lr: float | None = hyper(1e-3, "Learning rate of the personal model; none: `lr`.", least=0)
    lam: float = hyper(0.1, "Strength lambda of the pull toward the global model.", least=0)
    optimizer: Literal["sgd"] | None = hyper(None, "Optimizer of the global part; none: Adam.")

    @property
    def by(self):
        """The global part's optimizer."""
        return Adam(self.lr) if self.optimizer is None else SGD(self.lr)

    def draws(self, round):
        part = Draw(steps=self.steps) if self.epochs is None else Draw(epochs=self.epochs)
        return part, part

    def init_client(self, server, new):
        return Client(server, self.by.init(server))

    def client(self, f, w, state, for_v, for_w, *, round):
        def pulled(v, b):
            return f.grad(v, b) + self.lam * (v - w)

        # v <- v - eta (grad F(v) + lambda (v - w)); then w is trained as in FedAvg.
        v, _ = train(f, state.v, for_v, SGD(self.lr if self.personal_lr is None else self.personal_lr), grad=pulled)
        sent, memory = train(f, w, for_w, self.by, memory=state.memory)
        return sent, Client(v, memory)

    def personal_model(self, f, server, state, *, round, upload=None):
        return state.v
