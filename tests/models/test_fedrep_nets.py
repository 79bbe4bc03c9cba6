"""The networks of FedEC's tables: sizes, heads, dropout, and the softmax that FedRep's code has too much."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pflbench import names
from pflbench.errors import UsageError
from pflbench.models.network import Network
from pflbench.testing import assert_same, nudged

COLOR, GREY = (3, 32, 32), (1, 28, 28)


def network(name: str, shape: tuple[int, int, int], classes: int) -> Network:
    found: Network = names.resolve("models", name)(shape, classes)
    return found


@pytest.mark.parametrize(
    ("name", "shape", "classes", "size", "head"),
    [
        ("fedrep-cnn", COLOR, 10, 307_842, 650),
        ("fedrep-cnn-wide", COLOR, 100, 1_075_044, 12_900),
        ("fedrep-cnn-wide-plain", COLOR, 100, 1_075_044, 12_900),
        ("mlp3", GREY, 10, 535_818, 2_570),
        ("mlp3-softmax", GREY, 10, 535_818, 2_570),
        ("mlp4", GREY, 10, 550_346, 650),
        ("mlp4-softmax", GREY, 10, 550_346, 650),
    ],
)
def test_numbers_of_parameters(name: str, shape: tuple[int, int, int], classes: int, size: int, head: int) -> None:
    layout = network(name, shape, classes).layout
    where = layout.part("head")
    assert (layout.size, where.stop - where.start) == (size, head)
    assert list(layout.parts) == ["base", "head"]


class Reference(nn.Module):
    """The convolutional networks as modules."""

    def __init__(self, channels: int, dense: tuple[int, int], classes: int):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3, 64, 5), nn.Conv2d(64, channels, 5)])
        self.linears = nn.ModuleList(
            [nn.Linear(channels * 25, dense[0]), nn.Linear(dense[0], dense[1]), nn.Linear(dense[1], classes)]
        )

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = F.max_pool2d(conv(x).relu(), 2)
        x = x.flatten(1)
        for linear in self.linears[:-1]:
            x = linear(x).relu()
        out: Tensor = self.linears[-1](x)
        return out


@pytest.mark.parametrize(
    ("name", "channels", "dense", "classes"),
    [("fedrep-cnn", 64, (120, 64), 10), ("fedrep-cnn-wide", 128, (256, 128), 100)],
)
def test_the_convolutional_networks_are_these_modules(
    name: str, channels: int, dense: tuple[int, int], classes: int
) -> None:
    net, module = network(name, COLOR, classes), Reference(channels, dense, classes).double()
    w = net.init(0).double()
    for value, into in zip(net.layout.views([w]).values(), module.parameters(), strict=True):
        into.data.copy_(value)
    x = torch.rand(3, *COLOR, dtype=torch.float64)
    torch.testing.assert_close(net.logits([w], x), module(x).detach(), rtol=1e-10, atol=1e-12)


def test_only_the_wide_one_has_dropout_in_training_and_in_front_of_its_head() -> None:
    net, plain = network("fedrep-cnn-wide", COLOR, 100), network("fedrep-cnn-wide-plain", COLOR, 100)
    assert net.drops and not plain.drops and not network("fedrep-cnn", COLOR, 10).drops
    w, x, key = net.init(0), torch.rand(2, *COLOR), torch.tensor(5)
    assert torch.equal(net.logits([w], x), plain.logits([w], x))
    assert torch.equal(plain.logits([w], x, key), plain.logits([w], x))
    assert not torch.equal(net.logits([w], x, key), net.logits([w], x))
    assert torch.equal(net.represent([w], x), plain.represent([w], x))


@pytest.mark.parametrize("name", ["mlp3", "mlp4"])
def test_outputs_with_a_softmax_too_many(name: str) -> None:
    net, plain = network(f"{name}-softmax", GREY, 10), network(name, GREY, 10)
    w, x = plain.init(0), torch.rand(4, *GREY)
    assert torch.equal(net.logits([w], x), plain.logits([w], x).softmax(-1))
    assert net.features is None and net.gradient is None
    stacked = net.logits([torch.stack([w, w])], torch.stack([x, x]), stack="grouped")
    assert_same(stacked[1], net.logits([w], x), net.logits([nudged(w)], x))


def test_other_images_are_refused() -> None:
    with pytest.raises(UsageError, match="fedrep-cnn takes 3×32×32"):
        network("fedrep-cnn", GREY, 10)
