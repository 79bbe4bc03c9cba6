"""A very small convolutional network."""

from pflbench.models.convnet import ConvNet
from pflbench.models.network import Network


def tiny(shape: tuple[int, int, int], classes: int) -> Network:
    return ConvNet((4,), kernel=3, padding=1, flat=64, hidden=(8,), before=(6, 5), after=(5,)).network(shape, classes)
