"""The protocol of a method: pure functions for one client of one seed, mapped over clients and seeds by the engine.

A method sees vectors, the objective `f` and minibatches. It never sees data loading, seeds, devices, or logging, and
it never calls autograd: gradients come from `f`, which lets one engine loop over clients and another stack them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.models.network import Network
from pflbench.typing import Float, Params, Part, Rows, Scalar

S = TypeVar("S")
"""Server state: vectors, or a NamedTuple of tensors."""
C = TypeVar("C")
"""One client's state between participations; `()` if it keeps none."""
U = TypeVar("U")
"""What a client uploads."""
Carry = TypeVar("Carry")


class Batch(NamedTuple):
    """One minibatch: row numbers into the pool and their labels; images are gathered at use.

    `mask` marks real rows where batches are padded (None: all real). `real` is False for a step that only pads a
    client's shorter sequence (None: every client makes this step); `steps` takes care of it.
    """

    rows: Rows
    labels: Rows
    mask: Tensor | None = None
    real: Tensor | None = None


Batches = tuple[Batch, ...]


@dataclass(frozen=True)
class Take:
    """What a client draws in one participation, in order, from its own stream of minibatches.

    Exactly one of `steps` and `epochs`: `steps` are the next minibatches of the client's cyclic stream, whose cursor
    survives across rounds; `epochs` are passes over all its minibatches, which leave the cursor alone.
    `merge`: the minibatches of `steps` concatenated into one batch (CAFeMe's outer batch).
    """

    steps: int | None = None
    epochs: int | None = None
    merge: bool = False

    def __post_init__(self) -> None:
        amount = self.epochs if self.steps is None else self.steps
        if (self.steps is None) == (self.epochs is None) or amount is None or amount < 0:
            raise ValueError("a Take has either steps or epochs, and at least 0 of them")
        if self.merge and not self.steps:
            raise ValueError("only a Take of steps can be merged into one batch")


@dataclass(frozen=True)
class Round:
    """What a method may know of the round besides its arguments; plain Python values, so `if` on them is allowed."""

    index: int


@runtime_checkable
class Objective(Protocol):
    """The loss a method sees: mean cross-entropy of a model on a minibatch's real rows, and what derives from it."""

    def __call__(self, w: Params, b: Batch) -> Scalar:
        """The loss, without a gradient."""

    def grad(self, w: Params, b: Batch, *, wrt: str | None = None) -> Part:
        """The gradient, of the whole vector or of the part named `wrt` (then only that part's entries)."""

    def hvp(self, w: Params, b: Batch, v: Params) -> Params:
        """Hessian-vector product of the loss at w."""

    def logits(self, w: Params, b: Batch) -> Tensor:
        """Logits ["batch", "classes"], without a gradient."""

    def part(self, name: str) -> slice:
        """Where a part (`base`, `head`, `modulator`) lies in the vector."""


@runtime_checkable
class Initializer(Protocol):
    """Makes initial models of one seed, and knows where their parts lie."""

    def __call__(self, k: int = 0) -> Params:
        """`new(0)` is the seed's initial model, shared by all methods; `new(k)` are further independent ones."""

    def part(self, name: str) -> slice:
        """Where a part (`base`, `head`, `modulator`) lies in the vector."""


Weights = Float[Tensor, "cohort"]
"""The cohort's weights in a server mean; they sum to one."""


class Method(Generic[S, C, U]):
    """A federated method. Subclasses are frozen dataclasses whose fields are the hyperparameters.

    Only `takes` and `client` must be written. `version` is raised whenever the method's numbers move.
    """

    version: ClassVar[int]

    def network(self, base: Network) -> Network:
        """The network this method trains (CAFeMe adds its modulator)."""
        return base

    def takes(self) -> tuple[Take, ...]:
        """What `client` is fed, in order."""
        raise TypeError(f"{type(self).__name__} does not say what its clients draw: write takes().")

    def init(self, new: Initializer, clients: int) -> S:
        """The server's state before round 0; `clients` is the number of training clients."""
        return cast(S, new())

    def init_client(self, server: S, new: Initializer) -> C:
        """A client's state before its first participation, given the server's state before round 0."""
        return cast(C, ())

    def client(self, f: Objective, server: S, state: C, *taken: Batches, round: Round) -> tuple[U, C]:
        """One participation of one client: returns (upload, new client state)."""
        raise TypeError(f"{type(self).__name__} does not say what its clients do: write client().")

    def server(self, server: S, uploads: U, n: Weights, round: Round) -> S:
        """The server's new state from the cohort's uploads, stacked along a leading axis ["cohort", …]."""
        return cast(S, pytree.tree_map(lambda u: mean(u, n), uploads))

    def deploy(self, f: Objective, server: S, support: Batches) -> Params:
        """The global model as this client gets it: stage "global", and where fine-tuning starts.

        `support`: one pass over the client's minibatches.
        """
        return cast(Params, server)


def mean(stacked: Float[Tensor, "cohort *shape"], n: Weights) -> Float[Tensor, "*shape"]:
    """The weighted mean over the cohort."""
    return torch.einsum("c,c...->...", n.to(stacked.dtype), stacked)


def steps(fn: Callable[..., Carry], carry: Carry, batches: Batches, *more: Sequence[Any]) -> Carry:
    """Fold `fn(carry, batch, *others)` over minibatches: the only loop over batches a method writes.

    A padded step leaves the whole carry (parameters, momentum, moments, counters) as it was. `more` are further
    sequences of the same length, handed to `fn` element by element.
    """
    for b, *others in zip(batches, *more, strict=True):
        carry = keep(b, fn(carry, b, *others), carry)
    return carry


def keep(b: Batch, new: Carry, old: Carry) -> Carry:
    """`new` if the step of `b` is real, else `old`."""
    if b.real is None:
        return new
    real = b.real
    return cast(Carry, pytree.tree_map(lambda x, y: torch.where(real, x, y), new, old))


def path(fn: Callable[[Carry, Batch], Carry], carry: Carry, batches: Batches) -> tuple[Carry, list[Carry]]:
    """`steps`, keeping the carry before every step (for differentiating through the path)."""
    before: list[Carry] = []

    def visit(now: Carry, b: Batch) -> Carry:
        before.append(now)
        return fn(now, b)

    return steps(visit, carry, batches), before


def total_loss(f: Objective, w: Params, batches: Batches) -> Scalar:
    """The sum of minibatch losses over `batches`."""
    return steps(lambda total, b: total + f(w, b), w.new_zeros(()), batches)
