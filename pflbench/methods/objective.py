"""Arguments of a method: minibatches, the objective on them, and the maker of initial models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from pflbench.typing import Bool, Int, Params, Part, Rows, Scalar
from pflbench.vector import Kind


class Batch(NamedTuple):
    """One minibatch: the numbers of its examples in the pool, ["batch"], and their labels; images are gathered at use.

    Attributes:
        rows: The examples' row numbers in the pool.
        labels: Their labels.
        mask: Which rows are real where minibatches of several clients are padded to one size; None: all.
        real: False for a step that only pads a client's shorter sequence of minibatches, which `steps` skips; None:
            every client makes the step.
        places: Where the examples stand in the client's support; only for a `Draw` that is `indexed`.
        key: The random key of augmentation and dropout; None where there are none.
        context: Another minibatch, which CAFeMe's gates are computed from where they are not from this one; None: this
            one. Networks that are not contextual do not look at it.
    """

    rows: Rows
    labels: Rows
    mask: Tensor | None = None
    real: Tensor | None = None
    places: Rows | None = None
    key: Int[Tensor, ""] | None = None
    context: Batch | None = None

    @property
    def examples(self) -> Int[Tensor, ""] | int:
        """Number of real rows."""
        return self.rows.shape[-1] if self.mask is None else self.mask.sum()


Batches = tuple[Batch, ...]


Loss = Callable[..., Tensor]
"""`loss(outputs, labels, mask, *args)`: one scalar from a client's outputs ["batch", …]; no mask: all rows are real."""


@runtime_checkable
class Objective(Protocol):
    """The loss a method sees: mean cross-entropy of a model on a minibatch's real rows, and what derives from it.

    Where the suite augments, everything sees the minibatch's augmented images, the same at each look at one minibatch.
    Losses and their derivatives are those of training, with dropout; logits and features are without.
    """

    @property
    def classes(self) -> int:
        """Number of classes."""

    @property
    def width(self) -> int:
        """Number of features that the head reads; 0 where it is more than one linear layer."""

    @property
    def cacheable(self) -> bool:
        """True if a frozen base gives a row the same features in every pass, and the head is one linear layer."""

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

    def with_statistics(self, new: Part, w: Params, b: Batch, *, wrt: str | None = None) -> Part:
        """`new`, made of w by a step on b, with the running statistics of a user's batch normalization.

        They are those that w's pass of training over b leaves, whatever the step did to them. `new` is a whole model or
        the part `wrt`; without running statistics it stays as it is. `train` does this in every step.
        """

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

    def entries(self, kind: Kind) -> Bool[Tensor, "params"]:
        """Positions in the vector of weights, biases, a normalization's scale and shift, or running statistics."""

    def decay(self, rate: float | None, w: Part, *, wrt: str | None = None) -> Part | None:
        """Weight decay for `train` of w: `rate` for the entries of layers' weights, 0 for biases and normalizations.

        w is the whole vector, or the part named `wrt`. None for no rate, and for 0.
        """


@runtime_checkable
class Initializer(Protocol):
    """Makes initial models of one seed, and knows where their parts lie."""

    @property
    def classes(self) -> int:
        """Number of classes."""

    @property
    def width(self) -> int:
        """Number of features that the head reads; 0 where it is more than one linear layer."""

    def __call__(self, k: int = 0) -> Params:
        """`new(0)` is the seed's initial model, shared by all methods; `new(k)` are further independent ones."""

    def part(self, name: str) -> slice:
        """Where a part (`base`, `head`, `modulator`) lies in the vector."""

    def last(self, layers: int) -> slice:
        """Where the last so many layers lie in the vector."""

    def entries(self, kind: Kind) -> Bool[Tensor, "params"]:
        """Positions in the vector of weights, biases, a normalization's scale and shift, or running statistics."""

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers by name, as `Round.noise` has them, from the seed alone and as wide as a model."""
