"""CAFeMe's networks: convolution blocks, dense blocks, a linear classifier; and the modulator that it puts in front.

CAFeMe, Sec. 5.3 and the authors' code: every block is convolution or linear, batch normalization without running
statistics, ReLU (and 2×2 max pooling after a convolution).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pflbench.errors import UsageError
from pflbench.models.network import Gate, Network, conv_parameters, linear_parameters, norm_parameters, ungated
from pflbench.models.ops import Ops
from pflbench.vector import Parameter


@dataclass(frozen=True)
class Modulator:
    """Inputs of a modulator, and the use of its gates (CAFeMe, Eq. 4.4).

    `mode`: "c1" a·sigmoid(z), "c0" a + z, "c2" z_a·a + z_b. `batch_norm`: in its convolution blocks. `extra_gate`: also
    on the flattened vector (authors' code). `contextual`: from the rows of a context, not from the batch itself.
    `labels`: from these rows' one-hot labels, too, which join the convolutions' features (the paper's text).
    """

    mode: str
    batch_norm: bool
    extra_gate: bool = True
    contextual: bool = False
    labels: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("c0", "c1", "c2"):
            raise UsageError(f"Unknown modulation {self.mode!r}; known: c0, c1, c2.")

    @property
    def per_unit(self) -> int:
        """Numbers per gated unit."""
        return 2 if self.mode == "c2" else 1

    def gates(self, layers: int, flat: int) -> list[int]:
        """Numbers of the gated layers of so many; `flat`: the flattened vector's number."""
        return [i for i in range(layers) if self.extra_gate or i != flat]

    def gated(self, ops: Ops, a: Tensor, z: Tensor) -> Tensor:
        """A layer's activations behind their gate; z: what the modulator says of them."""
        if self.mode == "c1":
            return a * ops.over(a, torch.sigmoid(z))
        if self.mode == "c0":
            return a + ops.over(a, z)
        scale, shift = torch.chunk(z, 2, dim=-1)
        return a * ops.over(a, scale) + ops.over(a, shift)


@dataclass(frozen=True)
class ConvNet:
    """The sizes of one architecture.

    `before` and `after`: the modulator's hidden layers before and after the mean over the batch.
    """

    channels: tuple[int, ...]
    kernel: int
    padding: int
    flat: int
    hidden: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def network(self, shape: tuple[int, int, int], classes: int) -> Network:
        """The plain network. Parts: `base` (convolution blocks) and `head` (all dense layers)."""
        dense = (self.flat, *self.hidden)

        def parameters() -> Iterable[Parameter]:
            yield from self._conv_parameters("base", shape[0], batch_norm=True)
            for i in range(len(self.hidden)):
                yield from linear_parameters(f"head.dense{i}", dense[i], dense[i + 1])
                yield from norm_parameters(f"head.dense{i}.norm", dense[i + 1])
            yield from linear_parameters("head.out", dense[-1], classes)

        def forward(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
            h = gate(len(self.channels), self._blocks(ops, p, "base", x, gate, batch_norm=True))
            for i in range(len(self.hidden)):
                name = f"head.dense{i}"
                h = ops.linear(h, p[f"{name}.weight"], p[f"{name}.bias"])
                h = ops.batch_norm(h, p[f"{name}.norm.scale"], p[f"{name}.norm.shift"]).relu()
                h = gate(len(self.channels) + 1 + i, h)
            return ops.linear(h, p["head.out.weight"], p["head.out.bias"])

        plain = Network(tuple(parameters()), forward, shape, classes, gated=(*self.channels, *dense))
        return replace(plain, modulated=lambda *how, **options: self._modulated(plain, Modulator(*how, **options)))

    def _conv_parameters(self, prefix: str, inputs: int, batch_norm: bool) -> Iterable[Parameter]:
        sizes = (inputs, *self.channels)
        for i in range(len(self.channels)):
            yield from conv_parameters(f"{prefix}.conv{i}", sizes[i], sizes[i + 1], self.kernel)
            if batch_norm:
                yield from norm_parameters(f"{prefix}.conv{i}.norm", sizes[i + 1])

    def _blocks(
        self, ops: Ops, p: dict[str, Tensor], prefix: str, x: Tensor, gate: Gate, *, batch_norm: bool
    ) -> Tensor:
        h = ops.images(x)
        for i in range(len(self.channels)):
            name = f"{prefix}.conv{i}"
            h = ops.conv(h, p[f"{name}.weight"], p[f"{name}.bias"], self.padding)
            if batch_norm:
                h = ops.batch_norm(h, p[f"{name}.norm.scale"], p[f"{name}.norm.shift"])
            # ReLU and max pooling commute exactly; pooling first leaves a quarter of the values to clip.
            h = gate(i, ops.pool(h).relu())
        return ops.flatten(h)

    def _modulated(self, base: Network, how: Modulator) -> Network:
        """`base` with gates computed from a context, the batch itself or others; it is the mean over their rows."""
        gates = how.gates(len(base.gated), flat=len(self.channels))
        widths = [how.per_unit * base.gated[i] for i in gates]
        labels = base.classes if how.labels else 0
        before, after = (self.flat + labels, *self.before), (self.before[-1], *self.after, sum(widths))

        def parameters() -> Iterable[Parameter]:
            yield from self._conv_parameters("modulator", base.shape[0], how.batch_norm)
            for i in range(len(before) - 1):
                yield from linear_parameters(f"modulator.before{i}", before[i], before[i + 1])
            for i in range(len(after) - 1):
                yield from linear_parameters(f"modulator.after{i}", after[i], after[i + 1])

        def context(ops: Ops, p: dict[str, Tensor], x: Tensor) -> Tensor:
            rows = ops.context
            if rows is not None:
                ops, x = ops.beside(rows.mask), rows.x
            h = self._blocks(ops, p, "modulator", x, ungated, batch_norm=how.batch_norm)
            if how.labels:
                assert rows is not None, "labels come with a context"
                h = ops.labelled(h, rows.labels, base.classes)
            for i in range(len(before) - 1):
                h = ops.linear(h, p[f"modulator.before{i}.weight"], p[f"modulator.before{i}.bias"]).relu()
            h = ops.mean(h)
            for i in range(len(after) - 1):
                h = ops.context_linear(h, p[f"modulator.after{i}.weight"], p[f"modulator.after{i}.bias"])
                h = h.relu() if i < len(after) - 2 else h
            return h

        def forward(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
            zeta = dict(zip(gates, torch.split(context(ops, p, x), widths, dim=-1), strict=True))

            def modulate(i: int, a: Tensor) -> Tensor:
                return gate(i, how.gated(ops, a, zeta[i]) if i in zeta else a)

            return base.forward(ops, p, x, modulate)

        return Network(
            parameters=(*parameters(), *base.parameters),
            forward=forward,
            shape=base.shape,
            classes=base.classes,
            gated=base.gated,
            contextual=how.contextual or how.labels,
            streams={"modulator": "modulator"},
        )


def cnn2(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (32, 64), dense 512; 1×28×28 images (CAFeMe, authors' code).

    The small network of CAFeMe's RMNIST and FEMNIST columns: 583,242 parameters with 10 classes.
    """
    require_shape("cnn2", (1, 28, 28), shape)
    sizes = ConvNet((32, 64), kernel=5, padding=0, flat=1024, hidden=(512,), before=(100, 200), after=(200,))
    return sizes.network(shape, classes)


def cnn2_paper(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (32, 32), dense 576; 1×28×28 images (CAFeMe, Sec. 5.3, the text).

    329,002 parameters with 10 classes. The text gives filters and the dense layer alone: kernel, padding and pooling
    are those of `cnn2`, the authors' code.
    """
    require_shape("cnn2-paper", (1, 28, 28), shape)
    sizes = ConvNet((32, 32), kernel=5, padding=0, flat=512, hidden=(576,), before=(100, 200), after=(200,))
    return sizes.network(shape, classes)


def cnn3(shape: tuple[int, int, int], classes: int) -> Network:
    """Three 3×3 convolutions (64 each), dense 576 and 576; 3×32×32 images (CAFeMe, Sec. 5.3).

    The larger network of CAFeMe's CIFAR-10 and Meta-Dataset columns: 1,006,858 parameters with 10 classes.
    """
    require_shape("cnn3", (3, 32, 32), shape)
    sizes = ConvNet((64,) * 3, kernel=3, padding=1, flat=1024, hidden=(576, 576), before=(100, 100, 200), after=(200,))
    return sizes.network(shape, classes)


def require_shape(name: str, expected: tuple[int, int, int], shape: tuple[int, int, int]) -> None:
    """Raise `UsageError` unless images have the (channels, height, width) that an architecture is built for."""
    if shape != expected:
        raise UsageError(
            f"{name} takes {'×'.join(map(str, expected))} images; this dataset has {'×'.join(map(str, shape))}."
        )
