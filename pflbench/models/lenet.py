"""pFedVEM's LeNet-like network: 121,182 parameters with 10 classes."""

from __future__ import annotations

from torch import Tensor

from pflbench.models.convnet import require_shape
from pflbench.models.network import Gate, Network, conv_parameters, linear_parameters, with_linear_head
from pflbench.models.ops import Ops


def lenet(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (16, 32), dense 120 and 84; 3×32×32 images (pFedVEM, authors' code).

    Parts: `base` and `head` (the last layer).
    """
    require_shape("lenet", (3, 32, 32), shape)

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = ops.images(x)
        for name in ("base.conv0", "base.conv1"):
            # ReLU and max pooling commute exactly; pooling first leaves a quarter of the values to clip.
            h = ops.pool(ops.conv(h, p[f"{name}.weight"], p[f"{name}.bias"], 0)).relu()
        h = ops.flatten(h)
        for name in ("base.dense0", "base.dense1"):
            h = ops.linear(h, p[f"{name}.weight"], p[f"{name}.bias"]).relu()
        return h

    base = (
        *conv_parameters("base.conv0", shape[0], 16, 5),
        *conv_parameters("base.conv1", 16, 32, 5),
        *linear_parameters("base.dense0", 800, 120),
        *linear_parameters("base.dense1", 120, 84),
    )
    return with_linear_head(base, features, 84, shape, classes)
