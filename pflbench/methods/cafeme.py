"""CAFeMe: context-aware federated meta-learning (arXiv 2312.15191, Algorithms 1 and 2; authors' code where it differs).

Departures from the paper's text, all as in the authors' code:
1. The modulator's context holds images only, no labels; it is recomputed from every batch that is predicted
   (`context="personalization"`: it is the personalized modulator's, of the last personalization batch; so also in the
   outer loss, where that is the last inner minibatch and the gradient passes through the modulator; before any step it
   is of the first training batch. With `labels`, one-hot labels join the context's features).
2. The meta-gradient is first order (`order="first"`); `order="exact"` differentiates through the inner path.
3. The outer loss is taken on the next six minibatches of the same cyclic stream, as one batch (`disjoint`: inner steps
   cycle through the first half of the static minibatches, the outer loss through the second).
4. One extra gate acts on the flattened features, so the last convolution block is gated twice (`extra_gate=False`: it
   does not).
5. The outer step is Adam, one state per client, kept between local updates (`optimizer_state="reset"`: each step is
   Adam's first one).
Departure from the code: the small network's modulator keeps its batch normalization, as in the paper and the released
code (`modulator_batch_norm=False`: as in the code that produced the printed numbers).

Special cases: gates fixed at 1 = MAML (first-order by default) on the base network; `order="exact"` = autograd
through all inner steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pflbench.errors import UsageError
from pflbench.methods.base import (
    Batch,
    Batches,
    Draw,
    Empty,
    Initializer,
    Method,
    Objective,
    Round,
    hyper,
    path,
    steps,
)
from pflbench.methods.local_adam import LocalAdam
from pflbench.methods.local_sgd import LocalSteps, TwoRates
from pflbench.models.network import Network
from pflbench.optim import Adam, AdamState, sgd
from pflbench.typing import Params

State = AdamState | Empty
"""A client's: Adam's, where it is kept."""


@dataclass(frozen=True)
class CAFeMe(LocalSteps, TwoRates, LocalAdam, Method[Params, State, Params], inner_lr=0.05, outer_lr=1e-3):
    """Context-aware meta-learning: a modulator gates the base network; both are meta-learned.

    `steps` are the inner SGD steps S, `inner_lr` is alpha, `outer_lr` beta (Adam).
    """

    version: ClassVar[int] = 1
    outer_batches: int = hyper(6, "Minibatches in the outer batch.", least=1)
    order: Literal["first", "exact"] = hyper("first", "Meta-gradient: first order (authors' code) or exact.")
    modulation: Literal["c0", "c1", "c2"] = hyper("c1", "c1: a·sigmoid(z) (the paper's Eq. 4.4); c0: a + z; c2: FiLM.")
    modulator_batch_norm: bool = hyper(True, "Batch normalization in the modulator's convolution blocks.")
    extra_gate: bool = hyper(True, "A gate on the flattened features, beside one for each hidden layer.", added=True)
    context: Literal["batch", "personalization"] = hyper(
        "batch",
        "What gates come from: the batch itself, or the last one that the model was personalized on.",
        added=True,
    )
    labels: bool = hyper(False, "Labels in the context; it must be that of personalization.", added=True)
    disjoint: bool = hyper(False, "Inner steps and outer loss on two halves of a client's data.", added=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels and self.context != "personalization":
            raise UsageError('CAFeMe: labels need context="personalization", as labels of a test batch are not known.')

    def network(self, base: Network) -> Network:
        """Modulator and base as one network."""
        return base.with_modulator(
            self.modulation,
            self.modulator_batch_norm,
            extra_gate=self.extra_gate,
            contextual=self.context == "personalization",
            labels=self.labels,
        )

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """S inner minibatches, then the outer batch."""
        inner, outer = Draw(steps=self.steps), Draw(steps=self.outer_batches, merge=True)
        return (replace(inner, part=(0.0, 0.5)), replace(outer, part=(0.5, 1.0))) if self.disjoint else (inner, outer)

    def init_client(self, server: Params, new: Initializer) -> State:
        return self.kept(Adam(self.outer_lr).init(server))

    def client(
        self, f: Objective, server: Params, state: State, *batches: Batches, round: Round
    ) -> tuple[Params, State]:
        inner, (outer,) = batches
        if inner:
            outer = self.predicting(outer, inner[-1])
        # phi_0 = theta; phi_{s+1} = phi_s - alpha grad f(phi_s)
        phi, trail = path(lambda p, b: sgd(p, f.grad(p, b), lr=self.inner_lr), server, inner)
        # The meta-gradient, of first order: grad f(phi_S) on the outer batch
        g = f.grad(phi, outer)
        if self.order == "exact":
            # d phi_{s+1} / d phi_s = I - alpha H_s, applied backwards along the path
            def back(g: Params, b: Batch, p: Params) -> Params:
                return sgd(g, f.hvp(p, b, g), lr=self.inner_lr)

            g = steps(back, g, inner[::-1], trail[::-1])
        # One Adam step on theta
        by = Adam(self.outer_lr)
        w, state = by.update(server, g, self.begun(by, server, state))
        return w, self.kept(state)

    def predicting(self, query: Batch, last: Batch | None) -> Batch:
        """With the context that gates come from."""
        if self.context == "batch":
            return query
        if last is None:
            raise UsageError("CAFeMe: a test set has no personalization batch to take the context from.")
        return query._replace(context=last)
