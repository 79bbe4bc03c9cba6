"""Classes of hyperparameters that methods share. A method derives from those that it has.

A method that has a hyperparameter from two classes has it once. Two declarations of a name say the same, but for the
default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Draw, Objective, Round, descend, hyper
from pflbench.optim import SGD, Adam, Optimizer
from pflbench.typing import Part


@dataclass(frozen=True)
class OwnBatch:
    """Hyperparameter `batch`, the method's size of a minibatch."""

    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)


@dataclass(frozen=True)
class LocalSteps:
    """Hyperparameter `steps`, the minibatches of a local update."""

    steps: int = hyper(5, "Local steps per round.", least=0)


@dataclass(frozen=True)
class StepsOrPasses(LocalSteps):
    """Hyperparameters `steps` and `epochs` of local updates that are a number of minibatches, or passes."""

    epochs: int | None = hyper(
        None, "Epochs of a local update; none: `steps` or, where these are none, the method's own number.", least=0
    )

    def amount(self, batch: int | None = None, in_passes: bool = False) -> Draw:
        """Draw of `epochs` passes or, where `epochs` is None, of `steps` minibatches."""
        if self.epochs is None:
            return Draw(steps=self.steps, batch=batch, in_passes=in_passes)
        return Draw(epochs=self.epochs, batch=batch)


@dataclass(frozen=True)
class LocalEpochs(OwnBatch):
    """Hyperparameters `epochs`, `steps` and `batch` of local updates that are passes or a number of minibatches.

    Static steps are the next ones of the client's stream and move its cursor for good, as CAFeMe's do and epochs do
    not (CAFeMe's code); reshuffled ones are the first of the passes.
    """

    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Minibatches of a local update, in place of epochs; none: epochs.", least=0)

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (self.drawn(),)

    def drawn(self) -> Draw:
        """Draw of `steps` minibatches or, where `steps` is None, of `epochs` passes."""
        if self.steps is None:
            return Draw(epochs=self.epochs, batch=self.batch)
        return Draw(steps=self.steps, in_passes=True, batch=self.batch)


@dataclass(frozen=True)
class LocalRate:
    """Hyperparameter `lr`, the learning rate of local updates."""

    lr: float = hyper(1e-3, "Local learning rate.", least=0)


@dataclass(frozen=True)
class TwoRates:
    """Hyperparameters `inner_lr` and `outer_lr` of methods with an inner and an outer loop."""

    inner_lr: float = hyper(0.01, "Learning rate of the inner updates (SGD).", least=0)
    outer_lr: float = hyper(1.0, "Learning rate of the outer updates, or the server's step.", least=0)


@dataclass(frozen=True)
class ServerRate:
    """Hyperparameter `server_lr` of a server that makes steps."""

    server_lr: float = hyper(1.0, "The server's learning rate, or its step along the mean update.", least=0)


@dataclass(frozen=True)
class HeadApart:
    """Hyperparameters `head_steps`, `head_lr` and `base_lr` of a head that is trained apart from the base."""

    head_steps: int = hyper(5, "Local steps on the head.", least=0)
    head_lr: float = hyper(1e-3, "Learning rate of the head.", least=0)
    base_lr: float = hyper(1e-3, "Learning rate of the base.", least=0)


@dataclass(frozen=True)
class BaseEpochs(OwnBatch):
    """Hyperparameters `base_epochs` and `batch` of a base that is trained by epochs, after the head."""

    base_epochs: int = hyper(5, "Local epochs on the base, after the head is trained.", least=0)


@dataclass(frozen=True)
class Pull:
    """Hyperparameter `lam`, the strength of a pull toward another model."""

    lam: float = hyper(0.1, "Strength lambda of the pull toward the global model.", least=0)


@dataclass(frozen=True)
class SGDOptions:
    """Hyperparameters `momentum` and `weight_decay` of local SGD, and `sgd`, which trains by them."""

    momentum: float | None = hyper(None, "Momentum of the local SGD, fresh in each update; none: without.", least=0)
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
        """Optimizer of a local update, at rest."""
        return SGD(lr, self.momentum)

    def sgd_or_adam(self, optimizer: str | None, lr: float) -> Optimizer:
        """Optimizer of this name; raises `UsageError` for an unknown one, and for a momentum of Adam."""
        if optimizer not in ("sgd", "adam"):
            raise UsageError(f"{type(self).__name__}: optimizer must be 'sgd' or 'adam', not {optimizer!r}.")
        if optimizer == "adam" and self.momentum is not None:
            raise UsageError(f"{type(self).__name__}: momentum is SGD's; with optimizer = adam, set momentum to none.")
        return Adam(lr) if optimizer == "adam" else SGD(lr, self.momentum)


@dataclass(frozen=True)
class LocalSGD(LocalEpochs, SGDOptions):
    """Hyperparameters of local updates by epochs of minibatch SGD: those of both bases, and `lr`."""

    lr: float = hyper(1e-3, "Local learning rate.", least=0)


@dataclass(frozen=True)
class Adapted(OwnBatch):
    """Hyperparameters `personal_epochs` and `batch` of personal models.

    A personal model is the global one after epochs of the client's own SGD.
    """

    personal_epochs: int | None = hyper(None, "Epochs that make a personal model; none: there are none.", least=0)

    def personal_draws(self) -> tuple[Draw, ...]:
        return (Draw(epochs=self.personal_epochs, batch=self.batch),) if self.personal_epochs is not None else ()


@dataclass(frozen=True)
class PersonalRate:
    """Hyperparameter `personal_lr`, the learning rate of personal models."""

    personal_lr: float | None = hyper(None, "Learning rate of personal models; none: the local one.", least=0)

    def personal_rate(self, local: float) -> float:
        """Learning rate of personal models; `local` where `personal_lr` is None."""
        return local if self.personal_lr is None else self.personal_lr
