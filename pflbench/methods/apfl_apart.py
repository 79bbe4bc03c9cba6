"""APFL as PFLlib has it (d832e76; Deng et al. 2020, arXiv 2003.13461): two models trained apart, mixed once a round.

A client trains the global model w and its own model v by SGD on the same minibatches, each along its own gradient, and
its weight alpha in every step; after the last one v becomes alpha v + (1 - alpha) w, which is scored.

Departures, all as in PFLlib:
1. The gradient of v is taken at v (the paper: at the mixture), and the mixture replaces v (the paper keeps v).
2. Alpha is adapted in every step by FedTorch's rule (see `apfl`), from the gradients before the steps and the models
   after them, and goes on from round to round.
3. The server's mean is weighted as the suite says (the paper: uniformly). `momentum` and `weight_decay` are added.
Special cases: `adaptive = false` with alpha = 1: v is trained as by SGD alone on the same minibatches; with alpha = 0
it is the model that the client sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from pflbench.methods.apfl import adapted
from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, decayed, hyper, steps
from pflbench.methods.local_sgd import LocalSGD
from pflbench.optim import State
from pflbench.typing import Params, Scalar


class Own(NamedTuple):
    """A client's own model, and its weight in the next mixture."""

    model: Params
    alpha: Scalar


Moving = tuple[Params, State]
"""A model and its optimizer's memory."""


@dataclass(frozen=True)
class APFLApart(LocalSGD, Method[Params, Own, Params], epochs=1):
    """A personal model beside the global one; after a round's training the two are mixed."""

    version: ClassVar[int] = 1
    personal_of = "training"
    alpha: float = hyper(1.0, "Weight of the client's own model in the mixture, at first.", least=0, most=1)
    adaptive: bool = hyper(True, "Each client adapts its alpha in every step.")

    def init_client(self, server: Params, new: Initializer) -> Own:
        """The common initial model."""
        return Own(server, server.new_tensor(self.alpha))

    def client(self, f: Objective, server: Params, state: Own, *batches: Batches, round: Round) -> tuple[Params, Own]:
        by, decay = self.local_optimizer(self.lr), f.decay(self.weight_decay, server)

        def step(carry: tuple[Moving, Moving, Scalar], b: Batch) -> tuple[Moving, Moving, Scalar]:
            (w, of_w), (v, of_v), alpha = carry
            at_w, at_v = f.grad(w, b), f.grad(v, b)
            w, of_w = by.update(w, decayed(at_w, w, decay), of_w)
            v, of_v = by.update(v, decayed(at_v, v, decay), of_v)
            if self.adaptive:
                alpha = adapted(alpha, v - w, at_v, at_w, self.lr)
            return (w, of_w), (v, of_v), alpha

        start = (server, by.init(server)), (state.model, by.init(state.model)), state.alpha
        (w, _), (v, _), alpha = steps(step, start, *batches)
        return w, Own(torch.lerp(w, v, alpha), alpha)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return state.model
        return state.model

    def diagnose(self, state: Own) -> dict[str, Scalar]:
        """The client's alpha."""
        return {"alpha": state.alpha}
