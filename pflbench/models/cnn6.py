"""pFedVEM's 6-layer CNN: 620,936 parameters with 20 classes."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from pflbench.errors import UsageError
from pflbench.models.network import Gate, Network, conv_parameters, with_linear_head
from pflbench.models.ops import Ops

CHANNELS = (3, 32, 64, 128, 256, 100)


def cnn6(shape: tuple[int, int, int], classes: int) -> Network:
    """Five 3×3 convolutions (32, 64, 128, 256, 100), then the mean over pixels; 3-channel images of any size.

    pFedVEM, authors' code: 2×2 max pooling with padding 1 follows each of the first four convolutions, so that sides
    go 32, 17, 9, 5, 3 and 64, 33, 17, 9, 5. Parts: `base` and `head` (one linear layer).

    Raises:
        UsageError: The images do not have 3 channels.
    """
    if shape[0] != CHANNELS[0]:
        raise UsageError(f"cnn6 takes 3-channel images; this dataset has {'×'.join(map(str, shape))}.")
    layers = [f"base.conv{i}" for i in range(len(CHANNELS) - 1)]

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = ops.images(x)
        for name in layers:
            h = ops.conv(h, p[f"{name}.weight"], p[f"{name}.bias"], 1)
            # ReLU and max pooling commute exactly; pooling first leaves a quarter of the values to clip.
            h = (ops.pool(h, padding=1) if name != layers[-1] else h).relu()
        return ops.average(h)

    base = [p for name, (a, b) in zip(layers, pairwise(CHANNELS), strict=True) for p in conv_parameters(name, a, b, 3)]
    return with_linear_head(base, features, CHANNELS[-1], shape, classes)
