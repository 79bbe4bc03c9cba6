"""The two architectures and CAFeMe's modulator against the sheet (§3) and against torch modules written here."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pflbench.errors import UsageError
from pflbench.models.convnet import cnn2, cnn2_paper, cnn3
from pflbench.models.network import Network, conv_parameters
from pflbench.models.ops import STACKS, Columns, Context, Ops, Stacked
from pflbench.testing import tiny_network
from pflbench.vector import Layout, Parameter, replace

SHAPES = {"cnn2": (1, 28, 28), "cnn2-paper": (1, 28, 28), "cnn3": (3, 32, 32)}
MODES = ("c0", "c1", "c2")


def network(name: str, classes: int = 10) -> Network:
    return {"cnn2": cnn2, "cnn2-paper": cnn2_paper, "cnn3": cnn3}[name](SHAPES[name], classes)


def part_size(net: Network, *parts: str) -> int:
    return sum(p.size for p in net.parameters if p.part in parts)


def weights(net: Network, seed: int = 0) -> Tensor:
    """Not initial values: normalizations must have scales and shifts that matter."""
    noise = torch.randn(net.layout.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return net.init(seed).double() + 0.05 * noise


def images(net: Network, *lead: int, seed: int = 1) -> Tensor:
    return torch.rand(*lead, *net.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Sizes, as printed in the sheet.


@pytest.mark.parametrize(
    ("name", "classes", "size", "head"),
    [
        ("cnn2", 10, 583_242, 530_954),
        ("cnn2", 62, 609_918, 557_630),
        ("cnn2-paper", 10, 329_002, 302_410),
        ("cnn3", 10, 1_006_858, 930_826),
    ],
)
def test_plain_networks_have_the_sheets_parameter_counts(name: str, classes: int, size: int, head: int) -> None:
    net = network(name, classes)
    assert net.layout.size == size
    assert list(net.layout.parts) == ["base", "head"]
    assert part_size(net, "head") == head


@pytest.mark.parametrize(
    ("name", "classes", "mode", "batch_norm", "modulator", "full"),
    [
        ("cnn2", 10, "c1", True, 543_220, 1_126_462),
        ("cnn2", 10, "c0", True, 543_220, 1_126_462),
        ("cnn2", 62, "c1", True, 543_220, 1_153_138),
        ("cnn2", 10, "c2", True, 871_252, 1_454_494),
        ("cnn2", 10, "c1", False, 543_028, 1_126_270),
        ("cnn3", 10, "c1", True, 725_000, 1_731_858),
        ("cnn3", 10, "c2", True, 1_200_968, 2_207_826),
        ("cnn2-paper", 10, "c1", True, 369_844, 698_846),
    ],
)
def test_cafeme_has_the_sheets_parameter_counts(
    name: str, classes: int, mode: str, batch_norm: bool, modulator: int, full: int
) -> None:
    net = network(name, classes).with_modulator(mode, batch_norm)
    assert part_size(net, "modulator") == modulator
    assert net.layout.size == full
    assert list(net.layout.parts) == ["modulator", "base", "head"]


def test_readings_of_the_modulator_have_other_sizes() -> None:
    """Labels are ten more inputs of the first linear layer; without the extra gate 1024 outputs of the last are less."""
    size = part_size(network("cnn2").with_modulator("c1", True), "modulator")
    labelled = network("cnn2").with_modulator("c1", True, labels=True)
    hidden = network("cnn2").with_modulator("c1", True, extra_gate=False)
    assert part_size(labelled, "modulator") == size + 10 * 100
    assert part_size(hidden, "modulator") == size - 1024 * 201
    assert labelled.contextual and not hidden.contextual


# The forward pass.


def norm2d(n: int) -> nn.Module:
    return nn.BatchNorm2d(n, track_running_stats=False)


def norm1d(n: int) -> nn.Module:
    return nn.BatchNorm1d(n, track_running_stats=False)


class Reference(nn.Module):
    """Sheet §3.1–§3.5, written as a torch module; parameters in the order modulator, convolutions, dense."""

    def __init__(
        self,
        name: str,
        classes: int,
        mode: str | None = None,
        batch_norm: bool = True,
        extra_gate: bool = True,
        labels: bool = False,
    ):
        super().__init__()
        self.mode, self.extra_gate, self.classes = mode, extra_gate, classes if labels else 0
        if name == "cnn2":
            convs, dense, before, after = [(1, 32, 5, 0), (32, 64, 5, 0)], [1024, 512], [1024, 100, 200], [200, 200]
        elif name == "cnn2-paper":
            convs, dense, before, after = [(1, 32, 5, 0), (32, 32, 5, 0)], [512, 576], [512, 100, 200], [200, 200]
        else:
            convs = [(3, 64, 3, 1), (64, 64, 3, 1), (64, 64, 3, 1)]
            dense, before, after = [1024, 576, 576], [1024, 100, 100, 200], [200, 200]
        before[0] += self.classes
        self.gates = [c[1] for c in convs] + dense[0 if extra_gate else 1 :]
        if mode:
            outputs = sum(self.gates) * (2 if mode == "c2" else 1)
            self.context_blocks = self.blocks(convs, batch_norm)
            self.context_before = self.mlp(before)
            self.context_after = nn.Sequential(*self.mlp(after), nn.Linear(200, outputs))
        self.convolutions = self.blocks(convs, True)
        self.dense = nn.ModuleList(nn.Sequential(nn.Linear(i, o), norm1d(o), nn.ReLU()) for i, o in pairwise(dense))
        self.out = nn.Linear(dense[-1], classes)

    @staticmethod
    def blocks(convs: list[tuple[int, int, int, int]], batch_norm: bool) -> nn.ModuleList:
        return nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(i, o, k, padding=pad),
                norm2d(o) if batch_norm else nn.Identity(),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )
            for i, o, k, pad in convs
        )

    @staticmethod
    def mlp(sizes: list[int]) -> nn.Sequential:
        return nn.Sequential(*[layer for i, o in pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())])

    def gate(self, a: Tensor, zeta: list[Tensor]) -> Tensor:
        """Draws what this layer needs from the front of the list of single outputs."""
        if self.mode is None:
            return a
        n = a.shape[1]
        shape = (1, n) + (1,) * (a.dim() - 2)
        z, zeta[0] = zeta[0][:n].reshape(shape), zeta[0][n:]
        if self.mode == "c0":
            return a + z
        if self.mode == "c1":
            return a / (1 + torch.exp(-z))
        shift, zeta[0] = zeta[0][:n].reshape(shape), zeta[0][n:]
        return z * a + shift

    def forward(self, x: Tensor, seen: Tensor | None = None, y: Tensor | None = None) -> Tensor:
        """`seen`: the images of another context than x, and their labels y."""
        zeta = []
        if self.mode:
            h = x if seen is None else seen
            for block in self.context_blocks:
                h = block(h)
            h = h.flatten(1)
            if self.classes and y is not None:
                h = torch.cat([h, F.one_hot(y, self.classes)], 1)
            zeta = [self.context_after(self.context_before(h).mean(0))]
        for block in self.convolutions:
            x = self.gate(block(x), zeta)
        x = self.gate(x.flatten(1), zeta) if self.extra_gate else x.flatten(1)
        for layer in self.dense:
            x = self.gate(layer(x), zeta)
        assert not zeta or len(zeta[0]) == 0
        return self.out(x)


CASES = [
    ("cnn2", None, True),
    ("cnn3", None, True),
    ("cnn2-paper", None, True),
    *[("cnn2", mode, True) for mode in MODES],
    ("cnn2", "c1", False),
    ("cnn3", "c1", True),
    ("cnn3", "c2", True),
]


@pytest.mark.parametrize(("name", "mode", "batch_norm"), CASES)
def test_the_forward_pass_is_the_sheets(name: str, mode: str | None, batch_norm: bool) -> None:
    net = network(name, 7)
    if mode:
        net = net.with_modulator(mode, batch_norm)
    module = Reference(name, 7, mode, batch_norm).double()
    w, x = weights(net), images(net, 4)
    assert [tuple(p.shape) for p in module.parameters()] == [p.shape for p in net.parameters]
    fill(module, net, w)
    with torch.no_grad():
        torch.testing.assert_close(net.logits([w], x), module(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", [{"extra_gate": False}, {"contextual": True}, {"labels": True}], ids=str)
@pytest.mark.parametrize(("name", "mode"), [("cnn2", "c1"), ("cnn2", "c2"), ("cnn2-paper", "c1"), ("cnn3", "c0")])
def test_the_forward_pass_of_a_reading_is_the_papers(name: str, mode: str, options: dict[str, bool]) -> None:
    """With a context of other rows than the batch's, more of them, and their labels."""
    net = network(name, 7).with_modulator(mode, True, **options)
    module = Reference(name, 7, mode, **{k: v for k, v in options.items() if k != "contextual"}).double()
    w, x, seen, y = weights(net), images(net, 4), images(net, 6, seed=2), torch.arange(6)
    assert [tuple(p.shape) for p in module.parameters()] == [p.shape for p in net.parameters]
    fill(module, net, w)
    given = (seen, y) if net.contextual else (None, None)
    with torch.no_grad():
        found = net.logits([w], x, context=Context(seen, y) if net.contextual else None)
        torch.testing.assert_close(found, module(x, *given), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("masked", [False, True])
def test_a_stack_of_contexts_is_its_clients(masked: bool, stack: str) -> None:
    """Batches and contexts are padded each by its own mask, and nothing of the padding is seen."""
    net = tiny_network().with_modulator("c1", True, labels=True)
    w, x, mask = one_stack(net, (5, 3), 5)
    seen, y = images(net, 2, 4, seed=5), torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    real = torch.tensor([[True] * 4, [True, True, False, False]]) if masked else None
    stacked = net.logits([w], x, context=Context(seen, y, real), mask=mask, stack=stack)
    for i, (n, m) in enumerate(((5, 4), (3, 2 if masked else 4))):
        alone = net.logits([w[i]], x[i, :n], context=Context(seen[i, :m], y[i, :m]))
        torch.testing.assert_close(stacked[i, :n], alone, rtol=1e-9, atol=1e-9)


def fill(module: nn.Module, net: Network, w: Tensor) -> None:
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), net.layout.views([w]).values(), strict=True):
            parameter.copy_(value)


def test_a_convolutions_weight_lies_channels_last_in_the_vector() -> None:
    """So that views need no copy; and the values drawn are those of PyTorch's order, whatever the vector's."""
    p = conv_parameters("base.conv0", 3, 4, 5)[0]
    w = torch.arange(p.size, dtype=torch.float64)
    view = Layout((p,)).views([w])[p.name]
    assert view.shape == p.shape and view.is_contiguous(memory_format=torch.channels_last)
    assert view.data_ptr() == w.data_ptr()
    assert torch.equal(p.flat(view), w)
    drawn = p.view(p.draw(torch.Generator().manual_seed(1)))
    plain = (torch.rand(p.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2 - 1) * p.bound
    assert torch.equal(drawn, plain.view(p.shape))
    stacked = p.view(torch.stack([w, w + 1]))
    assert torch.equal(stacked[1], view + 1)


def test_a_wrong_order_of_gates_would_be_seen() -> None:
    net = network("cnn2").with_modulator("c1", True)
    module = Reference("cnn2", 10, "c1").double()
    w, x = weights(net), images(net, 4)
    fill(module, net, w)
    last = module.context_after[-1]
    with torch.no_grad():
        last.weight[:96] = last.weight[:96].flip(0)
        last.bias[:96] = last.bias[:96].flip(0)
        assert (net.logits([w], x) - module(x)).abs().max() > 1e-6


# Stacks of clients.

NETWORKS = {
    "plain": tiny_network(),
    **{mode: tiny_network().with_modulator(mode, True) for mode in MODES},
    "c1 without norm": tiny_network().with_modulator("c1", False),
    "cnn2": network("cnn2", 5),
    "cnn3 c2": network("cnn3").with_modulator("c2", True),
}


def one_stack(net: Network, rows: tuple[int, ...], batch: int) -> tuple[Tensor, Tensor, Tensor]:
    w = torch.stack([weights(net, seed) for seed in range(len(rows))])
    mask = torch.arange(batch)[None] < torch.tensor(rows)[:, None]
    return w, images(net, len(rows), batch), mask


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_stack_is_its_clients(name: str, stack: str) -> None:
    net = NETWORKS[name]
    w, x, _ = one_stack(net, (4, 4), 4)
    stacked = net.logits([w], x, mask=None, stack=stack)
    assert stacked.shape == (2, 4, net.classes)
    for i in range(2):
        torch.testing.assert_close(stacked[i], net.logits([w[i]], x[i]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_ragged_stack_is_its_clients(name: str, stack: str) -> None:
    net, rows = NETWORKS[name], (5, 3, 1)
    w, x, mask = one_stack(net, rows, 5)
    stacked = net.logits([w], x, mask=mask, stack=stack)
    for i, n in enumerate(rows):
        torch.testing.assert_close(stacked[i, :n], net.logits([w[i]], x[i, :n]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", ["plain", *MODES])
def test_padded_rows_never_reach_real_ones(name: str, stack: str) -> None:
    net, rows = NETWORKS[name], (5, 2)
    w, x, mask = one_stack(net, rows, 5)
    other = torch.where(mask[:, :, None, None, None], x, 1 - x)
    a, b = net.logits([w], x, mask=mask, stack=stack), net.logits([w], other, mask=mask, stack=stack)
    assert torch.equal(a[mask], b[mask])


def test_masked_batch_norm_uses_real_rows_only() -> None:
    g = torch.Generator().manual_seed(0)
    y = torch.randn(2, 6, 3, generator=g, dtype=torch.float64)  # features ["clients", "batch", "features"]
    mask = torch.arange(6)[None] < torch.tensor([[6], [4]])
    scale, shift = torch.rand(2, 2, 3, generator=g, dtype=torch.float64)
    for kind in (Stacked, Columns):
        check_masked_norm(kind(2, mask).batch_norm(y, scale, shift), y, scale, shift)


def check_masked_norm(out: Tensor, y: Tensor, scale: Tensor, shift: Tensor) -> None:
    for i, n in enumerate((6, 4)):
        real = y[i, :n]
        expected = (real - real.mean(0)) / (real.var(0, unbiased=False) + 1e-5).sqrt() * scale[i] + shift[i]
        torch.testing.assert_close(out[i, :n], expected, rtol=1e-12, atol=1e-12)


def test_one_row_normalizes_to_the_shift_alone_and_stacked() -> None:
    scale, shift = torch.tensor([2.0, 3.0]), torch.tensor([0.5, -1.0])
    x = torch.tensor([[7.0, -3.0]])
    assert torch.equal(Ops().batch_norm(x, scale, shift), shift[None])
    for kind in (Stacked, Columns):
        assert torch.equal(kind(1, None).batch_norm(x[None], scale[None], shift[None])[0], shift[None])


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", ["plain", *MODES, "cnn2"])
def test_one_row_batches_work_and_have_equal_gradients(name: str, stack: str) -> None:
    net = NETWORKS[name]
    w, x, _ = one_stack(net, (1, 1), 1)
    labels = torch.tensor([[1], [0]])
    w.requires_grad_()
    loss = F.cross_entropy(net.logits([w], x, mask=None, stack=stack).flatten(0, 1), labels.flatten(), reduction="sum")
    (stacked,) = torch.autograd.grad(loss, w)
    for i in range(2):
        alone = w[i].detach().requires_grad_()
        (single,) = torch.autograd.grad(F.cross_entropy(net.logits([alone], x[i]), labels[i]), alone)
        assert torch.isfinite(single).all()
        torch.testing.assert_close(stacked[i], single, rtol=1e-9, atol=1e-9)


# Initial values.


@pytest.mark.parametrize("name", ["cnn2", "cnn3"])
def test_initial_values_are_pytorchs_default_ranges(name: str) -> None:
    net = network(name).with_modulator("c1", True)
    values = net.layout.views([net.init(3)])
    for key, value in values.items():
        if ".norm." in key:
            assert (value == (1 if key.endswith("scale") else 0)).all(), key
            continue
        fan_in = math.prod(values[key.rsplit(".", 1)[0] + ".weight"].shape[1:])
        bound = 1 / math.sqrt(fan_in)
        assert value.abs().max() <= bound * (1 + 1e-6), key
        if value.numel() >= 500:
            assert value.max() > 0.98 * bound and value.min() < -0.98 * bound, key
            assert value.mean().abs() < 0.2 * bound, key


def test_initial_values_belong_to_seed_and_number() -> None:
    net = tiny_network()
    assert net.init(0).dtype == torch.float32
    assert torch.equal(net.init(0), net.init(0))
    different = [net.init(0), net.init(0, 1), net.init(0, 2), net.init(1), net.init(1, 1)]
    assert len({tuple(w.tolist()) for w in different}) == len(different)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [0, 1])
def test_cafemes_base_is_the_baselines_initial_model(mode: str, k: int) -> None:
    plain = network("cnn2")
    gated = plain.with_modulator(mode, True)
    assert torch.equal(gated.init(5, k)[-plain.layout.size :], plain.init(5, k))


# Refusals, and the vector.


@pytest.mark.parametrize(("name", "shape"), [("cnn2", (3, 28, 28)), ("cnn2", (1, 32, 32)), ("cnn3", (1, 28, 28))])
def test_wrong_images_are_a_usage_error(name: str, shape: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match=f"{name} takes"):
        {"cnn2": cnn2, "cnn3": cnn3}[name](shape, 10)


def test_unknown_modulation_and_missing_modulator_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="c0, c1, c2"):
        tiny_network().with_modulator("c3", True)
    with pytest.raises(UsageError, match="no modulator"):
        tiny_network().with_modulator("c1", True).with_modulator("c1", True)


def test_a_vector_cut_into_parts_has_the_same_views() -> None:
    net = tiny_network().with_modulator("c1", True)
    w = weights(net)
    whole = net.layout.views([w])
    cut = net.layout.views([w[where] for where in net.layout.parts.values()])
    assert list(whole) == list(cut) == [p.name for p in net.parameters]
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_layout_refuses_what_it_cannot_slice() -> None:
    with pytest.raises(UsageError, match="base, head"):
        tiny_network().layout.part("modulator")
    scattered = Layout((Parameter("a.x", (2,)), Parameter("b.x", (1,)), Parameter("a.y", (3,))))
    with pytest.raises(ValueError, match="not contiguous"):
        _ = scattered.parts


def test_replace_leaves_the_rest() -> None:
    w = torch.arange(5.0)
    assert replace(w, slice(1, 3), torch.tensor([8.0, 9.0])).tolist() == [0, 8, 9, 3, 4]
    assert w.tolist() == [0, 1, 2, 3, 4]
