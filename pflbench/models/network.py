"""`Network`: a forward pass over a vector of parameters, for one client or a stack of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pflbench.errors import UsageError
from pflbench.models.ops import STACKS, Context, Ops
from pflbench.rng import torch_stream
from pflbench.typing import Params
from pflbench.vector import Layout, Parameter

Gate = Callable[[int, Tensor], Tensor]
"""Applied to the i-th gated layer's activations; the identity for a plain network."""
Forward = Callable[[Ops, dict[str, Tensor], Tensor, Gate], Tensor]
Gradient = Callable[[Mapping[str, Tensor], Tensor, Tensor, Mapping[str, Tensor]], None]
"""(parameters, images, labels, gradients): writes the mean cross-entropy's gradient into those gradients there are."""


def ungated(_: int, x: Tensor) -> Tensor:
    """The gate of a plain network."""
    return x


def linear_parameters(name: str, inputs: int, outputs: int) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer, with PyTorch's default initial range."""
    bound = inputs**-0.5
    return Parameter(f"{name}.weight", (outputs, inputs), bound), Parameter(f"{name}.bias", (outputs,), bound)


def conv_parameters(name: str, inputs: int, outputs: int, kernel: int) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution, with PyTorch's default initial range."""
    bound = (inputs * kernel * kernel) ** -0.5
    return (
        Parameter(f"{name}.weight", (outputs, inputs, kernel, kernel), bound),
        Parameter(f"{name}.bias", (outputs,), bound),
    )


def norm_parameters(name: str, features: int) -> tuple[Parameter, Parameter]:
    """Scale (1) and shift (0) of a normalization."""
    return Parameter(f"{name}.scale", (features,), fill=1.0), Parameter(f"{name}.shift", (features,))


@dataclass(frozen=True)
class Network:
    """A differentiable function of (parameters, images), without state.

    `gated`: sizes of the layers that a modulator may gate, in order of application; `modulated` builds the network
    with a modulator in front (None where the architecture defines none). `contextual`: whether it has its gates from
    labelled rows that it is handed beside the batch's, CAFeMe's context (else from the batch itself, if it has any).
    `streams`: the random stream that each part's initial values come from (default: "model").
    `gradient`: the gradient of one client's loss derived by hand, where it beats autograd on a CPU (None: autograd).
    `features`: the base alone, from images to `width` features, where the head is one linear layer `head.out` on them
    (`with_linear_head` builds such a network); None, and a width of 0, where the head is more than that.
    `drops`: whether training draws random numbers (dropout, the noise of FedCP's policy). `mixes`: whether it is
    `batchwise` (None: the parameters' names tell), `mixes_scored` the same without training (None: alike).
    `least`: fewest rows of a minibatch to train on. `statistics`: running statistics, by name, that a pass of training
    leaves; None: the network has none.
    `initial`: the initial values of (seed, k) in the vector's order, where the parameters do not say how to draw them.
    """

    parameters: tuple[Parameter, ...]
    forward: Forward
    shape: tuple[int, int, int]
    classes: int
    gated: tuple[int, ...] = ()
    modulated: Callable[..., Network] | None = None
    contextual: bool = False
    streams: dict[str, str] = field(default_factory=dict)
    gradient: Gradient | None = None
    features: Forward | None = None
    width: int = 0
    drops: bool = False
    mixes: bool | None = None
    mixes_scored: bool | None = None
    statistics: Callable[[Ops, dict[str, Tensor], Tensor, Gate], dict[str, Tensor]] | None = None
    least: int = 1
    initial: Callable[[int, int], Tensor] | None = None
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout(self.parameters))

    @property
    def batchwise(self) -> bool:
        """True if a row's logits depend on other rows of its batch: batch normalization, or CAFeMe's context."""
        if self.mixes is not None:
            return self.mixes
        return any(".norm." in p.name or p.part == "modulator" for p in self.parameters)

    @property
    def scored_batchwise(self) -> bool:
        """True if a row's logits, without training, depend on other rows of its batch."""
        return self.batchwise if self.mixes_scored is None else self.mixes_scored

    def init(self, seed: int, k: int = 0) -> Params:
        """Initial parameters, float32 on the CPU ["params"]: PyTorch's default ranges, from the seed's own streams.

        A network with `initial` has those that it returns. `k` counts independent models of one seed; 0 is the one that
        every method of the seed starts from.
        """
        if self.initial is not None:
            return self.initial(seed, k).to(torch.float32)
        pieces = []
        for part in self.layout.parts:
            generator = torch_stream(seed, self.streams.get(part, "model"), part, k)
            pieces += [p.draw(generator) for p in self.parameters if p.part == part]
        return torch.cat(pieces).to(torch.float32)

    def logits(
        self,
        pieces: Sequence[Tensor],
        x: Tensor,
        key: Tensor | None = None,
        context: Context | None = None,
        *,
        mask: Tensor | None = None,
        stack: str | None = None,
        training: bool = False,
    ) -> Tensor:
        """Logits ["batch", "classes"] of images x ["batch", "channels", "height", "width"].

        A stack of clients has a first axis "clients" in all arguments and in the result.

        Args:
            pieces: The parameter vector, whole or cut at part boundaries.
            x: The images.
            key: For dropout, int64 scalar; None: without.
            context: For a network that is `contextual`.
            mask: Real rows of a stack, bool ["clients", "batch"]; None: all.
            stack: One of `ops.STACKS` for a stack, equal to rounding; None: one client.
            training: Running statistics, if any, are not used.
        """
        ops = self._ops(x, key, mask, stack, training)
        ops.context = context
        return self.forward(ops, self.layout.views(pieces), x, ungated)

    def represent(
        self,
        pieces: Sequence[Tensor],
        x: Tensor,
        *,
        mask: Tensor | None = None,
        stack: str | None = None,
        training: bool = False,
    ) -> Tensor:
        """Features ["batch", "features"] of images, the input of `head.out`; arguments as in `logits`.

        `pieces` may end with the base. Raises `UsageError` where the head is more than one linear layer.
        """
        if self.features is None:
            raise UsageError(
                "This network's head is more than one linear layer, so it has no features; mlp, lenet and others do."
            )
        return self.features(self._ops(x, None, mask, stack, training), self.layout.views(pieces), x, ungated)

    def advanced(self, w: Tensor, x: Tensor, key: Tensor | None, mask: Tensor | None, stack: str | None) -> Tensor:
        """The model w ["params"] with the running statistics that a pass of training over x leaves, else as it is."""
        if self.statistics is None:
            return w
        new = self.statistics(self._ops(x, key, mask, stack, True), self.layout.views([w]), x, ungated)
        sizes = [p.size for p in self.parameters]
        pieces = zip(self.parameters, torch.split_with_sizes(w, sizes, -1), strict=True)
        return torch.cat([new[p.name].reshape(old.shape) if p.name in new else old for p, old in pieces], -1)

    @staticmethod
    def _ops(x: Tensor, key: Tensor | None, mask: Tensor | None, stack: str | None, training: bool) -> Ops:
        ops = Ops(key) if stack is None else STACKS[stack](x.shape[0], mask, key)
        ops.training = training
        return ops

    def extended(self, added: tuple[Parameter, ...], forward: Forward, features: Forward) -> Network:
        """This network of a base and a linear head, with further parts between the two and passes that use them.

        Base and head begin as in this network; each further part has the random stream of its own name. Raises
        `UsageError` if this network has dropout, which `forward` would leave out.
        """
        if self.drops:
            raise UsageError("This method needs a network without dropout.")
        streams = {p.part: p.part for p in added}
        between, place = Network(added, forward, self.shape, self.classes, streams=streams), self.layout.part("head")

        def initial(seed: int, k: int) -> Params:
            w = self.init(seed, k)
            return torch.cat([w[: place.start], between.init(seed, k), w[place.start :]])

        base, head = ([p for p in self.parameters if (p.part == "head") == last] for last in (False, True))
        return replace(
            self,
            parameters=(*base, *added, *head),
            forward=forward,
            features=features,
            gradient=None,
            initial=initial,
        )

    def with_modulator(self, mode: str, batch_norm: bool, **options: bool) -> Network:
        """This network behind a modulator (`convnet.Modulator`). Raises `UsageError` where there is none."""
        if self.modulated is None:
            raise UsageError("This network defines no modulator, so CAFeMe cannot use it; cnn2 and cnn3 do.")
        return self.modulated(mode, batch_norm, **options)


def with_linear_head(
    base: Iterable[Parameter],
    features: Forward,
    width: int,
    shape: tuple[int, int, int],
    classes: int,
    gradient: Gradient | None = None,
    dropout: float = 0.0,
) -> Network:
    """A network of a base, which turns images into `width` features each, and a head of one linear layer `head.out`.

    `base`: its parameters; `features`: its forward pass; `gradient`: of the whole network (see `Network`);
    `dropout`: of the features, in training.
    """

    def forward(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = features(ops, p, x, gate)
        h = ops.dropout(h, dropout) if dropout else h
        return ops.linear(h, p["head.out.weight"], p["head.out.bias"])

    parameters = (*base, *linear_parameters("head.out", width, classes))
    return Network(
        parameters,
        forward,
        shape,
        classes,
        gradient=gradient,
        features=features,
        width=width,
        drops=dropout > 0,
    )
