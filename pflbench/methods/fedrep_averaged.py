"""FedRep with averaged heads: Algorithm 1 of Collins et al. (2021) as CAFeMe's tables use it.

The paper's own, with personal heads, is `fedrep`.

Departures, all as in the authors' CAFeMe code:
1. The head is averaged too, and a client starts from the averaged head: there are no personal heads.
2. The head is every dense layer (with its normalization), the base the convolution blocks.
3. Adam for both parts, with two states per client that are kept between local updates (`optimizer="sgd"`: plain SGD).
4. At test time the whole averaged model is fine-tuned.
Special cases: a network without a head, no head steps, and SGD = FedAvg on the same minibatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from pflbench.methods.base import Batch, Batches, Draw, Empty, Initializer, Method, Objective, Round, descend_on, hyper
from pflbench.methods.local_sgd import HeadApart
from pflbench.optim import SGD, Adam, AdamState, Optimizer
from pflbench.typing import Params
from pflbench.vector import replace


class FedRepAveragedClient(NamedTuple):
    """Adam's states for the head and for the base; `()` under plain SGD."""

    head: AdamState | Empty
    base: AdamState | Empty


@dataclass(frozen=True)
class FedRepAveraged(HeadApart, Method[Params, FedRepAveragedClient, Params]):
    """The head first with the base frozen, then the base with the head frozen; the server averages both."""

    version: ClassVar[int] = 1
    base_steps: int = hyper(1, "Local steps on the base, on the minibatches that follow.", least=0)
    optimizer: Literal["adam", "sgd"] = hyper("adam", "Adam with kept states (authors' CAFeMe code) or plain SGD.")

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return Draw(steps=self.head_steps), Draw(steps=self.base_steps)

    def init_client(self, server: Params, new: Initializer) -> FedRepAveragedClient:
        """Two fresh states, each as long as its part."""
        by = self.by(self.head_lr)
        return FedRepAveragedClient(by.init(server[new.part("head")]), by.init(server[new.part("base")]))

    def client(
        self, f: Objective, server: Params, state: FedRepAveragedClient, *batches: Batches, round: Round
    ) -> tuple[Params, FedRepAveragedClient]:
        """Train the head, then the base; upload both."""
        for_head, for_base = batches
        w, head = self._train(f, "head", self.by(self.head_lr), server, state.head, for_head)
        w, base = self._train(f, "base", self.by(self.base_lr), w, state.base, for_base)
        return w, FedRepAveragedClient(head, base)

    def by(self, lr: float) -> Optimizer:
        """The optimizer of a part with this rate."""
        return Adam(lr) if self.optimizer == "adam" else SGD(lr)

    def _train(
        self, f: Objective, part: str, by: Optimizer, w: Params, state: AdamState | Empty, batches: Batches
    ) -> tuple[Params, AdamState | Empty]:
        where = f.part(part)

        def gradient(piece: Params, b: Batch) -> Params:
            return f.grad(replace(w, where, piece), b, wrt=part)

        piece, state = descend_on(gradient, (w[where], state), batches, by)
        return replace(w, where, piece), state
