"""Per-FedAvg (Fallah et al., NeurIPS 2020, arXiv 2002.07948, Algorithm 1), Hessian-free by default (HF).

Departures:
1. Every meta step consumes four minibatches of the stream; in the authors' CAFeMe code the fourth only logged a loss,
   so it is skipped here. Where a suite draws single minibatches independently, the first three are the paper's.
2. The Hessian-vector product is a central difference along the query gradient on a third minibatch, delta = 1e-3
   (CAFeMe's code; the paper leaves delta open).
3. With `personal_epochs`, a personal model is what so many epochs of plain SGD with step alpha make of the global one
   (pFedVEM's tables: one; the paper: one gradient step); without, there are none.
`order="first"` drops the Hessian term; `order="exact"` computes it by differentiating twice.
Special cases: alpha = 0 = FedAvg with learning rate beta on every second-of-four minibatch, and a personal model is
the global one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.methods.base import Batch, Batches, Empty, Method, Objective, Round, Take, descend, steps
from pflbench.optim import sgd
from pflbench.typing import Params


@dataclass(frozen=True)
class PerFedAvg(Method[Params, Empty, Params]):
    """MAML in a federation: the global model is trained to be good after one local SGD step."""

    version: ClassVar[int] = 1
    personal_needs = "personal_epochs"
    steps: int = 5
    """Meta steps S per local update."""
    inner_lr: float = 0.05
    """Inner learning rate alpha."""
    outer_lr: float = 1e-3
    """Meta learning rate beta (plain SGD)."""
    order: Literal["hf", "first", "exact"] = "hf"
    """Hessian term: central difference, none, or exact."""
    delta: float = 1e-3
    """Step of the central difference."""
    batch: int | None = None
    """Examples per minibatch; none: the suite's."""
    personal_epochs: int | None = None
    """Epochs of plain SGD with step `inner_lr` that make a personal model; none: there are none."""

    def takes(self) -> tuple[Take, ...]:
        """Four minibatches per meta step."""
        return (Take(steps=4 * self.steps, batch=self.batch),)

    def client(self, f: Objective, server: Params, state: Empty, *taken: Batches, round: Round) -> tuple[Params, Empty]:
        """S meta steps from the global model."""
        (batches,) = taken

        def meta(w: Params, support: Batch, query: Batch, third: Batch) -> Params:
            g = f.grad(sgd(w, f.grad(w, support), lr=self.inner_lr), query)
            return sgd(w, sgd(g, self._hessian_term(f, w, third, g), lr=self.inner_lr), lr=self.outer_lr)

        return steps(meta, server, batches[0::4], batches[1::4], batches[2::4]), state

    def adapts(self) -> tuple[Take, ...]:
        if self.personal_epochs is None:
            return super().adapts()
        return (Take(epochs=self.personal_epochs, batch=self.batch),)

    def personalize(
        self, f: Objective, server: Params, state: Empty, sent: Params | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """Plain SGD from the global model."""
        if self.personal_epochs is None:
            return super().personalize(f, server, state, sent, *taken, round=round)
        (batches,) = taken
        return {"personalized": descend(f.grad, server, batches, lr=self.inner_lr)}

    def _hessian_term(self, f: Objective, w: Params, b: Batch, v: Params) -> Params:
        if self.order == "first":
            return v.new_zeros(v.shape)
        if self.order == "exact":
            return f.hvp(w, b, v)
        return (f.grad(w + self.delta * v, b) - f.grad(w - self.delta * v, b)) / (2 * self.delta)
