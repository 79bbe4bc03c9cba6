"""The protocol of a method: pure functions for one client of one seed, mapped over clients and seeds by the engine.

A method sees vectors, the objective `f` and minibatches. It never sees data loading, seeds, devices, or logging, and
it never calls autograd: gradients come from `f`, which lets one engine loop over clients and another stack them.
All that a method needs can be imported from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.errors import UsageError
from pflbench.hyper import change_defaults, check_ranges, hyper
from pflbench.methods.loops import decayed, descend, descend_on, keep, path, split, steps, total_loss
from pflbench.methods.objective import Batch, Batches, Initializer, Loss, Objective
from pflbench.models.network import Network
from pflbench.noise import normal
from pflbench.typing import Float, Int, Params, Scalar

__all__ = [
    "Batch",
    "Batches",
    "Draw",
    "Empty",
    "Initializer",
    "Loss",
    "Method",
    "Objective",
    "Round",
    "Weights",
    "decayed",
    "descend",
    "descend_on",
    "hyper",
    "keep",
    "mean",
    "path",
    "split",
    "steps",
    "total_loss",
]

S = TypeVar("S")
"""Server state: vectors, or a NamedTuple of tensors."""
C = TypeVar("C")
"""One client's state between local updates; `Empty` if it keeps none."""
U = TypeVar("U")
"""Upload of a client."""
Empty = tuple[()]
"""The state, `()`, of a client that keeps nothing."""
Span = tuple[float, float] | float | None
"""A part of a client's data: from one share of it to another; so large a share at a random place; None: all."""
Weights = Float[Tensor, "cohort"]
"""The cohort's weights in a server mean, float64; they sum to one."""


@dataclass(frozen=True)
class Draw:
    """Minibatches that a client draws from its own stream. Exactly one of the first three.

    Attributes:
        steps: The next so many minibatches of the stream, which is cyclic and continues over rounds if the suite's
            minibatches are static.
        epochs: So many passes over all minibatches.
        whole: One batch of all the client's examples (with static minibatches: of those that are in one).
        merge: The minibatches of `steps` become one batch (CAFeMe's outer batch).
        batch: Examples per minibatch; None: the suite's.
        indexed: Each minibatch has its `places`.
        in_passes: With reshuffled minibatches, `steps` go through passes over all examples, each in a fresh order,
            instead of being drawn independently.
        part: Of a part of the minibatches (reshuffled ones: of the examples) alone, as if the client had no others:
            (0.0, 0.8) are the first floor(0.8 n) of n, (0.8, 1.0) all behind these; 0.8 are max(1, floor(0.8 n)) in a
            row, whose place is random, the same in all draws of one local update. All of them where a part is empty.
            Static `steps` are of all or of either half, each with a stream of its own.
        for_upload: Nothing is drawn where the result would be neither uploaded nor scored (pFedVEM's base).
    """

    steps: int | None = None
    epochs: int | None = None
    whole: bool = False
    merge: bool = False
    batch: int | None = None
    indexed: bool = False
    in_passes: bool = False
    for_upload: bool = False
    part: Span = None

    def __post_init__(self) -> None:
        amounts = [amount for amount in (self.steps, self.epochs) if amount is not None]
        if len(amounts) + self.whole != 1 or any(amount < 0 for amount in amounts):
            raise ValueError("a Draw has either steps or epochs, at least 0 of them, or it is whole")
        if self.merge and not self.steps:
            raise ValueError("only a Draw of steps can be merged into one batch")
        if self.batch is not None and (self.batch < 1 or self.whole):
            raise ValueError("a Draw's batch is a number of rows, and a whole one has none")
        first, last = self.part if isinstance(self.part, tuple) else (0.0, 1.0 if self.part is None else self.part)
        if not 0 <= first < last <= 1:
            raise ValueError(f"a Draw's part is a share in (0, 1], or a tuple of two that grow, not {self.part}")


@dataclass(frozen=True)
class Round:
    """Facts of the round that a method may use besides its arguments.

    Attributes:
        index: The round's number, from 0.
        key: The client's random key in this round; None in `draws` and `server`, which are no client's.
        coin: In `draws`, a number uniform in [0, 1) that is the round's own, the same for all clients; else None.
    """

    index: int
    key: Int[Tensor, ""] | None = None
    coin: float | None = None

    def noise(self, *name: str | int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Independent standard normal numbers of this shape, the same looped, stacked, and on any device.

        They depend on the run's seed, the client, the round, and `name`; give each use its own, e.g. ("head", step).
        """
        if self.key is None:
            raise ValueError("this round has no key, so it has no noise")
        return normal(self.key, name, shape, dtype)


class Method(Generic[S, C, U]):
    """A federated method. Subclasses are frozen dataclasses whose fields are the hyperparameters.

    Only `draws` and `client` must be written. `version` is raised whenever the method's numbers move.
    `class FedFoo(LocalSGD[...], epochs=20)` gives inherited hyperparameters other defaults.
    """

    version: ClassVar[int]
    joins: ClassVar[Literal["cohort", "everyone"]] = "cohort"
    """Clients asked in a round: the cohort that the suite samples, or all training clients."""
    commits: ClassVar[Literal["arrived", "trained"]] = "arrived"
    """Clients that train and keep their new state when uploads get lost: those with an arrived upload, or all asked."""
    personal: ClassVar[Literal["server", "local"]] = "server"
    """Where a suite scores personal models before aggregation, they are made from the server's state, as always
    (`personalize`), or are what this round's local update leaves (`local_model`)."""

    global_model: ClassVar[Literal["trained", "start", "initial", "none"]] = "trained"
    """Result of `deploy`: a trained model (stages "global" and "finetuned"), one that is only a start for
    fine-tuning ("finetuned" alone), the initial one, of which the same holds and to which no client sends anything, or
    none: it has neither stage, and `deploy` is not called."""
    personal_of: ClassVar[Literal["everyone", "training"]] = "everyone"
    """Which clients have a personal model: all, or only training clients, as their local updates make it."""
    personal_needs: ClassVar[str | None] = None
    """The hyperparameter without which `personalize` has no models."""
    records: ClassVar[tuple[str, ...]] = ()
    """The stages that personal models have beside "personalized" (see `pflbench.stages.RECORDED`)."""

    meta_learned: ClassVar[bool] = False
    """True if training lowers the loss after a client's own adaptation and asks nothing of the model before it."""

    needs_features: ClassVar[bool] = False
    """True if the network's head must be one linear layer on features."""

    def __init_subclass__(cls, **defaults: Any) -> None:
        super().__init_subclass__()
        change_defaults(cls, defaults)

    def __post_init__(self) -> None:
        check_ranges(self)

    def network(self, base: Network) -> Network:
        """The network this method trains (CAFeMe adds its modulator). Raises `UsageError` if it cannot train `base`."""
        if self.needs_features and base.features is None:
            name = type(self).__name__
            raise UsageError(f"{name} needs a network whose head is one linear layer: mlp, lenet, or cnn6.")
        return base

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """Draws whose minibatches `client` gets in this round, in order; the same for all clients."""
        raise UsageError(f"{type(self).__name__} does not say what its clients draw: write draws().")

    def init(self, new: Initializer, clients: int) -> S:
        """The server's state before round 0; `clients` is the number of training clients."""
        return cast(S, new())

    def init_client(self, server: S, new: Initializer) -> C:
        """A client's state before its first local update, given the server's state before round 0."""
        return cast(C, ())

    def client(self, f: Objective, server: S, state: C, *batches: Batches, round: Round) -> tuple[U, C]:
        """One client's local update: returns (upload, new client state)."""
        raise UsageError(f"{type(self).__name__} does not say what its clients do: write client().")

    def server(self, server: S, uploads: U, n: Weights, round: Round) -> S:
        """The server's new state from the cohort's uploads, stacked along a leading axis ["cohort", …]."""
        return cast(S, pytree.tree_map(lambda u: mean(u, n), uploads))

    def deploy(self, f: Objective, server: S, support: Batches) -> Params:
        """The global model for this client: stage "global", and the start of fine-tuning.

        `support`: one pass over the client's minibatches; none where the model is scored on the test set.
        """
        return cast(Params, server)

    def tuned(self, step: int) -> str | None:
        """The part of the model that the suite's fine-tuning trains in this step, from 0; None: all of it."""
        return None

    def predicting(self, query: Batch, last: Batch | None) -> Batch:
        """A query minibatch of this client as the global model, fine-tuned or not, is given it.

        `last`: the minibatch that it was fine-tuned on last or, before that, the first of a pass; None where the model
        is scored on the test set.
        """
        return query

    def local_model(self, upload: U, state: C) -> Params | dict[str, Params]:
        """The client's model after a local update that returned (upload, state): stages "stored" and "sampled".

        With `personal = "local"` also its personal model before aggregation; where there are `records`, a dict as
        `personalize` returns it. Without this function there are no such stages.
        """
        raise UsageError(f"{type(self).__name__} does not say what its clients keep: write local_model().")

    def personal_draws(self) -> tuple[Draw, ...]:
        """Draws whose minibatches `personalize` gets, in order."""
        return ()

    def personalize(
        self, f: Objective, server: S, state: C, *batches: Batches, round: Round
    ) -> Params | dict[str, Params]:
        """A client's personal model, from the server's new state and its own: stage "personalized".

        Where there are `records`, the models by stage: "personalized" and those. Without this function there are none.
        """
        raise UsageError(f"{type(self).__name__} has no personal models, so no stage 'personalized'.")

    def diagnose(self, state: C) -> dict[str, Scalar]:
        """Numbers about one client to be stored, at most 64, from its state after training (pFedVEM's confidence)."""
        return {}


def mean(stacked: Float[Tensor, "cohort *shape"], n: Weights) -> Float[Tensor, "*shape"]:
    """The weighted mean over the cohort."""
    return torch.einsum("c,c...->...", n.to(stacked.dtype), stacked)
