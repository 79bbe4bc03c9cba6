"""Per-FedAvg (Fallah et al., NeurIPS 2020, arXiv 2002.07948, Algorithm 1), Hessian-free by default (HF).

Departures:
1. Every meta step consumes four minibatches of the stream; in the authors' CAFeMe code the fourth only logged a loss,
   so it is skipped here. Where a suite draws single minibatches independently, the first three are the paper's.
2. The Hessian-vector product is a central difference along the query gradient on a third minibatch, delta = 1e-3
   (CAFeMe's code; the paper leaves delta open).
3. With `personal_epochs`, a personal model is what so many epochs of plain SGD with step alpha make of the global one
   (pFedVEM's tables: one; the paper: one gradient step); without, there are none.
4. The server's mean is weighted as the suite says (the paper: uniformly).
`order="first"` drops the Hessian term; `order="exact"` computes it by differentiating twice.
Special cases: alpha = 0 = FedAvg with learning rate beta on every second-of-four minibatch, and a personal model is
the global one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.methods.base import Batch, Batches, Draw, Empty, Method, Objective, Round, descend, hyper, steps
from pflbench.methods.local_sgd import Adapted, LocalSteps, TwoRates
from pflbench.optim import SGD, sgd
from pflbench.typing import Params


@dataclass(frozen=True)
class PerFedAvg(LocalSteps, TwoRates, Adapted, Method[Params, Empty, Params], inner_lr=0.05, outer_lr=1e-3):
    """MAML in a federation: the global model is trained to be good after one local SGD step.

    `steps` are meta steps; `inner_lr` is alpha, also of personal models; `outer_lr` is beta (plain SGD).
    """

    version: ClassVar[int] = 1
    personal_needs = "personal_epochs"
    order: Literal["hf", "first", "exact"] = hyper("hf", "Hessian term: central difference, none, or exact.")
    delta: float = hyper(1e-3, "Step of the central difference.", above=0)

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """Four minibatches per meta step."""
        return (Draw(steps=4 * self.steps, batch=self.batch),)

    def client(
        self, f: Objective, server: Params, state: Empty, *batches: Batches, round: Round
    ) -> tuple[Params, Empty]:
        (stream,) = batches

        def meta(w: Params, support: Batch, query: Batch, third: Batch) -> Params:
            # g = grad f(w - alpha grad f(w)), then w <- w - beta (I - alpha H(w)) g
            g = f.grad(sgd(w, f.grad(w, support), lr=self.inner_lr), query)
            return sgd(w, sgd(g, self._hessian_term(f, w, third, g), lr=self.inner_lr), lr=self.outer_lr)

        return steps(meta, server, stream[0::4], stream[1::4], stream[2::4]), state

    def personal_model(self, f, server, state, *batches, round):
        """Plain SGD from the global model."""
        return descend(f.grad, server, batches[0], SGD(self.inner_lr))

    def _hessian_term(self, f: Objective, w: Params, b: Batch, v: Params) -> Params:
        if self.order == "first":
            return v.new_zeros(v.shape)
        if self.order == "exact":
            return f.hvp(w, b, v)
        return (f.grad(w + self.delta * v, b) - f.grad(w - self.delta * v, b)) / (2 * self.delta)
