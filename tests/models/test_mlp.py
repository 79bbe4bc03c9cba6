"""pFedVEM's networks against torch modules written here, and the gradient derived by hand against autograd."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pflbench.engine.client_map import ClientMap, Data, Item
from pflbench.engine.objective import LoopObjective, Task
from pflbench.errors import UsageError
from pflbench.methods.base import Batch
from pflbench.models.mlp import mlp, perceptron
from pflbench.models.network import Network
from pflbench.models.ops import STACKS
from pflbench.models.plain_cnn import cnn6, lenet, pfl_cnn
from pflbench.testing import assert_same, nudged

IMAGES, COLOR = (1, 28, 28), (3, 32, 32)


def weights(net: Network, seed: int = 0) -> Tensor:
    """Not initial values: biases that matter."""
    noise = torch.randn(net.layout.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return net.init(seed).double() + 0.1 * noise


def task(net: Network, rows: int = 24) -> tuple[Task, np.ndarray]:
    rng = np.random.default_rng(0)
    pool = torch.from_numpy(rng.integers(256, size=(rows, *net.shape), dtype=np.uint8))
    return Task(net, pool), rng.integers(net.classes, size=rows)


def dense(sizes: list[int]) -> list[nn.Module]:
    return [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())][:-1]


def mlp_module(net: Network, hidden: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *dense([net.shape[0] * net.shape[1] * net.shape[2], *hidden, net.classes]))


def lenet_module(net: Network, a: int = 16, b: int = 32, hidden: tuple[int, ...] = (120, 84)) -> nn.Module:
    """As in the authors' code: rectified, then pooled."""
    return nn.Sequential(
        *(nn.Conv2d(net.shape[0], a, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(a, b, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *dense([b * (4 if net.shape[1] == 28 else 5) ** 2, *hidden, net.classes]),
    )


def cnn6_module(net: Network) -> nn.Module:
    """As in the authors' code: rectified, then pooled with padding."""
    convolutions = [(nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in pairwise([3, 32, 64, 128, 256, 100])]
    pooled = [layer for pair in convolutions[:-1] for layer in (*pair, nn.MaxPool2d(2, 2, 1))]
    return nn.Sequential(
        *pooled, *convolutions[-1], nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(100, net.classes)
    )


def filled(module: nn.Module, net: Network, w: Tensor) -> nn.Module:
    values = net.layout.views([w]).values()
    with torch.no_grad():
        for parameter, value in zip(module.double().parameters(), values, strict=True):
            assert parameter.shape == value.shape
            parameter.copy_(value)
    return module


def module_gradient(module: nn.Module, net: Network, x: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy's gradient in the order of the network's vector."""
    grads = torch.autograd.grad(F.cross_entropy(module(x), labels), list(module.parameters()))
    return torch.cat([p.flat(g) for p, g in zip(net.parameters, grads, strict=True)])


CASES: dict[str, tuple[Network, Callable[[Network], nn.Module]]] = {
    "mlp": (mlp(IMAGES, 10), lambda net: mlp_module(net, (100,))),
    "two hidden layers": (perceptron((2, 5, 4), 4, hidden=(7, 5)), lambda net: mlp_module(net, (7, 5))),
    "three hidden layers": (perceptron((1, 3, 3), 3, hidden=(6, 5, 4)), lambda net: mlp_module(net, (6, 5, 4))),
    "no hidden layer": (perceptron((1, 4, 4), 3, hidden=()), lambda net: mlp_module(net, ())),
    "lenet": (lenet(COLOR, 10), lenet_module),
    "pfl-cnn": (pfl_cnn(IMAGES, 10), lambda net: lenet_module(net, 32, 64, (512,))),
    "pfl-cnn in color": (pfl_cnn(COLOR, 100), lambda net: lenet_module(net, 32, 64, (512,))),
    "cnn6": (cnn6(COLOR, 20), cnn6_module),
    "cnn6 with odd sides": (cnn6((3, 9, 14), 3), cnn6_module),
}
each_case = pytest.mark.parametrize("name", CASES)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("net", "base", "head", "width"),
    [
        (mlp(IMAGES, 10), 78_500, 1_010, 100),
        (lenet(COLOR, 10), 120_332, 850, 84),
        (pfl_cnn(IMAGES, 10), 576_896, 5_130, 512),
        (pfl_cnn(COLOR, 100), 873_408, 51_300, 512),
        (cnn6(COLOR, 20), 618_916, 2_020, 100),
        (cnn6((3, 64, 64), 3), 618_916, 303, 100),
    ],
    ids=["mlp", "lenet", "pfl-cnn", "pfl-cnn in color", "cnn6", "cnn6 on 64×64"],
)
def test_sizes_are_the_papers(net: Network, base: int, head: int, width: int) -> None:
    """pFedVEM sheet, §4; PFLlib sheet, 1.7."""
    assert net.width == width
    assert {part: where.stop - where.start for part, where in net.layout.parts.items()} == {"base": base, "head": head}
    assert net.layout.size == base + head


@each_case
def test_the_forward_pass_is_the_modules(name: str) -> None:
    net, module = CASES[name]
    w = weights(net)
    x = torch.rand(6, *net.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        close(net.logits([w], x), filled(module(net), net, w)(x), 1e-11)


@pytest.mark.parametrize("name", ["mlp", "lenet", "cnn6"])
def test_single_precision_agrees_with_the_modules(name: str) -> None:
    net, module = CASES[name]
    (t, labels), w = task(net), net.init(2)
    batch = Batch(torch.arange(8), torch.from_numpy(labels[:8]))
    x = t.pool[:8].float() / 255

    def alone(w: Tensor) -> tuple[Tensor, Tensor]:
        made = filled(module(net), net, w).float()
        return made(x).detach(), module_gradient(made, net, x, batch.labels)

    f = LoopObjective(t)
    assert_same((f.logits(w, batch), f.grad(w, batch)), alone(w), alone(nudged(w)))


@each_case
@pytest.mark.parametrize("rows", [8, 1])
@pytest.mark.parametrize("part", [None, "base", "head"])
def test_gradients_are_autograds(name: str, rows: int, part: str | None) -> None:
    net, module = CASES[name]
    (t, labels), w = task(net), weights(net)
    batch = Batch(torch.arange(rows), torch.from_numpy(labels[:rows]))
    f = LoopObjective(t)
    if part is not None and part not in net.layout.parts:
        with pytest.raises(UsageError, match=part):
            f.grad(w, batch, wrt=part)
        return
    before = w.clone()
    expected = module_gradient(filled(module(net), net, w), net, t.pool[:rows].double() / 255, batch.labels)
    found = f.grad(w, batch, wrt=part)
    close(found, expected[net.layout.part(part)] if part else expected)
    assert torch.equal(w, before) and f.gradient_calls == 1


@pytest.mark.parametrize("name", ["mlp", "two hidden layers"])
def test_the_gradient_derived_by_hand_is_taken_and_is_autograds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _ = CASES[name]
    assert net.gradient is not None
    by_autograd = Network(net.parameters, net.forward, net.shape, net.classes)
    (t, labels), w = task(net), weights(net)
    batch = Batch(torch.arange(5), torch.from_numpy(labels[:5]))
    parts = (None, "base", "head")
    expected = [LoopObjective(Task(by_autograd, t.pool)).grad(w, batch, wrt=part) for part in parts]
    monkeypatch.setattr(torch.autograd, "grad", None)  # cannot be called
    for part, g in zip(parts, expected, strict=True):
        close(LoopObjective(t).grad(w, batch, wrt=part), g)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_keeps_the_vectors_type(dtype: torch.dtype) -> None:
    net, _ = CASES["two hidden layers"]
    t, labels = task(net)
    g = LoopObjective(t).grad(weights(net).to(dtype), Batch(torch.arange(4), torch.from_numpy(labels[:4])))
    assert g.dtype == dtype and g.shape == (net.layout.size,) and not g.requires_grad


def test_large_logits_do_not_overflow_the_gradient() -> None:
    net, module = CASES["two hidden layers"]
    (t, labels), w = task(net), 100 * weights(net)
    batch = Batch(torch.arange(6), torch.from_numpy(labels[:6]))
    found = LoopObjective(t).grad(w, batch)
    expected = module_gradient(filled(module(net), net, w), net, t.pool[:6].double() / 255, batch.labels)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@each_case
@pytest.mark.parametrize("convolved", STACKS)
def test_ragged_clients_are_the_same_looped_and_stacked(name: str, convolved: str) -> None:
    """Loss, gradients by part, Hessian-vector product and logits; the loop's gradient may be derived by hand."""
    net, _ = CASES[name]
    (t, labels), w = task(net), weights(net)
    v = weights(net, 1)
    parts = [None, *net.layout.parts]

    def fn(f: Any, shared: Any, own: Tensor, taken: Any) -> Any:
        (b,) = taken
        return f(own, b), [f.grad(own, b, wrt=part) for part in parts], f.hvp(own, b, v), f.logits(own, b)

    rows = [np.arange(7), np.arange(7, 8), np.arange(8, 12)]
    items = [Item(0, w * (1 + 0.1 * i), ([r],)) for i, r in enumerate(rows)]
    looped, stacked = (
        ClientMap(Data(t._replace(stack=convolved), labels, (0,)), execution, most_padding=np.inf)(fn, [()], items)
        for execution in ("loop", "vectorized")
    )
    for (loss, grads, hvp, logits), (loss2, grads2, hvp2, logits2) in zip(looped, stacked, strict=True):
        close(loss, loss2, 1e-11)
        for g, g2 in zip(grads, grads2, strict=True):
            close(g, g2, 1e-11)
        close(hvp, hvp2, 1e-9)
        close(logits, logits2[: len(logits)], 1e-11)


def test_lenet_wants_color_images_of_its_size() -> None:
    with pytest.raises(UsageError, match="lenet takes"):
        lenet(IMAGES, 10)
    with pytest.raises(UsageError, match="pfl-cnn takes images of 28×28 or 32×32"):
        pfl_cnn((3, 64, 64), 10)


def test_cnn6_wants_color_images() -> None:
    with pytest.raises(UsageError, match="cnn6 takes 3-channel images; this dataset has 1×28×28"):
        cnn6(IMAGES, 20)
