"""Networks split into features and one linear layer, and the operations that pFedVEM's 6-layer CNN added."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.errors import UsageError
from pflbench.models.convnet import cnn2, cnn3
from pflbench.models.mlp import mlp, perceptron
from pflbench.models.network import Network, linear_parameters, ungated, with_linear_head
from pflbench.models.ops import STACKS, Ops
from pflbench.models.plain_cnn import cnn6, lenet
from pflbench.testing import tiny_network

NETWORKS = {
    "mlp": mlp((1, 28, 28), 10),
    "no hidden layer": perceptron((1, 4, 4), 3, hidden=()),
    "lenet": lenet((3, 32, 32), 10),
    "cnn6": cnn6((3, 32, 32), 20),
    "cnn6 with odd sides": cnn6((3, 9, 14), 3),
}
each_network = pytest.mark.parametrize("name", NETWORKS)
each_stack = pytest.mark.parametrize("stack", STACKS)


def weights(net: Network, seed: int = 0) -> Tensor:
    noise = torch.randn(net.layout.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return net.init(seed).double() + 0.05 * noise


def images(net: Network, *lead: int) -> Tensor:
    return torch.rand(*lead, *net.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


# Features and head.


@each_network
def test_logits_are_one_linear_layer_on_the_features(name: str) -> None:
    net = NETWORKS[name]
    w, x = weights(net), images(net, 3)
    features = net.represent([w], x)
    assert features.shape == (3, net.width) and features.dtype == torch.float64
    head = net.layout.of("head").views([w[net.layout.part("head")]])
    assert list(head) == ["head.out.weight", "head.out.bias"]
    close(net.logits([w], x), features @ head["head.out.weight"].T + head["head.out.bias"])


@each_network
def test_features_need_the_bases_parameters_only(name: str) -> None:
    net = NETWORKS[name]
    w, x = weights(net), images(net, 3)
    end = net.layout.part("head").start
    whole = net.represent([w], x)
    for pieces in ([w[:end]], [w[:end], w[end:]]):
        assert torch.equal(net.represent(pieces, x), whole)


@each_network
def test_features_do_not_depend_on_the_head(name: str) -> None:
    net = NETWORKS[name]
    w = weights(net).requires_grad_()
    end = net.layout.part("head").start
    features = net.represent([w], images(net, 2))
    if end:
        (g,) = torch.autograd.grad(features.sum(), w)
        assert not g[end:].any() and g[:end].any()
    else:
        assert not features.requires_grad


@each_stack
@each_network
def test_a_stacks_features_are_its_clients(name: str, stack: str) -> None:
    net, rows = NETWORKS[name], (3, 1)
    w = torch.stack([weights(net, seed) for seed in range(2)]).requires_grad_()
    x = images(net, 2, 3)
    mask = torch.arange(3)[None] < torch.tensor(rows)[:, None]
    base = w[:, : net.layout.part("head").start]
    for pieces, real in (([w], mask), ([w], None), ([base], mask)):
        stacked = net.represent(pieces, x, mask=real, stack=stack)
        assert stacked.shape == (2, 3, net.width)
        for i, n in enumerate(rows):
            close(stacked[i, :n], net.represent([w[i]], x[i, :n]))


@each_stack
@pytest.mark.parametrize("name", ["lenet", "cnn6", "cnn6 with odd sides"])
def test_gradients_through_a_stacks_features_are_its_clients(name: str, stack: str) -> None:
    net = NETWORKS[name]
    w = torch.stack([weights(net, seed) for seed in range(2)]).requires_grad_()
    x = images(net, 2, 3)
    (stacked,) = torch.autograd.grad(net.represent([w], x, mask=None, stack=stack).square().sum(), w)
    for i in range(2):
        alone = w[i].detach().requires_grad_()
        (single,) = torch.autograd.grad(net.represent([alone], x[i]).square().sum(), alone)
        torch.testing.assert_close(stacked[i], single, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "net",
    [tiny_network(), tiny_network().with_modulator("c1", True), cnn2((1, 28, 28), 10), cnn3((3, 32, 32), 10)],
    ids=["tiny", "modulated", "cnn2", "cnn3"],
)
def test_a_head_of_several_layers_has_no_features(net: Network) -> None:
    w, x = weights(net), images(net, 1)
    assert net.features is None and net.width == 0
    with pytest.raises(UsageError, match="more than one linear layer"):
        net.represent([w], x)
    with pytest.raises(UsageError, match="more than one linear layer"):
        net.represent([w[None]], x[None], mask=None, stack="grouped")


def test_a_network_is_its_features_and_a_linear_head() -> None:
    """The classifier is written once, for any features."""
    net = with_linear_head(
        linear_parameters("base.dense", 12, 5),
        lambda ops, p, x, gate: ops.linear(ops.flatten(x), p["base.dense.weight"], p["base.dense.bias"]).tanh(),
        5,
        (3, 2, 2),
        4,
    )
    assert [(p.name, p.shape) for p in net.parameters[2:]] == [("head.out.weight", (4, 5)), ("head.out.bias", (4,))]
    assert net.parameters[2].bound == 5**-0.5 and net.gradient is None
    w, x = weights(net), images(net, 2)
    p = net.layout.views([w])
    h = (x.flatten(1) @ p["base.dense.weight"].T + p["base.dense.bias"]).tanh()
    close(net.represent([w], x), h)
    close(net.logits([w], x), h @ p["head.out.weight"].T + p["head.out.bias"])


# The 6-layer CNN's operations.


class Recorded(Ops):
    """Notes the sides of the images that each layer leaves."""

    def __init__(self) -> None:
        self.convolved: list[tuple[int, ...]] = []
        self.pooled: list[tuple[int, ...]] = []

    def conv(self, x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        out = super().conv(x, weight, bias, padding)
        self.convolved.append(tuple(out.shape[1:]))
        return out

    def pool(self, x: Tensor, padding: int = 0) -> Tensor:
        out = super().pool(x, padding)
        self.pooled.append(tuple(out.shape[2:]))
        return out


@pytest.mark.parametrize(("side", "sides"), [(32, [17, 9, 5, 3]), (64, [33, 17, 9, 5])])
def test_the_6_layer_cnn_has_the_sheets_sides(side: int, sides: list[int]) -> None:
    """pFedVEM sheet, §4 and §13."""
    net, ops = cnn6((3, side, side), 20), Recorded()
    assert net.features is not None
    net.features(ops, net.layout.views([net.init(0)]), torch.rand(1, *net.shape), ungated)
    assert ops.pooled == [(n, n) for n in sides]
    channels = zip((32, 64, 128, 256, 100), (side, *sides), strict=True)
    assert ops.convolved == [(c, n, n) for c, n in channels]


@pytest.mark.parametrize("side", [1, 2, 5])
def test_the_6_layer_cnn_takes_images_of_any_size(side: int) -> None:
    """Every pooled window has a real pixel, so that none of the padding's -inf gets through."""
    net = cnn6((3, side, side + 1), 3)
    assert torch.isfinite(net.represent([weights(net)], images(net, 2))).all()


def stacked_pool(kind: str, x: Tensor, padding: int) -> Tensor:
    """Pooling of ["clients", "batch", "channels", "height", "width"] in a stack's own layout, and back."""
    ops = STACKS[kind](len(x), None)
    out = ops.pool(ops.images(x), padding)
    return out.movedim(-1, 2) if kind == "columns" else out.unflatten(1, (len(x), -1)).transpose(0, 1)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("sides", [(4, 4), (5, 5), (4, 7)])
def test_padded_pooling_never_takes_the_padding(padding: int, sides: tuple[int, int]) -> None:
    x = -1 - torch.rand(2, 3, 4, *sides, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    around = F.pad(x, (padding,) * 4, value=-torch.inf)
    expected = around.unfold(-2, 2, 2).unfold(-2, 2, 2).amax((-2, -1))
    assert torch.isfinite(expected).all()
    for i in range(2):
        assert torch.equal(Ops().pool(Ops().images(x[i]), padding), expected[i])
    for kind in STACKS:
        assert torch.equal(stacked_pool(kind, x, padding), expected)


def test_the_average_is_each_channels_mean_over_pixels() -> None:
    x = torch.rand(2, 3, 4, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = x.flatten(3).mean(3)
    for i in range(2):
        close(Ops().average(Ops().images(x[i])), expected[i])
    for kind in STACKS.values():
        ops = kind(2, None)
        close(ops.average(ops.images(x)), expected)
