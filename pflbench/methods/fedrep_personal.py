"""FedRep with personal heads (Collins et al., ICML 2021, arXiv 2102.07078, Algorithm 1).

As pFedVEM's and FedEC's tables use it; `fedrep` is CAFeMe's variant, whose heads are averaged.

Departures:
1. The base is trained for epochs, too (the paper: one step, or epochs in its experiments); minibatches of both phases
   are drawn apart, and each phase has a fresh momentum, which is none of the paper's.
2. Everyone who is asked trains and keeps its head, whether its upload arrives or not (pFedVEM's tables; the paper:
   the sampled clients). Only bases that are sent or scored are trained, since the others would be thrown away.
3. The server's mean is weighted as the suite says (the paper: uniformly).
4. The frozen base turns all of a client's images into features once a round, on which the head, one linear layer, is
   trained: the same numbers, but for networks with batch normalization, whose statistics are then of all images.
The global model, which the paper does not have, is the shared base with the initial head.
Special cases: without head epochs, the heads never change; without base epochs, the base never does and a head is
trained as by SGD on the features alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Take, Weights, descend, mean
from pflbench.methods.fedper import Base, Head, together, with_base
from pflbench.methods.linear_head import head_gradient
from pflbench.typing import Float, Params, Tensor


@dataclass(frozen=True)
class FedRepPersonal(Method[Params, Head, Base]):
    """The personal head first, on the frozen shared base; then the base, under the frozen head."""

    version: ClassVar[int] = 1
    trains = "everyone"
    personal_from = "training"
    needs_features = True
    head_epochs: int = 10
    """Local epochs K on the head."""
    base_epochs: int = 5
    """Local epochs on the base, after them."""
    lr: float = 1e-3
    """Learning rate of both (SGD)."""
    momentum: float | None = None
    """Momentum of both, fresh in each phase; none: without."""
    batch: int | None = None
    """Rows per minibatch; none: the suite's."""

    def takes(self) -> tuple[Take, ...]:
        """All images at once, for the features; passes for the head; passes for the base, where it is used."""
        return (
            Take(whole=True),
            Take(epochs=self.head_epochs, batch=self.batch, indexed=True),
            Take(epochs=self.base_epochs, batch=self.batch, used_only=True),
        )

    def init_client(self, server: Params, new: Initializer) -> Head:
        """The common initial head."""
        return server[new.part("head")]

    def client(self, f: Objective, server: Params, state: Head, *taken: Batches, round: Round) -> tuple[Base, Head]:
        """Train the head on the frozen base's features, then the base; the base is sent, the head is kept."""
        (everything,), for_head, for_base = taken
        z = f.features(server, everything)
        classes = state.shape[-1] // (z.shape[-1] + 1)

        def on_features(h: Head, b: Batch) -> Head:
            assert b.places is not None
            return head_gradient(h, z.index_select(0, b.places), b.labels, b.mask, classes)

        head = descend(on_features, state, for_head, lr=self.lr, beta=self.momentum)
        base = descend(
            lambda base, b: f.grad(together(f, server, head, base), b, wrt="base"),
            server[f.part("base")],
            for_base,
            lr=self.lr,
            beta=self.momentum,
        )
        return base, head

    def server(self, server: Params, uploads: Float[Tensor, "cohort base"], n: Weights, round: Round) -> Params:
        """The mean of the bases; the initial head stays beside it."""
        return with_base(server, mean(uploads, n))

    def adapts(self) -> tuple[Take, ...]:
        """Nothing: what training leaves behind is used."""
        return ()

    def personalize(
        self, f: Objective, server: Params, state: Head, sent: Base | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """The client's head on the base it just trained or, after aggregation, on the server's."""
        return {"personalized": together(f, server, state, sent)}
