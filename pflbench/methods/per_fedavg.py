"""Per-FedAvg (Fallah et al., NeurIPS 2020, arXiv 2002.07948, Algorithm 1), Hessian-free by default (HF).

Departures:
1. A meta step takes four minibatches of the stream and uses three (CAFeMe's code only logs a loss on the fourth); where
   a suite draws minibatches independently, these are the paper's three.
2. The Hessian-vector product is a central difference along the query gradient on the third minibatch, delta = 1e-3
   (CAFeMe's code; the paper leaves delta open). `order="first"` drops the Hessian term, `order="exact"` differentiates
   twice.
3. `personal_epochs` of SGD with step alpha make a personal model (pFedVEM's tables: one; paper: one gradient step).
4. The suite sets the weights of the mean (paper: uniform).
Special cases: alpha = 0 = FedAvg at rate beta on every second of four minibatches.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.methods.base import SGD, Draw, Method, hyper, sgd, steps, train


@dataclass(frozen=True)
class PerFedAvg(Method):
    """MAML in a federation: the global model is trained to be good after one local SGD step."""

    version: ClassVar[int] = 1
    personal_needs = "personal_epochs"
    steps: int = hyper(5, "Meta steps per round.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    inner_lr: float = hyper(0.05, "Learning rate alpha of the inner step and of personal models.", least=0)
    outer_lr: float = hyper(1e-3, "Learning rate beta of meta steps.", least=0)
    personal_epochs: int | None = hyper(None, "Epochs that make a personal model; none: there is none.", least=0)
    order: Literal["hf", "first", "exact"] = hyper("hf", "Hessian term: central difference, none, or exact.")
    delta: float = hyper(1e-3, "Step of the central difference.", above=0)

    def draws(self, round):
        return (Draw(steps=4 * self.steps, batch=self.batch),)

    def client(self, f, server, state, stream, *, round):
        def meta(w, support, query, third):
            # g = grad f(w - alpha grad f(w)), then w <- w - beta (I - alpha H(w)) g
            g = f.grad(sgd(w, f.grad(w, support), lr=self.inner_lr), query)
            if self.order != "first":
                g = sgd(g, self.hessian_times(g, f, w, third), lr=self.inner_lr)
            return f.with_statistics(sgd(w, g, lr=self.outer_lr), w, support)

        return steps(meta, server, stream[0::4], stream[1::4], stream[2::4]), state

    def hessian_times(self, v, f, w, b):
        """H(w) v on a minibatch."""
        if self.order == "exact":
            return f.hvp(w, b, v)
        return (f.grad(w + self.delta * v, b) - f.grad(w - self.delta * v, b)) / (2 * self.delta)

    def personal_draws(self):
        return () if self.personal_epochs is None else (Draw(epochs=self.personal_epochs, batch=self.batch),)

    def personal_model(self, f, server, state, batches, *, round):
        return train(f, server, batches, SGD(self.inner_lr))[0]
