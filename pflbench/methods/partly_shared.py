"""Models of two parts: one that the server averages, and a private one that stays at the client.

FedPer and FedRep share the base and keep the head, LG-FedAvg the reverse. What a client that never took part has for
its own is the common initial model's part; with `private_init="server"`, what the released FedRep code has there by an
aliasing accident: the server's, the mean of the last cohort's private parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from pflbench.methods.base import Batches, Initializer, Method, Objective, Round, Weights, hyper, mean
from pflbench.methods.local_sgd import LocalRate, SGDOptions
from pflbench.typing import Float, Params, Scalar, Tensor

Shared = Float[Tensor, "shared"]
Own = Float[Tensor, "own"]
Sent = Float[Tensor, "sent"]


class Kept(NamedTuple):
    """A private part, and 1 if its client ever took part, else 0."""

    part: Own
    seen: Scalar


Private = Own | Kept
"""A client's state; who took part is noted only where it matters."""


@dataclass(frozen=True)
class PrivateStart:
    """Hyperparameter `private_init`, the private part of a client that never took part."""

    private_init: Literal["server"] | None = hyper(
        None, "The private part before a client's first round: the initial one, or \"server\": the last cohort's mean."
    )

    def unseen(self, part: Own) -> Private:
        """The state of a client before its first local update, from the common initial part."""
        return part if self.private_init is None else Kept(part, part.new_zeros(()))


def own(state: Private, servers: Own) -> Own:
    """The client's private part; the server's where the client never took part and the state notes that."""
    return state if isinstance(state, Tensor) else torch.where(state.seen > 0, state.part, servers)


def kept(state: Private, part: Own) -> Private:
    """The state after a local update that came to this private part."""
    return part if isinstance(state, Tensor) else Kept(part, torch.ones_like(state.seen))


@dataclass(frozen=True)
class PartlyShared(LocalRate, SGDOptions, PrivateStart, Method[Params, Private, Sent]):
    """Base of FedPer, FedRep and LG-FedAvg. A subclass says which part is shared, and how both are trained.

    The server's state is a whole model, whose private part stays the initial one; with `private_init="server"` whole
    models are sent and averaged, and it is the mean of the last cohort's.
    """

    commits = "trained"
    global_model = "start"
    personal_of = "training"

    @property
    def shared_first(self) -> bool:
        """True if the shared part precedes the private one in the vector."""
        return True

    def shared(self, of: Objective | Initializer) -> slice:
        """Where the shared part lies; the private one is all before it, or all behind it."""
        raise TypeError(f"{type(self).__name__} does not say what it shares: write shared().")

    def fit(self, f: Objective, shared: Shared, private: Own, *batches: Batches) -> tuple[Shared, Own]:
        """Train both parts, by default together by SGD."""
        where = self.shared(f)
        w = self.sgd(f, self.whole(shared, private), *batches, lr=self.lr)
        return w[where], self.private(w, where)

    def whole(self, shared: Shared, private: Own) -> Params:
        """The model of these parts."""
        return torch.cat([shared, private] if self.shared_first else [private, shared])

    def private(self, w: Params, shared: slice) -> Own:
        """The private part of a model."""
        return w[shared.stop :] if self.shared_first else w[: shared.start]

    def init_client(self, server: Params, new: Initializer) -> Private:
        """The common initial model's private part."""
        return self.unseen(self.private(server, self.shared(new)))

    def client(
        self, f: Objective, server: Params, state: Private, *batches: Batches, round: Round
    ) -> tuple[Sent, Private]:
        """Train the shared part with the client's own; the shared part is sent (or all of it), the other is kept."""
        where = self.shared(f)
        shared, private = self.fit(f, server[where], own(state, self.private(server, where)), *batches)
        sent = shared if self.private_init is None else self.whole(shared, private)
        return sent, kept(state, private)

    def server(self, server: Params, uploads: Float[Tensor, "cohort sent"], n: Weights, round: Round) -> Params:
        """The mean of the shared parts beside the initial private one, or of whole models."""
        sent = mean(uploads, n)
        size = len(sent)
        return self.whole(sent, server[size:] if self.shared_first else server[:-size])

    def personal_model(self, f, server, state, *batches, round, upload=None):
        """The client's private part with the server's shared one."""
        if upload is not None:
            return self.whole(upload, state) if isinstance(state, Tensor) else upload
        where = self.shared(f)
        return self.whole(server[where], own(state, self.private(server, where)))
