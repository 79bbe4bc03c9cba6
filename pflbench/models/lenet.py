"""LeNet-like networks on 3×32×32 images: two 5×5 convolutions, two dense layers, and a linear head."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from pflbench.models.convnet import require_shape
from pflbench.models.network import Gate, Network, conv_parameters, linear_parameters, with_linear_head
from pflbench.models.ops import Ops


def lenet(shape: tuple[int, int, int], classes: int) -> Network:
    """Convolutions of 16 and 32 channels, dense 120 and 84: 121,182 parameters with 10 classes (pFedVEM, their code).

    3×32×32 images. Parts: `base` and `head` (the last layer).
    """
    return lenet_like("lenet", shape, classes, channels=(16, 32), dense=(120, 84))


def lenet_like(
    name: str,
    shape: tuple[int, int, int],
    classes: int,
    *,
    channels: tuple[int, int],
    dense: tuple[int, int],
    dropout: float = 0.0,
) -> Network:
    """The network `name` of these widths, with dropout in front of its head (0: none).

    Raises:
        UsageError: The images are not 3×32×32.
    """
    require_shape(name, (3, 32, 32), shape)
    convs, layers = (shape[0], *channels), (channels[-1] * 5 * 5, *dense)

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = ops.images(x)
        for conv in ("base.conv0", "base.conv1"):
            # ReLU and max pooling commute exactly; pooling first leaves a quarter of the values to clip.
            h = ops.pool(ops.conv(h, p[f"{conv}.weight"], p[f"{conv}.bias"], 0)).relu()
        h = ops.flatten(h)
        for layer in ("base.dense0", "base.dense1"):
            h = ops.linear(h, p[f"{layer}.weight"], p[f"{layer}.bias"]).relu()
        return h

    base = [
        *(p for i, (a, b) in enumerate(pairwise(convs)) for p in conv_parameters(f"base.conv{i}", a, b, 5)),
        *(p for i, (a, b) in enumerate(pairwise(layers)) for p in linear_parameters(f"base.dense{i}", a, b)),
    ]
    return with_linear_head(base, features, dense[-1], shape, classes, dropout=dropout)
