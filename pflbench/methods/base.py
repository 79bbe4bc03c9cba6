"""The protocol of a method: pure functions for one client of one seed, mapped over clients and seeds by the engine.

A method sees vectors, the objective `f` and minibatches. It never sees data loading, seeds, devices, or logging, and
it never calls autograd: gradients come from `f`, which lets one engine loop over clients and another stack them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.errors import UsageError
from pflbench.models.network import Network
from pflbench.noise import branch, normal
from pflbench.optim import momentum, sgd
from pflbench.typing import Float, Int, Params, Part, Rows, Scalar

S = TypeVar("S")
"""Server state: vectors, or a NamedTuple of tensors."""
C = TypeVar("C")
"""One client's state between local updates; `Empty` if it keeps none."""
U = TypeVar("U")
"""What a client uploads."""
Carry = TypeVar("Carry")
Empty = tuple[()]
"""The state, `()`, of a client that keeps nothing."""


class Batch(NamedTuple):
    """One minibatch: the numbers of its examples in the pool, ["batch"], and their labels; images are gathered at use.

    Attributes:
        rows: The examples' row numbers in the pool.
        labels: Their labels.
        mask: Which rows are real where minibatches of several clients are padded to one size; None: all.
        real: False for a step that only pads a client's shorter sequence of minibatches, which `steps` skips; None:
            every client makes the step.
        places: Where the examples stand in the client's support; only for a `Take` that is `indexed`.
        key: The random key of augmentation and dropout; None where there are none.
    """

    rows: Rows
    labels: Rows
    mask: Tensor | None = None
    real: Tensor | None = None
    places: Rows | None = None
    key: Int[Tensor, ""] | None = None

    @property
    def examples(self) -> Int[Tensor, ""] | int:
        """Number of real rows."""
        return self.rows.shape[-1] if self.mask is None else self.mask.sum()


Batches = tuple[Batch, ...]


@dataclass(frozen=True)
class Take:
    """What a client draws in one local update, from its own stream of minibatches. Exactly one of the first three.

    Attributes:
        steps: The next so many minibatches of the stream, which is cyclic and continues over rounds if the suite's
            minibatches are static.
        epochs: So many passes over all minibatches.
        whole: One batch of all the client's examples (with static minibatches: of those that are in one).
        merge: The minibatches of `steps` become one batch (CAFeMe's outer batch).
        batch: Examples per minibatch; None: the suite's.
        indexed: Each minibatch has its `places`.
        used_only: Nothing is drawn where the result would be neither uploaded nor scored (pFedVEM's base).
        epochwise: With reshuffled minibatches, `steps` go through passes over all examples, each in a fresh order,
            instead of being drawn independently.
        phase: Drawn only in rounds of this phase, see `Method.phase`.
    """

    steps: int | None = None
    epochs: int | None = None
    merge: bool = False
    whole: bool = False
    batch: int | None = None
    indexed: bool = False
    used_only: bool = False
    epochwise: bool = False
    phase: str | None = None

    def __post_init__(self) -> None:
        amounts = [amount for amount in (self.steps, self.epochs) if amount is not None]
        if len(amounts) + self.whole != 1 or any(amount < 0 for amount in amounts):
            raise ValueError("a Take has either steps or epochs, at least 0 of them, or it is whole")
        if self.merge and not self.steps:
            raise ValueError("only a Take of steps can be merged into one batch")
        if self.batch is not None and (self.batch < 1 or self.whole):
            raise ValueError("a Take's batch is a number of rows, and a whole one has none")


@dataclass(frozen=True)
class Round:
    """What a method may know of the round besides its arguments.

    Attributes:
        index: The round's number, from 0.
        key: The client's random key in this round.
        phase: What `Method.phase` returned for this round; None: the method has no phases.
    """

    index: int
    key: Int[Tensor, ""] | None = None
    phase: str | None = None

    def noise(self, *name: str | int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Independent standard normal numbers of this shape, the same looped, stacked, and on any device.

        They depend on the run's seed, the client, the round, and `name`; give each use its own, e.g. ("head", step).
        """
        if self.key is None:
            raise ValueError("this round has no key, so it has no noise")
        return normal(self.key, name, shape, dtype)


Loss = Callable[..., Tensor]
"""`loss(outputs, labels, mask, *args)`: one scalar from a client's outputs ["batch", …]; no mask: all rows are real."""


@runtime_checkable
class Objective(Protocol):
    """The loss a method sees: mean cross-entropy of a model on a minibatch's real rows, and what derives from it.

    Where the suite augments, everything sees the minibatch's augmented images, the same at each look at one minibatch.
    Losses and their derivatives are those of training, with dropout; logits and features are without.
    """

    @property
    def cacheable(self) -> bool:
        """Whether a frozen base turns a row into the same features at every look, and the head is one linear layer."""

    def __call__(self, w: Params, b: Batch) -> Scalar:
        """The loss, without a gradient."""

    def grad(
        self,
        w: Params,
        b: Batch,
        *,
        wrt: str | None = None,
        loss: Loss | None = None,
        at: Literal["logits", "features"] = "logits",
        args: tuple[Tensor, ...] = (),
    ) -> Part:
        """The gradient of the mean cross-entropy or of another loss.

        Args:
            w: The model.
            b: The minibatch.
            wrt: The part whose entries of the gradient are wanted; None: all.
            loss: In place of the cross-entropy: `loss(outputs, labels, mask, *args)`.
            at: What its outputs are: the logits, or the features that the base makes of the images (then only the base
                has a gradient, and w may end with it).
            args: Further arguments of `loss`.
        """

    def hvp(self, w: Params, b: Batch, v: Params) -> Params:
        """Hessian-vector product of the loss at w."""

    def logits(self, w: Params, b: Batch) -> Tensor:
        """Logits ["batch", "classes"], without a gradient."""

    def features(self, w: Params, b: Batch) -> Tensor:
        """The base's outputs ["batch", "features"], without a gradient; w: the whole vector.

        Raises:
            UsageError: The head is more than one linear layer.
        """

    def part(self, name: str) -> slice:
        """Where a part (`base`, `head`, `modulator`) lies in the vector."""

    def last(self, layers: int) -> slice:
        """Where the last so many layers lie in the vector."""

    def decay(self, rate: float | None, w: Part, *, wrt: str | None = None) -> Part | None:
        """Weight decay for `descend` of w: `rate` for the entries of layers' weights, 0 for biases and normalizations.

        w is the whole vector, or the part named `wrt`. None for no rate, and for 0.
        """


@runtime_checkable
class Initializer(Protocol):
    """Makes initial models of one seed, and knows where their parts lie."""

    def __call__(self, k: int = 0) -> Params:
        """`new(0)` is the seed's initial model, shared by all methods; `new(k)` are further independent ones."""

    def part(self, name: str) -> slice:
        """Where a part (`base`, `head`, `modulator`) lies in the vector."""

    def last(self, layers: int) -> slice:
        """Where the last so many layers lie in the vector."""

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers by name, as `Round.noise` has them, from the seed alone and as wide as a model."""


Weights = Float[Tensor, "cohort"]
"""The cohort's weights in a server mean; they sum to one."""


class Method(Generic[S, C, U]):
    """A federated method. Subclasses are frozen dataclasses whose fields are the hyperparameters.

    Only `takes` and `client` must be written. `version` is raised whenever the method's numbers move.
    """

    version: ClassVar[int]
    trains: ClassVar[Literal["cohort", "everyone"]] = "cohort"
    """Which of the cohort make a local update: those whose uploads arrive, or all (as they keep a state)."""
    asks: ClassVar[Literal["cohort", "everyone"]] = "cohort"
    """The cohort: the one that the suite samples, or all training clients."""
    personal_from: ClassVar[Literal["server", "training"]] = "server"
    """What `personalize` starts from: the server's new state, or the result of this round's local update."""

    global_model: ClassVar[Literal["trained", "start", "none"]] = "trained"
    """What `deploy` returns: a trained model (stages "global" and "finetuned"), one that is only a start for
    fine-tuning ("finetuned" alone), or an untrained one (neither)."""
    personal_of: ClassVar[Literal["everyone", "training"]] = "everyone"
    """Which clients have a personal model: all, or only training clients, as their local updates make it."""
    personal_needs: ClassVar[str | None] = None
    """The hyperparameter without which `personalize` has no models, unless a local update leaves them."""
    records: ClassVar[tuple[str, ...]] = ()
    """The stages that `personalize` returns beside "personalized" (see `pflbench.stages.RECORDED`)."""

    needs_features: ClassVar[bool] = False
    """Whether the network's head must be one linear layer on features."""

    def __post_init__(self) -> None:
        """Refuse numbers that no method can mean, by the names that hyperparameters have everywhere."""
        for name, value in vars(self).items():
            least = 1 if name in ("batch", "samples", "clusters") else 0
            counted = least == 1 or name in ("lr", "steps", "epochs", "momentum", "weight_decay")
            counted = counted or name.endswith(("_lr", "_steps", "_epochs"))
            if counted and isinstance(value, int | float) and value < least:
                raise UsageError(f"{type(self).__name__}: {name} must be at least {least}, not {value}.")

    def network(self, base: Network) -> Network:
        """The network this method trains (CAFeMe adds its modulator). Raises `UsageError` if it cannot train `base`."""
        if self.needs_features and base.features is None:
            name = type(self).__name__
            raise UsageError(f"{name} needs a network whose head is one linear layer: mlp, lenet, or cnn6.")
        return base

    def phase(self, coin: float) -> str | None:
        """What kind of round it is, by a uniform number in [0, 1) for each round (L2GD). Default: there are none."""
        return None

    def takes(self) -> tuple[Take, ...]:
        """What `client` is fed, in order."""
        raise TypeError(f"{type(self).__name__} does not say what its clients draw: write takes().")

    def init(self, new: Initializer, clients: int) -> S:
        """The server's state before round 0; `clients` is the number of training clients."""
        return cast(S, new())

    def init_client(self, server: S, new: Initializer) -> C:
        """A client's state before its first local update, given the server's state before round 0."""
        return cast(C, ())

    def client(self, f: Objective, server: S, state: C, *taken: Batches, round: Round) -> tuple[U, C]:
        """One client's local update: returns (upload, new client state)."""
        raise TypeError(f"{type(self).__name__} does not say what its clients do: write client().")

    def server(self, server: S, uploads: U, n: Weights, round: Round) -> S:
        """The server's new state from the cohort's uploads, stacked along a leading axis ["cohort", …]."""
        return cast(S, pytree.tree_map(lambda u: mean(u, n), uploads))

    def deploy(self, f: Objective, server: S, support: Batches) -> Params:
        """The global model for this client: stage "global", and the start of fine-tuning.

        `support`: one pass over the client's minibatches; none where the model is scored on the test set.
        """
        return cast(Params, server)

    def adapts(self) -> tuple[Take, ...]:
        """What `personalize` is fed, in order."""
        return (Take(epochs=1),)

    def personalize(
        self, f: Objective, server: S, state: C, sent: U | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """One client's models by stage: "personalized", and those of `records`. By default there are none.

        Args:
            f: The objective.
            server: The server's state; with `sent`, the one that the client received.
            state: The client's state; with `sent`, after its local update.
            sent: The upload of this round's local update, where the suite scores personal models before aggregation
                and `personal_from` is "training"; else None.
            *taken: What `adapts` draws.
            round: The round.
        """
        raise UsageError(f"{type(self).__name__} has no personal models, so no stage 'personalized'.")

    def trained(self, sent: U, state: C) -> Params | None:
        """The client's model after a local update that returned (sent, state): stages "stored" and "sampled".

        By default None: there are no such stages.
        """
        return None

    def diagnose(self, state: C) -> dict[str, Scalar]:
        """Numbers about one client to be stored, from its state after training (pFedVEM's confidence)."""
        return {}


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


def descend(
    grad: Callable[[Part, Batch], Part],
    w: Part,
    batches: Batches,
    *,
    lr: float,
    beta: float | None = None,
    decay: Part | None = None,
) -> Part:
    """Gradient descent over `batches`, one update each; with momentum `beta`, from rest (None: without).

    `decay`: what `Objective.decay` returns, times w, is added to the gradient (None: nothing).
    """
    if beta is None:
        return steps(lambda w, b: sgd(w, decayed(grad(w, b), w, decay), lr=lr), w, batches)

    def push(carry: tuple[Part, Part], b: Batch) -> tuple[Part, Part]:
        w, velocity = carry
        return momentum(w, decayed(grad(w, b), w, decay), velocity, lr=lr, beta=beta)

    return steps(push, (w, torch.zeros_like(w)), batches)[0]


def decayed(g: Part, w: Part, decay: Part | None) -> Part:
    """The gradient with weight decay at w (None: without)."""
    return g if decay is None else torch.addcmul(g, decay, w)


def split(b: Batch, share: float) -> tuple[Batch, Batch] | None:
    """The first floor(share · n) of a minibatch's n real rows, and the others; each half with a key of its own.

    Real rows come first in `b` and in both halves, since a row's augmentation depends on its place. A step whose first
    half is empty is not real. `share` is in (0, 1); the product is rounded in float64.

    Returns:
        None where the first half is empty for every client, so that there is no step.
    """
    width = b.rows.shape[-1]
    most = math.floor(share * width)
    if not most:
        return None
    keys = [None if b.key is None else branch(b.key, "split", half) for half in (0, 1)]
    if b.mask is None:
        front, back = (_picked(b, itemgetter(part)) for part in (slice(most), slice(most, width)))
        return front._replace(key=keys[0]), back._replace(key=keys[1])
    n = b.mask.sum(-1)
    first = (share * n.double()).floor().long()
    real = first > 0 if b.real is None else b.real & (first > 0)
    places = torch.arange(width, device=b.rows.device)
    behind = (places[: width - most] + first).clamp(max=width - 1)  # where the second half's rows stand in b
    front, back = _picked(b, itemgetter(slice(most))), _picked(b, lambda x: x.gather(-1, behind))
    return (
        front._replace(mask=places[:most] < first, real=real, key=keys[0]),
        back._replace(mask=places[: width - most] < n - first, real=real, key=keys[1]),
    )


def _picked(b: Batch, pick: Callable[[Tensor], Tensor]) -> Batch:
    """A minibatch of some of another's rows."""
    places = None if b.places is None else pick(b.places)
    return b._replace(rows=pick(b.rows), labels=pick(b.labels), places=places)


def total_loss(f: Objective, w: Params, batches: Batches) -> Scalar:
    """The sum of minibatch losses over `batches`."""
    return steps(lambda total, b: total + f(w, b), w.new_zeros(()), batches)
