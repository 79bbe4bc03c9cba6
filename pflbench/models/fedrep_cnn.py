"""The convolutional networks of the released FedRep code, whose settings FedEC's tables follow."""

from __future__ import annotations

from pflbench.models.lenet import lenet_like
from pflbench.models.network import Network


def fedrep_cnn(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (64, 64), dense 120 and 64: 307,842 parameters with 10 classes; 3×32×32 images.

    Parts: `base` and `head` (the last layer).
    """
    return lenet_like("fedrep-cnn", shape, classes, channels=(64, 64), dense=(120, 64))


def fedrep_cnn_wide(shape: tuple[int, int, int], classes: int) -> Network:
    """Two 5×5 convolutions (64, 128), dense 256 and 128, dropout 0.6: 1,075,044 parameters with 100 classes.

    3×32×32 images. Parts: `base` and `head` (the last layer, behind the dropout).
    """
    return lenet_like("fedrep-cnn-wide", shape, classes, channels=(64, 128), dense=(256, 128), dropout=0.6)


def fedrep_cnn_wide_plain(shape: tuple[int, int, int], classes: int) -> Network:
    """`fedrep_cnn_wide` without the dropout, which FedEC's text does not mention."""
    return lenet_like("fedrep-cnn-wide-plain", shape, classes, channels=(64, 128), dense=(256, 128))
