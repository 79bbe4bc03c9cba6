"""FedRep (Collins et al., ICML 2021, arXiv 2102.07078, Algorithm 1).

As pFedVEM's and FedEC's tables use it; `fedrep-averaged` is CAFeMe's variant, which has no personal heads.

Departures:
1. The base is trained for epochs, too (the paper: one step, or epochs in its experiments); minibatches of both phases
   are drawn apart, and each phase has a fresh momentum, which is none of the paper's, nor is `weight_decay`. The part
   that is not trained does not move at all (in the released code with PyTorch 1, momentum and decay
   go on moving the head).
2. The whole cohort trains and keeps its head, whether its upload arrives or not (pFedVEM's tables; the paper:
   the sampled clients). Only bases that are sent or scored are trained, since the others would be thrown away.
3. The server's mean is weighted as the suite says (the paper: uniformly).
4. The frozen base turns all of a client's images into features once a round, on which the head, one linear layer, is
   trained: the same numbers, but for networks with batch normalization, whose statistics are then of all images.
   Where the images are augmented, or the network has dropout or another kind of head, the head is trained on the
   minibatches themselves.
5. `private_init` is none of the paper's: see `partly_shared`.
6. `one_optimizer`: as in the released code with PyTorch 1, one SGD of all parameters serves both phases, with one
   velocity for each. In the head's phase the base has no gradient yet, so it does not move and its velocity stays 0. In
   the base's phase the head's gradient is 0 and not none: its velocity goes on from the head's phase, each step takes
   it times the momentum plus the weight decay of the head as it is, and moves the head by it. (With PyTorch 2 the
   gradient of a frozen parameter is none, its velocity is kept and not used again, and one optimizer makes the same
   numbers as a fresh one for each phase.) Whoever trains then trains the base, too.
The global model, which the paper does not have, is the shared base with the initial head: a start for fine-tuning.
Special cases: without head epochs, the heads never change; without base epochs, the base never does and a head is
trained as by SGD on the features alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import Batch, Batches, Draw, Objective, Round, decayed, descend_on, hyper, steps
from pflbench.methods.fedper import Base, Head, PersonalHead
from pflbench.methods.linear_head import head_gradient
from pflbench.methods.local_sgd import BaseEpochs
from pflbench.optim import SGD, State


@dataclass(frozen=True)
class FedRep(BaseEpochs, PersonalHead):
    """The personal head first, on the frozen shared base; then the base, under the frozen head."""

    version: ClassVar[int] = 1
    head_epochs: int = hyper(10, "Local epochs K on the head.", least=0)
    one_optimizer: bool | None = hyper(
        None, "Whether one SGD serves both phases and goes on moving the frozen head, as in PyTorch 1."
    )

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """All images at once, for the features; passes for the head; passes for the base, where it is used."""
        return (
            Draw(whole=True),
            Draw(epochs=self.head_epochs, batch=self.batch, indexed=True),
            Draw(epochs=self.base_epochs, batch=self.batch, for_upload=not self.one_optimizer),
        )

    def fit(self, f: Objective, shared: Base, private: Head, *batches: Batches) -> tuple[Base, Head]:
        """Train the head on the frozen base, then the base under the frozen head."""
        everything, for_head, for_base = batches

        def by_head(h: Head, b: Batch) -> Head:
            return f.grad(self.whole(shared, h), b, wrt="head")

        cached = self.on_features(f, shared, private, everything) if f.cacheable else by_head
        if self.one_optimizer:
            return self.fit_on(f, shared, private, for_head, for_base, cached)
        head = self.sgd(f, private, for_head, lr=self.lr, grad=cached, wrt="head")

        def by_base(base: Base, b: Batch) -> Base:
            return f.grad(self.whole(base, head), b, wrt="base")

        return self.sgd(f, shared, for_base, lr=self.lr, grad=by_base, wrt="base"), head

    def fit_on(
        self,
        f: Objective,
        base: Base,
        head: Head,
        for_head: Batches,
        for_base: Batches,
        by_head: Callable[[Head, Batch], Head],
    ) -> tuple[Base, Head]:
        """Train the head, then the base, while the head goes on by what its optimizer remembers and by its decay."""
        by = SGD(self.lr, self.momentum)
        of_base, of_head = (f.decay(self.weight_decay, w, wrt=part) for w, part in ((base, "base"), (head, "head")))
        still = torch.zeros_like(head)

        def step(carry: tuple[Base, State, Head, State], b: Batch) -> tuple[Base, State, Head, State]:
            base, memory, head, left = carry
            g = decayed(f.grad(self.whole(base, head), b, wrt="base"), base, of_base)
            return *by.update(base, g, memory), *by.update(head, decayed(still, head, of_head), left)

        head, left = descend_on(by_head, (head, by.init(head)), for_head, by, decay=of_head)
        base, _, head, _ = steps(step, (base, by.init(base), head, left), for_base)
        return base, head

    def on_features(self, f: Objective, base: Base, head: Head, everything: Batches) -> Callable[[Head, Batch], Head]:
        """The head's gradient on features that the frozen base makes of all images once."""
        (whole,) = everything
        z = f.features(self.whole(base, head), whole)
        classes = head.shape[-1] // (z.shape[-1] + 1)

        def gradient(h: Head, b: Batch) -> Head:
            assert b.places is not None
            return head_gradient(h, z.index_select(0, b.places), b.labels, b.mask, classes)

        return gradient
