"""FedRep with averaged heads: Algorithm 1 of Collins et al. (2021) as CAFeMe's tables use it.

The paper's algorithm, with personal heads, is `fedrep`.

Departures (authors' CAFeMe code):
1. The head is averaged too; there are no personal heads.
2. The head is every dense layer with its normalization, the base the convolution blocks.
3. Adam for both parts, whose memories a client keeps between local updates; `optimizer="sgd"`: plain SGD.
4. At test time the whole averaged model is fine-tuned.
Readings of 1, 3 and 4 are in `benchmarks/cafeme/variants`.
Special cases: a network without a head, no head steps, and SGD = FedAvg on the same minibatches.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from pflbench.methods.base import Draw, Method, base_then_head, hyper, optimizer, train


class Memories(NamedTuple):
    """A client's memories of the optimizers of head and base; None: from rest."""

    head: Any = None
    base: Any = None


@dataclass(frozen=True)
class FedRepAveraged(Method):
    """The head first with the base frozen, then the base with the head frozen; the server averages both."""

    version: ClassVar[int] = 1
    head_steps: int = hyper(5, "Local steps on the head.", least=0)
    head_lr: float = hyper(1e-3, "Learning rate of the head.", least=0)
    base_steps: int = hyper(1, "Local steps on the base, on the minibatches that follow.", least=0)
    base_lr: float = hyper(1e-3, "Learning rate of the base.", least=0)
    optimizer: Literal["adam", "sgd"] = hyper("adam", "Local optimizer.")

    def network(self, base):
        return base_then_head(base)

    def draws(self, round):
        return Draw(steps=self.head_steps), Draw(steps=self.base_steps)

    def init_client(self, server, new):
        by = optimizer(self.optimizer, self.head_lr)
        return Memories(by.init(server[new.part("head")]), by.init(server[new.part("base")]))

    def client(self, f, server, state, for_head, for_base, *, round):
        w, head = train(f, server, for_head, optimizer(self.optimizer, self.head_lr), wrt="head", memory=state.head)
        w, base = train(f, w, for_base, optimizer(self.optimizer, self.base_lr), wrt="base", memory=state.base)
        return w, Memories(head, base)
