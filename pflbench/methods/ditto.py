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

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Take, steps
from pflbench.optim import AdamState, adam, adam_init, sgd
from pflbench.typing import Params


class DittoClient(NamedTuple):
    """The personal model v, and Adam's state for the global part."""

    personal: Params
    adam: AdamState


@dataclass(frozen=True)
class Ditto(Method[Params, DittoClient, Params]):
    """A personal model pulled toward the global one, beside ordinary federated training."""

    version: ClassVar[int] = 1
    personal_of = "training"
    steps: int = 5
    """Local steps of each of the two parts."""
    lr: float = 1e-3
    """Learning rate of the global part (Adam)."""
    personal_lr: float = 1e-3
    """Learning rate of the personal part (plain SGD)."""
    lam: float = 0.1
    """Strength lambda of the pull toward the global model."""

    def takes(self) -> tuple[Take, ...]:
        return Take(steps=self.steps), Take(steps=self.steps)

    def init_client(self, server: Params, new: Initializer) -> DittoClient:
        """The personal model starts at the initial global one."""
        return DittoClient(server, adam_init(server))

    def client(
        self, f: Objective, server: Params, state: DittoClient, *taken: Batches, round: Round
    ) -> tuple[Params, DittoClient]:
        """Proximal SGD on v, then Adam on a copy of the global model."""
        mine, shared = taken

        def pull(v: Params, b: Batch) -> Params:
            return sgd(v, f.grad(v, b) + self.lam * (v - server), lr=self.personal_lr)

        def train(carry: tuple[Params, AdamState], b: Batch) -> tuple[Params, AdamState]:
            w, moments = carry
            return adam(w, f.grad(w, b), moments, lr=self.lr)

        personal = steps(pull, state.personal, mine)
        w, moments = steps(train, (server, state.adam), shared)
        return w, DittoClient(personal, moments)

    def adapts(self) -> tuple[Take, ...]:
        return ()

    def personalize(
        self, f: Objective, server: Params, state: DittoClient, sent: Params | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        return {"personalized": state.personal}

    def trained(self, sent: Params, state: DittoClient) -> Params:
        return state.personal
