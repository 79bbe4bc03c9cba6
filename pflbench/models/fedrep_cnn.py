"""The convolutional networks of the released FedRep code, which FedEC's tables follow (FedEC sheet §3)."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from pflbench.models.convnet import require_shape
from pflbench.models.network import Gate, Network, conv_parameters, linear_parameters, with_linear_head
from pflbench.models.ops import Ops


def fedrep_cnn(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (64, 64), dense 120 and 64: 307,842 parameters with 10 classes; 3×32×32 images.

    Parts: `base` and `head` (the last layer).
    """
    return _network("fedrep-cnn", shape, classes, channels=(64, 64), dense=(120, 64))


def fedrep_cnn_wide(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (64, 128), dense 256 and 128, dropout 0.6: 1,075,044 parameters with 100 classes.

    3×32×32 images. Parts: `base` and `head` (the last layer, behind the dropout).
    """
    return _network("fedrep-cnn-wide", shape, classes, channels=(64, 128), dense=(256, 128), dropout=0.6)


def fedrep_cnn_wide_plain(shape: tuple[int, int, int], classes: int) -> Network:
    """`fedrep_cnn_wide` without the dropout, which FedEC's text does not mention."""
    return _network("fedrep-cnn-wide-plain", shape, classes, channels=(64, 128), dense=(256, 128))


def _network(
    name: str,
    shape: tuple[int, int, int],
    classes: int,
    *,
    channels: tuple[int, int],
    dense: tuple[int, int],
    dropout: float = 0.0,
) -> Network:
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
