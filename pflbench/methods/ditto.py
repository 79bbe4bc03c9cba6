"""Ditto (Li et al. 2021, Algorithm 1), as CAFeMe's tables use it.

Departures:
1. The global part is S Adam steps with a state per client that is kept between local updates (authors' CAFeMe code;
   `optimizer_state="reset"`: each local update begins at rest; `optimizer="sgd"`: plain SGD, as CAFeMe's text has it).
2. The proximal anchor is the global model received in this round; `anchor="stale"`: what the client's last
   participation sent, at first the initial model (authors' code). The global model is the same either way.
3. CAFeMe's tables score the fine-tuned global model, never the personal one (stage "personalized": v as the client's
   last local update left it); the personal steps still advance the client's stream, as in the authors' code.
Special cases: lambda = 0: the personal model is trained as by plain local SGD on the same minibatches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from pflbench.methods.base import (
    Batch,
    Batches,
    Draw,
    Empty,
    Initializer,
    Method,
    Objective,
    Round,
    descend,
    descend_on,
    hyper,
)
from pflbench.methods.local_adam import LocalAdam
from pflbench.methods.local_sgd import LocalRate, PersonalRate, Pull, StepsOrPasses
from pflbench.optim import SGD, Adam, AdamState, Optimizer
from pflbench.typing import Params


class DittoClient(NamedTuple):
    """The personal model v; Adam's state for the global part, and the last upload, where they are kept."""

    personal: Params
    adam: AdamState | Empty
    sent: Params | Empty = ()


@dataclass(frozen=True)
class Ditto(
    StepsOrPasses, LocalRate, PersonalRate, Pull, LocalAdam, Method[Params, DittoClient, Params], personal_lr=1e-3
):
    """A personal model pulled toward the global one, beside ordinary federated training.

    `steps` or `epochs` are those of each of the two parts; `lr` is the global part's, `personal_lr` v's (plain SGD).
    """

    version: ClassVar[int] = 1
    personal_of = "training"
    anchor: Literal["current", "stale"] = hyper(
        "current", "What v is pulled toward: the global model received, or the client's last upload.", added=True
    )
    optimizer: Literal["sgd"] | None = hyper(None, "The global part's: plain SGD; none: Adam (authors' CAFeMe code).")

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return self.amount(), self.amount()

    def init_client(self, server: Params, new: Initializer) -> DittoClient:
        """The personal model starts at the initial global one."""
        return DittoClient(server, self.kept(self.by().init(server)), self._sent(server))

    def client(
        self, f: Objective, server: Params, state: DittoClient, *batches: Batches, round: Round
    ) -> tuple[Params, DittoClient]:
        mine, shared = batches
        anchor, by = server if isinstance(state.sent, tuple) else state.sent, self.by()

        # v descends along grad f(v) + lambda (v - w), w being the received model.
        def pulled(v: Params, b: Batch) -> Params:
            return f.grad(v, b) + self.lam * (v - anchor)

        personal = descend(pulled, state.personal, mine, SGD(self.personal_rate(self.lr)))
        # The global part, from w.
        w, adam = descend_on(f.grad, (server, self.begun(by, server, state.adam)), shared, by)
        return w, DittoClient(personal, self.kept(adam), self._sent(w))

    def by(self) -> Optimizer:
        """The global part's optimizer."""
        return Adam(self.lr) if self.optimizer is None else SGD(self.lr)

    def _sent(self, w: Params) -> Params | Empty:
        return w if self.anchor == "stale" else ()

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return state.personal
        return state.personal
