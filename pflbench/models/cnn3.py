"""The larger network of CAFeMe's CIFAR-10 and Meta-Dataset columns: 1,006,858 parameters with 10 classes."""

from __future__ import annotations

from pflbench.models.convnet import ConvNet, require_shape
from pflbench.models.network import Network

CNN3 = ConvNet(
    channels=(64, 64, 64), kernel=3, padding=1, flat=1024, hidden=(576, 576), before=(100, 100, 200), after=(200,)
)


def cnn3(shape: tuple[int, int, int], classes: int) -> Network:
    """Three 3×3 convolutions (64 each), dense 576 and 576; 3×32×32 images (CAFeMe, Sec. 5.1)."""
    require_shape("cnn3", (3, 32, 32), shape)
    return CNN3.network(shape, classes)
