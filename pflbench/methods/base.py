"""The protocol of a method: pure functions for one client of one seed, mapped over clients and seeds by the engine.

A method is a frozen dataclass; its fields are its hyperparameters (`hyper`). It sees vectors, the objective `f` and
minibatches, never data loading, seeds, devices or autograd: gradients come from `f`, so that one engine loops over
clients and another stacks them. Write `draws` and `client`; the rest has defaults. Import all of it from here.

Functions (`round` is passed by keyword):

    network(base)                   the network to train; default: the suite's
    init(new, clients)              server state before round 0; default: the seed's initial model
    init_client(server, new)        a client's state before its first local update; default: ()
    draws(round)                    minibatches of a local update
    client(f, server, state, *batches, round)
                                    (upload, new state) of one local update
    server(server, uploads, n, round)
                                    new server state; default: the weighted mean of the uploads
    deploy(f, server, support)      the global model; default: the server's state
    tuned(step)                     part that the suite's fine-tuning trains in a step; default: all
    predicting(query, last)         a query minibatch as the global model sees it; default: as it is
    personal_draws()                minibatches of `personal_model`; default: none
    personal_model(f, server, state, *batches, round, upload=None)
                                    a client's personal model; default: none
    diagnose(state)                 numbers about a client, stored with the run; default: none

Attributes of the class:

    version          raise it whenever the method's numbers move
    joins            clients of a round: "cohort", or "everyone" who trains
    commits          clients that keep their new state if uploads get lost: "arrived", or all that "trained"
    global_model     result of `deploy`: a "trained" model (stages "global", "finetuned"), a "start" for fine-tuning
                     ("finetuned" alone), the "initial" model (the same; no client sends anything), or "none"
    personal_of      clients with a personal model: "everyone", or "training" if local updates make it
    personal_needs   hyperparameter without which `personal_model` makes no model after aggregation; with it, held-out
                     clients have one, too, whatever `personal_of` is
    records          stages that `personal_model` returns besides "personalized"
    needs_features   True if the network must be a base and then a head of one linear layer
    trains_statistics
                     False if networks with running statistics of batch normalization are refused
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.errors import UsageError
from pflbench.hyper import check_ranges, hyper
from pflbench.methods.objective import Batch, Batches, Initializer, Loss, Objective
from pflbench.models.network import Network
from pflbench.noise import normal
from pflbench.optim import SGD, Adam, AdamState, Optimizer, State, sgd
from pflbench.typing import Bool, Float, Int, Params, Scalar
from pflbench.vector import replace

__all__ = [
    "SGD",
    "Adam",
    "AdamState",
    "Batch",
    "Batches",
    "Draw",
    "Empty",
    "Initializer",
    "Loss",
    "Method",
    "Objective",
    "Optimizer",
    "Params",
    "Round",
    "State",
    "UsageError",
    "Weights",
    "base_then_head",
    "decayed",
    "hyper",
    "keep",
    "local_draw",
    "mean",
    "mean_statistics",
    "optimizer",
    "replace",
    "row_mean",
    "sgd",
    "steps",
    "total_loss",
    "train",
    "with_base",
]

Tree = Any
"""Tensors, or a NamedTuple of them."""
Carry = TypeVar("Carry")
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
        statistics: In `server`, entries of a model that are running statistics, bool ["params"]; None: none are.
    """

    index: int
    key: Int[Tensor, ""] | None = None
    coin: float | None = None
    statistics: Bool[Tensor, "params"] | None = None

    def noise(self, *name: str | int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Independent standard normal numbers of this shape, the same looped, stacked, and on any device.

        They depend on the run's seed, the client, the round, and `name`; give each use its own, e.g. ("head", step).
        """
        if self.key is None:
            raise ValueError("this round has no key, so it has no noise")
        return normal(self.key, name, shape, dtype)


class Method:
    """A federated method. Subclasses are frozen dataclasses whose fields are the hyperparameters."""

    version: ClassVar[int]
    joins: ClassVar[Literal["cohort", "everyone"]] = "cohort"
    commits: ClassVar[Literal["arrived", "trained"]] = "arrived"
    global_model: ClassVar[Literal["trained", "start", "initial", "none"]] = "trained"
    personal_of: ClassVar[Literal["everyone", "training"]] = "everyone"
    personal_needs: ClassVar[str | None] = None
    records: ClassVar[tuple[str, ...]] = ()
    needs_features: ClassVar[bool] = False
    trains_statistics: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_ranges(self)

    def network(self, base: Network) -> Network:
        """The network this method trains (CAFeMe adds its modulator). Raises `UsageError` if it cannot train `base`."""
        name = type(self).__name__
        if self.needs_features and base.features is None:
            raise UsageError(f"{name} needs a network whose head is one linear layer: mlp, lenet, or cnn6.")
        if base.statistics is not None and not self.trains_statistics:
            raise UsageError(f"{name} trains no running statistics: write track_running_stats=False in the BatchNorm.")
        return base_then_head(base) if self.needs_features else base

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """Draws whose minibatches `client` gets in this round, in order; the same for all clients."""
        raise UsageError(f"{type(self).__name__} does not say what its clients draw: write draws().")

    def init(self, new: Initializer, clients: int) -> Tree:
        """The server's state before round 0; `clients` is the number of training clients."""
        return new()

    def init_client(self, server: Tree, new: Initializer) -> Tree:
        """A client's state before its first local update, given the server's state before round 0."""
        return ()

    def client(self, f: Objective, server: Tree, state: Tree, *batches: Batches, round: Round) -> tuple[Tree, Tree]:
        """One client's local update: returns (upload, new client state)."""
        raise UsageError(f"{type(self).__name__} does not say what its clients do: write client().")

    def server(self, server: Tree, uploads: Tree, n: Weights, round: Round) -> Tree:
        """The server's new state from the cohort's uploads, stacked along a leading axis ["cohort", …]."""
        return pytree.tree_map(lambda u: mean(u, n), uploads)

    def deploy(self, f: Objective, server: Tree, support: Batches) -> Params:
        """The global model for this client: stage "global", and the start of fine-tuning.

        `support`: one pass over the client's minibatches; none where the model is scored on the test set.
        """
        model: Params = server
        return model

    def tuned(self, step: int) -> str | None:
        """The part of the model that the suite's fine-tuning trains in this step, from 0; None: all of it."""
        return None

    def predicting(self, query: Batch, last: Batch | None) -> Batch:
        """A query minibatch of this client as the global model, fine-tuned or not, is given it.

        `last`: the minibatch that it was fine-tuned on last or, before that, the first of a pass; None where the model
        is scored on the test set.
        """
        return query

    def personal_draws(self) -> tuple[Draw, ...]:
        """Draws whose minibatches `personal_model` gets if it has no upload, in order."""
        return ()

    def personal_model(
        self, f: Objective, server: Tree, state: Tree, *batches: Batches, round: Round, upload: Tree = None
    ) -> Params | dict[str, Params]:
        """A client's personal model; with `records`, models by stage: "personalized" and those.

        Without an upload: from the server's new state and the client's (stage "personalized"). With one, and without
        minibatches: the model after the local update that returned (upload, state), from the server's state before
        aggregation. A function that takes `upload` gives the method the stages "stored" and "sampled"; with
        `personal_of = "training"`, its result is also what suites score before aggregation.
        """
        raise UsageError(f"{type(self).__name__} has no personal models: write personal_model().")

    def diagnose(self, state: Tree) -> dict[str, Scalar]:
        """Numbers about one client to be stored, at most 64, from its state after training (pFedVEM's confidence)."""
        return {}


def steps(fn: Callable[..., Carry], carry: Carry, batches: Batches, *more: Sequence[Any]) -> Carry:
    """Fold `fn(carry, batch, *others)` over minibatches.

    A padded step leaves the whole carry (parameters, momentum, moments, counters) as it was. `more` are further
    sequences of the same length, handed to `fn` element by element.
    """
    for b, *others in zip(batches, *more, strict=True):
        carry = keep(b, fn(carry, b, *others), carry)
    return carry


def train(
    f: Objective,
    w: Params,
    batches: Batches,
    by: Optimizer,
    *,
    grad: Callable[[Params, Batch], Any] | None = None,
    wrt: str | None = None,
    decay: Tensor | None = None,
    memory: State = None,
) -> tuple[Params, State]:
    """Descend over minibatches, one update each: `train(f, w, batches, SGD(lr))`.

    Args:
        f: The objective.
        w: The model.
        batches: The minibatches.
        by: The optimizer.
        grad: Gradient at (model, minibatch), of the part `wrt`; None: `f.grad`.
        wrt: Part that is trained; None: all.
        decay: Weight decay of the entries that are trained, from `f.decay`; None: none.
        memory: The optimizer's, to go on from; None: from rest.

    Returns:
        The trained model, and the optimizer's memory.
    """
    where = None if wrt is None else f.part(wrt)

    def step(carry: tuple[Params, State], b: Batch) -> tuple[Params, State]:
        w, memory = carry
        old = w if where is None else w[where]
        g = f.grad(w, b, wrt=wrt) if grad is None else grad(w, b)
        new, memory = by.update(old, decayed(g, old, decay), memory)
        new = f.with_statistics(new, w, b, wrt=wrt)
        return new if where is None else replace(w, where, new), memory

    start = by.init(w if where is None else w[where]) if memory is None else memory
    return steps(step, (w, start), batches)


def optimizer(name: Literal["sgd", "adam"], lr: float, momentum: float | None = None) -> Optimizer:
    """The local optimizer of this name. Raises `UsageError` for a momentum of Adam."""
    if name == "adam" and momentum is not None:
        raise UsageError(f"momentum = {momentum} is an option of SGD: with optimizer = adam, set momentum to none.")
    return Adam(lr) if name == "adam" else SGD(lr, momentum)


def local_draw(epochs: int, steps: int | None, batch: int | None = None) -> Draw:
    """Draw of `epochs` passes or, unless `steps` is None, of so many minibatches.

    Static steps are the next ones of the client's stream and move its cursor for good, unlike epochs (CAFeMe's code);
    reshuffled ones are the first of the passes.
    """
    return Draw(epochs=epochs, batch=batch) if steps is None else Draw(steps=steps, in_passes=True, batch=batch)


def mean(stacked: Float[Tensor, "cohort *shape"], n: Weights) -> Float[Tensor, "*shape"]:
    """The weighted mean over the cohort."""
    return torch.einsum("c,c...->...", n.to(stacked.dtype), stacked)


def mean_statistics(new: Params, averaged: Params, round: Round) -> Params:
    """A server's new model with the clients' mean running statistics: other steps could make a variance negative."""
    return new if round.statistics is None else torch.where(round.statistics, averaged, new)


def row_mean(values: Float[Tensor, "rows *shape"], mask: Tensor | None) -> Float[Tensor, "*shape"]:
    """The mean over a minibatch's real rows; no mask: all are real."""
    if mask is None:
        return values.mean(0)
    real = mask.view(-1, *[1] * (values.dim() - 1))
    return torch.where(real, values, 0).sum(0) / mask.sum().clamp(min=1)


def decayed(g: Tensor, w: Tensor, decay: Tensor | None) -> Tensor:
    """The gradient with weight decay at w (None: without)."""
    return g if decay is None else torch.addcmul(g, decay, w)


def keep(b: Batch, new: Carry, old: Carry) -> Carry:
    """`new` if the step of `b` is real, else `old`."""
    if b.real is None:
        return new
    real = b.real
    chosen: Carry = pytree.tree_map(lambda x, y: torch.where(real, x, y), new, old)
    return chosen


def total_loss(f: Objective, w: Params, batches: Batches) -> Scalar:
    """The sum of minibatch losses over `batches`."""
    return steps(lambda total, b: total + f(w, b), w.new_zeros(()), batches)


def base_then_head(network: Network) -> Network:
    """The network. Raises `UsageError` unless its vector is a base and then a head, on which `with_base` relies."""
    if (parts := list(network.layout.parts)) != ["base", "head"]:
        raise UsageError(
            f"This method needs a network of a base and then a head, not of {' and '.join(parts)}; the network's "
            f"layers are {', '.join(network.layout.layers)}. Take a network of more layers, or name another head."
        )
    return network


def with_base(server: Params, base: Tensor) -> Params:
    """The server's vector with another base."""
    return torch.cat([base, server[base.shape[-1] :]])
