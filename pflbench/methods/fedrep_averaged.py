"""FedRep with averaged heads: Algorithm 1 of Collins et al. (2021) as CAFeMe's tables use it.

The paper's own, with personal heads, is `fedrep`.

Departures, all as in the authors' CAFeMe code:
1. The head is averaged too, and a client starts from the averaged head: there are no personal heads. With
   `heads="local"` there are: the server averages bases alone, a client goes on with the head of its last participation,
   and who never took part starts from the initial one.
2. The head is every dense layer (with its normalization), the base the convolution blocks.
3. Adam for both parts, with two states per client that are kept between local updates (`optimizer_state="reset"`:
   each begins at rest; `optimizer="sgd"`: plain SGD).
4. At test time the whole averaged model is fine-tuned (`head_first`: in so many first steps its head alone).
Special cases: a network without a head, no head steps, and SGD = FedAvg on the same minibatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from pflbench.methods.base import (
    Batch,
    Batches,
    Draw,
    Empty,
    Initializer,
    Method,
    Objective,
    Round,
    Weights,
    descend_on,
    hyper,
    mean,
)
from pflbench.methods.fedper import Head, base_then_head, with_base
from pflbench.methods.local_adam import LocalAdam
from pflbench.methods.local_sgd import HeadApart
from pflbench.models.network import Network
from pflbench.optim import SGD, Adam, AdamState, Optimizer
from pflbench.typing import Float, Params, Tensor
from pflbench.vector import replace

Sent = Float[Tensor, "sent"]


class FedRepAveragedClient(NamedTuple):
    """Adam's states for the head and for the base, `()` under plain SGD or where not kept; the client's own head."""

    head: AdamState | Empty
    base: AdamState | Empty
    own: Head | Empty = ()


@dataclass(frozen=True)
class FedRepAveraged(HeadApart, LocalAdam, Method[Params, FedRepAveragedClient, Sent]):
    """The head first with the base frozen, then the base with the head frozen; the server averages both."""

    version: ClassVar[int] = 1
    base_steps: int = hyper(1, "Local steps on the base, on the minibatches that follow.", least=0)
    optimizer: Literal["adam", "sgd"] = hyper("adam", "Adam with kept states (authors' CAFeMe code) or plain SGD.")
    heads: Literal["averaged", "local"] = hyper(
        "averaged", "The server averages heads, too, or each client keeps its own.", added=True
    )
    head_first: int = hyper(0, "So many first steps of fine-tuning train the head alone.", added=True, least=0)

    def network(self, base: Network) -> Network:
        """The suite's, if it is a base and then a head."""
        return base_then_head(base)

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return Draw(steps=self.head_steps), Draw(steps=self.base_steps)

    def init_client(self, server: Params, new: Initializer) -> FedRepAveragedClient:
        """Two fresh states, each as long as its part."""
        by = self.by(self.head_lr)
        head, base = server[new.part("head")], server[new.part("base")]
        return FedRepAveragedClient(self.kept(by.init(head)), self.kept(by.init(base)), self._own(head))

    def client(
        self, f: Objective, server: Params, state: FedRepAveragedClient, *batches: Batches, round: Round
    ) -> tuple[Sent, FedRepAveragedClient]:
        """Train the head, then the base; upload both, or the base alone."""
        for_head, for_base = batches
        start = server if isinstance(state.own, tuple) else replace(server, f.part("head"), state.own)
        w, head = self._train(f, "head", self.by(self.head_lr), start, state.head, for_head)
        w, base = self._train(f, "base", self.by(self.base_lr), w, state.base, for_base)
        sent = w[f.part("base")] if self.heads == "local" else w
        return sent, FedRepAveragedClient(head, base, self._own(w[f.part("head")]))

    def server(self, server: Params, uploads: Float[Tensor, "cohort sent"], n: Weights, round: Round) -> Params:
        """The mean of whole models, or of bases beside the initial head."""
        return with_base(server, mean(uploads, n))

    def tuned(self, step: int) -> str | None:
        return "head" if step < self.head_first else None

    def _own(self, head: Head) -> Head | Empty:
        return head if self.heads == "local" else ()

    def by(self, lr: float) -> Optimizer:
        """The optimizer of a part with this rate."""
        return Adam(lr) if self.optimizer == "adam" else SGD(lr)

    def _train(
        self, f: Objective, part: str, by: Optimizer, w: Params, state: AdamState | Empty, batches: Batches
    ) -> tuple[Params, AdamState | Empty]:
        where = f.part(part)

        def gradient(piece: Params, b: Batch) -> Params:
            return f.grad(replace(w, where, piece), b, wrt=part)

        piece, state = descend_on(gradient, (w[where], self.begun(by, w[where], state)), batches, by)
        return replace(w, where, piece), self.kept(state)
