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

from pflbench.methods.base import Batch, Batches, Empty, Initializer, Method, Objective, Round, Take, steps
from pflbench.optim import AdamState, adam, adam_init, sgd
from pflbench.typing import Params
from pflbench.vector import replace


class FedRepAveragedClient(NamedTuple):
    """Adam's states for the head and for the base; `()` under plain SGD."""

    head: AdamState | Empty
    base: AdamState | Empty


Carry = tuple[Params, AdamState | Empty]


@dataclass(frozen=True)
class FedRepAveraged(Method[Params, FedRepAveragedClient, Params]):
    """The head first with the base frozen, then the base with the head frozen; the server averages both."""

    version: ClassVar[int] = 1
    head_steps: int = 5
    """Local steps on the head."""
    base_steps: int = 1
    """Local steps on the base, on the minibatches that follow."""
    head_lr: float = 1e-3
    """Learning rate of the head."""
    base_lr: float = 1e-3
    """Learning rate of the base."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam with kept states (authors' CAFeMe code) or plain SGD."""

    def takes(self) -> tuple[Take, ...]:
        return Take(steps=self.head_steps), Take(steps=self.base_steps)

    def init_client(self, server: Params, new: Initializer) -> FedRepAveragedClient:
        """Two fresh states, each as long as its part."""
        if self.optimizer == "sgd":
            return FedRepAveragedClient((), ())
        return FedRepAveragedClient(adam_init(server[new.part("head")]), adam_init(server[new.part("base")]))

    def client(
        self, f: Objective, server: Params, state: FedRepAveragedClient, *taken: Batches, round: Round
    ) -> tuple[Params, FedRepAveragedClient]:
        """Train the head, then the base; upload both."""
        for_head, for_base = taken
        w, head = self._train(f, "head", self.head_lr, (server, state.head), for_head)
        w, base = self._train(f, "base", self.base_lr, (w, state.base), for_base)
        return w, FedRepAveragedClient(head, base)

    def _train(self, f: Objective, part: str, lr: float, start: Carry, batches: Batches) -> Carry:
        where = f.part(part)

        def step(carry: Carry, b: Batch) -> Carry:
            w, moments = carry
            g = f.grad(w, b, wrt=part)
            if not isinstance(moments, AdamState):
                return replace(w, where, sgd(w[where], g, lr=lr)), ()
            piece, moments = adam(w[where], g, moments, lr=lr)
            return replace(w, where, piece), moments

        return steps(step, start, batches)
