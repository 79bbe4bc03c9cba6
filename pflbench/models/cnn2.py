"""The small network of CAFeMe's RMNIST and FEMNIST columns: 583,242 parameters with 10 classes."""

from __future__ import annotations

from pflbench.models.convnet import ConvNet, require_shape
from pflbench.models.network import Network

CNN2 = ConvNet(channels=(32, 64), kernel=5, padding=0, flat=1024, hidden=(512,), before=(100, 200), after=(200,))


def cnn2(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (32, 64), dense 512; 1×28×28 images (CAFeMe, authors' code)."""
    require_shape("cnn2", (1, 28, 28), shape)
    return CNN2.network(shape, classes)
