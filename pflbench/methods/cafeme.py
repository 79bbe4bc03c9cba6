"""CAFeMe: context-aware federated meta-learning (arXiv 2312.15191, Algorithms 1 and 2; authors' code where it differs).

Departures from the paper's text, all as in the authors' code:
1. The modulator's context holds images only, no labels; it is recomputed from every batch that is predicted.
2. The meta-gradient is first order (`order="first"`); `order="exact"` differentiates through the inner path.
3. The outer loss is taken on the next six minibatches of the same cyclic stream, as one batch.
4. One extra gate acts on the flattened features, so the last convolution block is gated twice.
5. The outer step is Adam, one state per client, kept between local updates.
Departure from the code: the small network's modulator keeps its batch normalization, as in the paper and the released
code (`modulator_batch_norm=False`: as in the code that produced the printed numbers).

Special cases: gates fixed at 1 = MAML (first-order by default) on the base network; `order="exact"` = autograd
through all inner steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Take, path, steps
from pflbench.models.network import Network
from pflbench.optim import AdamState, adam, adam_init, sgd
from pflbench.typing import Params


@dataclass(frozen=True)
class CAFeMe(Method[Params, AdamState, Params]):
    """Context-aware meta-learning: a modulator gates the base network; both are meta-learned."""

    version: ClassVar[int] = 1
    steps: int = 5
    """Inner SGD steps S per local update."""
    outer_batches: int = 6
    """Minibatches in the outer batch."""
    inner_lr: float = 0.05
    """Inner learning rate alpha."""
    outer_lr: float = 1e-3
    """Outer learning rate beta (Adam)."""
    order: Literal["first", "exact"] = "first"
    """Meta-gradient: first order (authors' code) or exact."""
    modulation: Literal["c0", "c1", "c2"] = "c1"
    """c1: a·sigmoid(z) (the paper's Eq. 4.4); c0: a + z; c2: FiLM."""
    modulator_batch_norm: bool = True
    """Batch normalization in the modulator's convolution blocks."""

    def network(self, base: Network) -> Network:
        """Modulator and base as one network."""
        return base.with_modulator(self.modulation, self.modulator_batch_norm)

    def takes(self) -> tuple[Take, ...]:
        """S inner minibatches, then the outer batch."""
        return Take(steps=self.steps), Take(steps=self.outer_batches, merge=True)

    def init_client(self, server: Params, new: Initializer) -> AdamState:
        return adam_init(server)

    def client(
        self, f: Objective, server: Params, state: AdamState, *taken: Batches, round: Round
    ) -> tuple[Params, AdamState]:
        """Adapt to phi by SGD, then one Adam step on theta with the meta-gradient."""
        inner, (outer,) = taken
        phi, trail = path(lambda p, b: sgd(p, f.grad(p, b), lr=self.inner_lr), server, inner)
        g = f.grad(phi, outer)
        if self.order == "exact":
            # d phi_{s+1} / d phi_s = I - alpha H_s, applied backwards along the path.
            def back(g: Params, b: Batch, p: Params) -> Params:
                return sgd(g, f.hvp(p, b, g), lr=self.inner_lr)

            g = steps(back, g, inner[::-1], trail[::-1])
        return adam(server, g, state, lr=self.outer_lr)
