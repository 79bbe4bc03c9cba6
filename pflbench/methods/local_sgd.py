"""Hyperparameters that many methods share, each declared once; a method is composed of those it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Draw, Objective, Round, descend, hyper
from pflbench.optim import SGD, Adam, Optimizer
from pflbench.typing import Part


@dataclass(frozen=True)
class OwnBatch:
    """Minibatches of the method's own size."""

    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)


@dataclass(frozen=True)
class LocalSteps:
    """Local updates of a few minibatches."""

    steps: int = hyper(5, "Local steps per round.", least=0)


@dataclass(frozen=True)
class StepsInstead(OwnBatch):
    """Local updates that may be of so many minibatches."""

    steps: int | None = hyper(None, "Minibatches of a local update, in place of epochs; none: epochs.", least=0)


@dataclass(frozen=True)
class LocalEpochs(StepsInstead):
    """Local updates of passes, or of `steps`.

    Static steps are the next ones of the client's stream and move its cursor for good, as CAFeMe's do and epochs do
    not (CAFeMe's code); reshuffled ones are the first of the passes.
    """

    epochs: int = hyper(5, "Local epochs per round.", least=0)

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (self.drawn(),)

    def drawn(self) -> Draw:
        """`steps` minibatches or, where none are said, `epochs` passes."""
        amount = Draw(epochs=self.epochs) if self.steps is None else Draw(steps=self.steps, in_passes=True)
        return replace(amount, batch=self.batch)


@dataclass(frozen=True)
class LocalRate:
    """One rate."""

    lr: float = hyper(1e-3, "Local learning rate.", least=0)


@dataclass(frozen=True)
class TwoRates:
    """The rates of methods with an inner and an outer loop."""

    inner_lr: float = hyper(0.01, "Learning rate of the inner updates (SGD).", least=0)
    outer_lr: float = hyper(1.0, "Learning rate of the outer updates, or the server's step.", least=0)


@dataclass(frozen=True)
class ServerRate:
    """A server that makes steps."""

    server_lr: float = hyper(1.0, "The server's learning rate, or its step along the mean update.", least=0)


@dataclass(frozen=True)
class HeadApart:
    """Head and base are trained apart, the head by a few steps."""

    head_steps: int = hyper(5, "Local steps on the head.", least=0)
    head_lr: float = hyper(1e-3, "Learning rate of the head.", least=0)
    base_lr: float = hyper(1e-3, "Learning rate of the base.", least=0)


@dataclass(frozen=True)
class BaseEpochs(OwnBatch):
    """Epochs for the base alone."""

    base_epochs: int = hyper(5, "Local epochs on the base, after the head is trained.", least=0)


@dataclass(frozen=True)
class Pull:
    """A pull toward another model."""

    lam: float = hyper(0.1, "Strength lambda of the pull toward the global model.", least=0)


@dataclass(frozen=True)
class Momentum:
    """Momentum of local SGD."""

    momentum: float | None = hyper(None, "Momentum of the local SGD, fresh in each update; none: without.", least=0)


@dataclass(frozen=True)
class SGDOptions(Momentum):
    """Momentum and weight decay of local SGD."""

    weight_decay: float | None = hyper(
        None, "Weight decay of the layers' weights (not of biases and normalizations); none: without.", least=0
    )

    def sgd(
        self,
        f: Objective,
        w: Part,
        batches: Batches,
        *,
        lr: float,
        grad: Callable[[Part, Batch], Part] | None = None,
        wrt: str | None = None,
    ) -> Part:
        """SGD from w over the minibatches; `grad`: in place of `f.grad`; `wrt`: the part that w is (None: all)."""
        decay = f.decay(self.weight_decay, w, wrt=wrt)
        return descend(grad or f.grad, w, batches, self.local_optimizer(lr), decay=decay)

    def local_optimizer(self, lr: float) -> Optimizer:
        """The optimizer of a local update."""
        return SGD(lr, self.momentum)


@dataclass(frozen=True)
class LocalSGD(LocalEpochs, LocalRate, SGDOptions):
    """Clients that train by epochs of minibatch SGD."""


@dataclass(frozen=True)
class LocalSGDOrAdam(LocalSGD):
    """Clients that train by epochs of minibatch SGD or, in its place, of Adam."""

    optimizer: Literal["sgd", "adam"] = hyper(
        "sgd", "Optimizer of local updates, at rest when each begins; adam has no `momentum`.", added=True
    )

    def check_optimizer(self) -> None:
        """Raise `UsageError` for an unknown optimizer, and for a momentum of Adam, which has none."""
        if self.optimizer not in ("sgd", "adam"):
            raise UsageError(f"{type(self).__name__}: optimizer must be 'sgd' or 'adam', not {self.optimizer!r}.")
        if self.optimizer == "adam" and self.momentum is not None:
            raise UsageError(f"{type(self).__name__}: momentum is SGD's; with optimizer = adam, set momentum to none.")

    def local_optimizer(self, lr: float) -> Optimizer:
        return Adam(lr) if self.optimizer == "adam" else super().local_optimizer(lr)


@dataclass(frozen=True)
class Adapted(OwnBatch):
    """A personal model is the global one after some epochs of the client's own SGD, once more than training has."""

    personal_epochs: int | None = hyper(None, "Epochs that make a personal model; none: there are none.", least=0)

    def personal_draws(self) -> tuple[Draw, ...]:
        return (Draw(epochs=self.personal_epochs, batch=self.batch),) if self.personal_epochs is not None else ()


@dataclass(frozen=True)
class PersonalRate:
    """A learning rate of personal models."""

    personal_lr: float | None = hyper(None, "Learning rate of personal models; none: the local one.", least=0)

    def personal_rate(self, local: float) -> float:
        return local if self.personal_lr is None else self.personal_lr
