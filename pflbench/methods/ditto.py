"""Ditto (Li et al. 2021, Algorithm 1), as CAFeMe's tables use it.

Departures:
1. The global part is S Adam steps with a state per client that is kept between local updates (authors' CAFeMe code).
2. The proximal anchor is the global model received in this round (authors' code: the client's stale copy).
3. CAFeMe's tables score the fine-tuned global model, never the personal one (stage "personalized": v as the client's
   last local update left it); the personal steps still advance the client's stream, as in the authors' code.
Special cases: lambda = 0: the personal model is trained as by plain local SGD on the same minibatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from pflbench.methods.base import Batch, Batches, Draw, Initializer, Method, Objective, Round, descend, descend_on
from pflbench.methods.local_sgd import LocalRate, LocalSteps, PersonalRate, Pull
from pflbench.optim import SGD, Adam, AdamState
from pflbench.typing import Params


class DittoClient(NamedTuple):
    """The personal model v, and Adam's state for the global part."""

    personal: Params
    adam: AdamState


@dataclass(frozen=True)
class Ditto(LocalSteps, LocalRate, PersonalRate, Pull, Method[Params, DittoClient, Params], personal_lr=1e-3):
    """A personal model pulled toward the global one, beside ordinary federated training.

    `steps` are those of each of the two parts; `lr` is the global part's (Adam), `personal_lr` v's (plain SGD).
    """

    version: ClassVar[int] = 1
    personal_of = "training"

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return Draw(steps=self.steps), Draw(steps=self.steps)

    def init_client(self, server: Params, new: Initializer) -> DittoClient:
        """The personal model starts at the initial global one."""
        return DittoClient(server, Adam(self.lr).init(server))

    def client(
        self, f: Objective, server: Params, state: DittoClient, *batches: Batches, round: Round
    ) -> tuple[Params, DittoClient]:
        mine, shared = batches

        # v descends along grad f(v) + lambda (v - w), w being the received model.
        def pulled(v: Params, b: Batch) -> Params:
            return f.grad(v, b) + self.lam * (v - server)

        personal = descend(pulled, state.personal, mine, SGD(self.personal_rate(self.lr)))
        # The global part: Adam from w.
        w, adam = descend_on(f.grad, (server, state.adam), shared, Adam(self.lr))
        return w, DittoClient(personal, adam)

    def local_model(self, upload: Params, state: DittoClient) -> Params:
        return state.personal

    def personalize(self, f: Objective, server: Params, state: DittoClient, *batches: Batches, round: Round) -> Params:
        return state.personal
