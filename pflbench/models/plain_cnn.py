"""Convolutional networks without normalization, with a linear head.

LeNet-like ones have two 5×5 convolutions and one or two dense layers; those of the released FedRep code are among them,
whose settings FedEC's tables follow, and PFLlib's. The other one is pFedVEM's 6-layer CNN.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from pflbench.errors import UsageError
from pflbench.models.convnet import require_shape
from pflbench.models.network import Gate, Network, conv_parameters, linear_parameters, with_linear_head
from pflbench.models.ops import Ops

COLOR = 3, 32, 32


def lenet(shape: tuple[int, int, int], classes: int) -> Network:
    """Convolutions of 16 and 32 channels, dense 120 and 84: 121,182 parameters with 10 classes (pFedVEM, their code).

    3×32×32 images. Parts: `base` and `head` (the last layer).
    """
    require_shape("lenet", COLOR, shape)
    return lenet_like(shape, classes, channels=(16, 32), dense=(120, 84))


def fedrep_cnn(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (64, 64), dense 120 and 64: 307,842 parameters with 10 classes; 3×32×32 images.

    Parts: `base` and `head` (the last layer).
    """
    require_shape("fedrep-cnn", COLOR, shape)
    return lenet_like(shape, classes, channels=(64, 64), dense=(120, 64))


def fedrep_cnn_wide(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (64, 128), dense 256 and 128, dropout 0.6: 1,075,044 parameters with 100 classes.

    3×32×32 images. Parts: `base` and `head` (the last layer, behind the dropout).
    """
    require_shape("fedrep-cnn-wide", COLOR, shape)
    return lenet_like(shape, classes, channels=(64, 128), dense=(256, 128), dropout=0.6)


def fedrep_cnn_wide_plain(shape: tuple[int, int, int], classes: int) -> Network:
    """`fedrep_cnn_wide` without the dropout, which FedEC's text does not mention."""
    require_shape("fedrep-cnn-wide-plain", COLOR, shape)
    return lenet_like(shape, classes, channels=(64, 128), dense=(256, 128))


def pfl_cnn(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (32, 64), dense 512: PFLlib's `FedAvgCNN`; square images of 28 or 32 pixels.

    582,026 parameters on 1×28×28 images with 10 classes, 924,708 on 3×32×32 with 100. Parts: `base` and `head` (the
    last layer). Raises `UsageError` for images of another size.
    """
    if shape[1:] not in ((28, 28), (32, 32)):
        raise UsageError(f"pfl-cnn takes images of 28×28 or 32×32; this dataset has {'×'.join(map(str, shape))}.")
    return lenet_like(shape, classes, channels=(32, 64), dense=(512,))


def cnn6(shape: tuple[int, int, int], classes: int) -> Network:
    """Five 3×3 convolutions (32, 64, 128, 256, 100), then the mean over pixels; 3-channel images of any size.

    pFedVEM, authors' code; 620,936 parameters with 20 classes. 2×2 max pooling with padding 1 follows each of the first
    four convolutions, so that sides go 32, 17, 9, 5, 3 and 64, 33, 17, 9, 5. Parts: `base` and `head` (one linear
    layer). Raises `UsageError` for images of other than 3 channels.
    """
    if shape[0] != 3:
        raise UsageError(f"cnn6 takes 3-channel images; this dataset has {'×'.join(map(str, shape))}.")
    channels = (3, 32, 64, 128, 256, 100)
    layers = [f"base.conv{i}" for i in range(len(channels) - 1)]

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = ops.images(x)
        for name in layers:
            h = ops.conv(h, p[f"{name}.weight"], p[f"{name}.bias"], 1)
            # ReLU and max pooling commute exactly; pooling first leaves a quarter of the values to clip.
            h = (ops.pool(h, padding=1) if name != layers[-1] else h).relu()
        return ops.average(h)

    base = [p for name, (a, b) in zip(layers, pairwise(channels), strict=True) for p in conv_parameters(name, a, b, 3)]
    return with_linear_head(base, features, channels[-1], shape, classes)


def lenet_like(
    shape: tuple[int, int, int],
    classes: int,
    *,
    channels: tuple[int, int],
    dense: tuple[int, ...],
    dropout: float = 0.0,
) -> Network:
    """Two 5×5 convolutions and dense layers of these widths on square images, with dropout in front of the head."""
    side = ((shape[1] - 4) // 2 - 4) // 2
    convs, sizes = (shape[0], *channels), (channels[-1] * side * side, *dense)
    layers = [f"base.dense{i}" for i in range(len(dense))]

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = ops.images(x)
        for conv in ("base.conv0", "base.conv1"):
            # ReLU and max pooling commute exactly; pooling first leaves a quarter of the values to clip.
            h = ops.pool(ops.conv(h, p[f"{conv}.weight"], p[f"{conv}.bias"], 0)).relu()
        h = ops.flatten(h)
        for layer in layers:
            h = ops.linear(h, p[f"{layer}.weight"], p[f"{layer}.bias"]).relu()
        return h

    base = [
        *(p for i, (a, b) in enumerate(pairwise(convs)) for p in conv_parameters(f"base.conv{i}", a, b, 5)),
        *(p for name, (a, b) in zip(layers, pairwise(sizes), strict=True) for p in linear_parameters(name, a, b)),
    ]
    return with_linear_head(base, features, dense[-1], shape, classes, dropout=dropout)
