"""CAFeMe: context-aware federated meta-learning (arXiv 2312.15191, Algorithms 1 and 2).

A modulator reads a minibatch's images and gates the base network; both are meta-learned.

Departures (authors' code):
1. The context holds no labels, and is the predicted minibatch itself (paper: labels too, the last personalization
batch).
2. The meta-gradient is of first order; `order="exact"` differentiates through the inner path.
3. The outer loss takes the next minibatches of the same cyclic stream, as one batch (paper: disjoint data).
4. One more gate acts on the flattened features.
5. The outer step is Adam, whose memory a client keeps between local updates.
Departure from the code: the small network's modulator has batch normalization, as in the paper and the released code
(`modulator_batch_norm=False`: as in the code that produced the printed numbers).
Readings of 1, 3, 4 and 5 are in `benchmarks/cafeme/variants`.
Special cases: gates fixed at 1 = MAML on the base network.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.methods.base import Adam, Draw, Method, hyper, sgd, steps


@dataclass(frozen=True)
class CAFeMe(Method):
    """Context-aware meta-learning: a modulator gates the base network; both are meta-learned."""

    version: ClassVar[int] = 1
    steps: int = hyper(5, "Inner SGD steps S.", least=0)
    inner_lr: float = hyper(0.05, "Learning rate alpha of the inner steps.", least=0)
    outer_lr: float = hyper(1e-3, "Learning rate beta of the outer step (Adam).", least=0)
    outer_batches: int = hyper(6, "Minibatches in the outer batch.", least=1)
    order: Literal["first", "exact"] = hyper("first", "Order of the meta-gradient.")
    modulation: Literal["c0", "c1", "c2"] = hyper("c1", "c1: a·sigmoid(z) (the paper's Eq. 4.4); c0: a + z; c2: FiLM.")
    modulator_batch_norm: bool = hyper(True, "Batch normalization in the modulator's convolution blocks.")

    def network(self, base):
        return base.with_modulator(self.modulation, self.modulator_batch_norm)

    def draws(self, round):
        return Draw(steps=self.steps), Draw(steps=self.outer_batches, merge=True)

    def init_client(self, server, new):
        return Adam(self.outer_lr).init(server)

    def client(self, f, server, state, inner, outer, *, round):
        path = []

        def descend(phi, b):
            path.append(phi)
            return sgd(phi, f.grad(phi, b), lr=self.inner_lr)

        # phi_0 = theta; phi_{s+1} = phi_s - alpha grad f(phi_s); then the gradient of the outer batch at phi_S
        g = f.grad(steps(descend, server, inner), outer[0])
        if self.order == "exact":

            def back(g, b, phi):
                # d phi_{s+1} / d phi_s = I - alpha H_s, applied backwards along the path
                return sgd(g, f.hvp(phi, b, g), lr=self.inner_lr)

            g = steps(back, g, inner[::-1], path[::-1])
        return Adam(self.outer_lr).update(server, g, state)
