"""Closed forms on quadratics, and autograd through the whole inner path on the tiny network."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.methods.base import Batch, Batches, Round, mean, path, steps, total_loss
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.ditto import Ditto, DittoClient
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.ifca import IFCA, Upload
from pflbench.methods.per_fedavg import PerFedAvg
from pflbench.optim import adam_init
from pflbench.testing import tiny_federation, tiny_network, tiny_spec

NOW = Round(0)
SIZE = 6
ModuleOf = Callable[[Tensor], nn.Module]


class Quadratic:
    """Batch number i has the loss ½ wᵀ A_i w - b_iᵀ w; an `Objective` whose derivatives are exact."""

    def __init__(self, count: int, seed: int = 0):
        g = torch.Generator().manual_seed(seed)
        root = torch.randn(count, SIZE, SIZE, generator=g, dtype=torch.float64) / SIZE**0.5
        self.a = root @ root.mT + 0.5 * torch.eye(SIZE, dtype=torch.float64)
        self.b = torch.randn(count, SIZE, generator=g, dtype=torch.float64)
        self.batches = tuple(Batch(torch.tensor([i]), torch.tensor([0])) for i in range(count))

    def __call__(self, w: Tensor, b: Batch) -> Tensor:
        i = b.rows[0]
        return 0.5 * w @ self.a[i] @ w - self.b[i] @ w

    def grad(self, w: Tensor, b: Batch, *, wrt: str | None = None, **_: Any) -> Tensor:
        return (self.a[b.rows[0]] @ w - self.b[b.rows[0]])[self.part(wrt or "base")]

    def hvp(self, w: Tensor, b: Batch, v: Tensor) -> Tensor:
        return self.a[b.rows[0]] @ v

    def logits(self, w: Tensor, b: Batch) -> Tensor:
        raise NotImplementedError

    def features(self, w: Tensor, b: Batch) -> Tensor:
        raise NotImplementedError

    def part(self, name: str) -> slice:
        return slice(0, SIZE)


W = torch.linspace(-1, 2, SIZE, dtype=torch.float64)
EYE = torch.eye(SIZE, dtype=torch.float64)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# Quadratics.


def test_fedavg_on_one_quadratic_is_a_power_of_its_contraction() -> None:
    f = Quadratic(1)
    optimum = torch.linalg.solve(f.a[0], f.b[0])
    upload, state = FedAvg(lr=0.1).client(f, W, (), f.batches * 20, round=NOW)
    close(upload, optimum + torch.linalg.matrix_power(EYE - 0.1 * f.a[0], 20) @ (W - optimum))
    assert state == ()


def test_fedavg_server_is_the_weighted_mean() -> None:
    uploads, n = torch.randn(3, SIZE, dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    close(FedAvg().server(W, uploads, n, NOW), 0.2 * uploads[0] + 0.3 * uploads[1] + 0.5 * uploads[2])
    assert mean(uploads.float()[:, 0], n).dtype == torch.float32


def test_per_fedavg_orders_on_quadratics() -> None:
    f = Quadratic(8)
    alpha, beta = 0.2, 0.1
    expected = {"exact": W, "first": W}
    for order in expected:
        w = W
        for s in (0, 4):
            phi = w - alpha * (f.a[s] @ w - f.b[s])
            g = f.a[s + 1] @ phi - f.b[s + 1]
            w = w - beta * (g - (alpha * f.a[s + 2] @ g if order == "exact" else 0))
        expected[order] = w
    got = {
        order: PerFedAvg(steps=2, inner_lr=alpha, outer_lr=beta, order=order).client(  # type: ignore[arg-type]
            f, W, (), f.batches, round=NOW
        )[0]
        for order in ("exact", "first", "hf")
    }
    close(got["exact"], expected["exact"])
    close(got["first"], expected["first"])
    close(got["hf"], got["exact"], 1e-9)  # a central difference is exact on quadratics
    assert (got["first"] - got["exact"]).abs().max() > 1e-3


@pytest.mark.parametrize("order", ["first", "exact"])
def test_cafemes_meta_gradient_on_quadratics(order: Any) -> None:
    f = Quadratic(5)
    alpha = 0.2
    phi = W
    for s in range(4):
        phi = phi - alpha * (f.a[s] @ phi - f.b[s])
    g = f.a[4] @ phi - f.b[4]
    if order == "exact":
        for s in (3, 2, 1, 0):
            g = (EYE - alpha * f.a[s]) @ g
    method = CAFeMe(steps=4, inner_lr=alpha, order=order, outer_lr=0.01)
    upload, state = method.client(f, W, adam_init(W), f.batches[:4], f.batches[4:], round=NOW)
    close(state.first / 0.1, g)  # Adam's first step shows only signs; its moments show the gradient
    close(state.second / 0.001, g * g)
    close(upload, W - 0.01 * g / (g.abs() + 1e-8))


def test_ditto_settles_where_loss_and_pull_agree() -> None:
    f = Quadratic(1)
    method = Ditto(personal_lr=0.2, lam=0.7, lr=0.01)
    _, state = method.client(f, W, DittoClient(-W, adam_init(W)), f.batches * 300, f.batches, round=NOW)
    close(state.personal, torch.linalg.solve(f.a[0] + 0.7 * EYE, f.b[0] + 0.7 * W), 1e-9)
    assert state.adam.updates == 1


def test_ifca_chooses_by_the_sum_of_losses_and_trains_the_choice() -> None:
    f = Quadratic(3)
    models = torch.stack([W, torch.zeros_like(W), torch.linalg.solve(f.a.sum(0), f.b.sum(0)), -W])
    losses = [sum(f(w, b) for b in f.batches) for w in models]
    assert min(range(4), key=lambda k: losses[k]) == 2
    upload, _ = IFCA(clusters=4, lr=0.1).client(f, models, (), f.batches, f.batches * 2, round=NOW)
    assert upload.choice == 2
    w = models[2]
    for b in f.batches * 2:
        w = w - 0.1 * f.grad(w, b)
    close(upload.model, w)
    close(IFCA(clusters=4).deploy(f, models, f.batches), models[2])


def test_ifca_ties_go_to_the_lowest_number() -> None:
    f = Quadratic(2)
    assert IFCA(clusters=3).choose(f, torch.stack([W, W, W]), f.batches) == 0
    best = torch.linalg.solve(f.a.sum(0), f.b.sum(0))
    assert IFCA(clusters=4).choose(f, torch.stack([W, best, W, best]), f.batches) == 1


def test_ifca_server_averages_who_chose_and_leaves_the_rest() -> None:
    models = torch.arange(4.0 * SIZE, dtype=torch.float64).reshape(4, SIZE)
    uploads = Upload(torch.tensor([2, 0, 2, 0, 0]), torch.randn(5, SIZE, dtype=torch.float64))
    n = torch.tensor([0.1, 0.2, 0.3, 0.25, 0.15], dtype=torch.float64)
    after = IFCA(clusters=4).server(models, uploads, n, NOW)
    u = uploads.model
    close(after[0], (0.2 * u[1] + 0.25 * u[3] + 0.15 * u[4]) / 0.6)
    close(after[2], (0.1 * u[0] + 0.3 * u[2]) / 0.4)
    assert torch.equal(after[[1, 3]], models[[1, 3]])


def test_ifca_starts_from_independent_models_and_the_common_one() -> None:
    net = tiny_network()

    class New:
        def __call__(self, k: int = 0) -> Tensor:
            return net.init(0, k)

        def part(self, name: str) -> slice:
            return net.layout.part(name)

    models = IFCA(clusters=3).init(New(), 6)
    assert torch.equal(models[0], net.init(0)) and not torch.equal(models[1], models[2])


# The loop over minibatches.


def test_steps_leaves_the_whole_carry_at_padded_steps() -> None:
    f = Quadratic(4)
    real = [True, False, True, False]
    padded = tuple(b._replace(real=torch.tensor(r)) for b, r in zip(f.batches, real, strict=True))

    def fn(carry: tuple[Tensor, Tensor], b: Batch) -> tuple[Tensor, Tensor]:
        return carry[0] - 0.1 * f.grad(carry[0], b), carry[1] + 1

    zero = torch.zeros(())
    w, count = steps(fn, (W, zero), padded)
    expected, _ = steps(fn, (W, zero), f.batches[0::2])
    assert torch.equal(w, expected) and count == 2
    assert total_loss(f, W, padded) == f(W, f.batches[0]) + f(W, f.batches[2])


def test_path_keeps_what_was_before_each_step() -> None:
    end, before = path(lambda x, b: x + 1, torch.zeros(()), Quadratic(3).batches)
    assert end == 3 and [int(x) for x in before] == [0, 1, 2]


# The tiny network, against autograd through the path.

FEDERATION = tiny_federation(0)


def taken(method: Any) -> list[Batches]:
    drawn, _ = support_streams(FEDERATION, tiny_spec())[3].draw(method.takes(), 0)
    return [tuple(Batch(torch.from_numpy(r), torch.from_numpy(FEDERATION.labels[r])) for r in rows) for rows in drawn]


def maml(loss: Callable[[Tensor, Batch], Tensor], w: Tensor, alpha: float, inner: Batches, outer: Batch) -> Tensor:
    """The exact meta-gradient: autograd through every inner step."""
    w = w.detach().requires_grad_()
    phi = w
    for b in inner:
        (g,) = torch.autograd.grad(loss(phi, b), phi, create_graph=True)
        phi = phi - alpha * g
    return torch.autograd.grad(loss(phi, outer), w)[0]


def module_loss(build: ModuleOf, w: Tensor) -> Callable[[Tensor, Batch], Tensor]:
    """The loss as a function of the vector, through an independent torch module."""
    module = build(w)
    shapes = {name: p.shape for name, p in module.named_parameters()}

    def loss(v: Tensor, b: Batch) -> Tensor:
        chunks = v.split([s.numel() for s in shapes.values()])
        named = {name: c.reshape(s) for (name, s), c in zip(shapes.items(), chunks, strict=True)}
        return F.cross_entropy(functional_call(module, named, FEDERATION.x[b.rows].double() / 255), b.labels)

    return loss


@pytest.mark.parametrize("mode", ["c0", "c1", "c2"])
def test_exact_cafeme_is_autograd_through_the_path(mode: Any) -> None:
    method = CAFeMe(steps=4, outer_batches=2, inner_lr=0.1, order="exact", modulation=mode)
    network = method.network(tiny_network())
    f, theta = LoopObjective(Task(network, FEDERATION.x)), network.init(0).double()
    inner, (outer,) = taken(method)
    _, state = method.client(f, theta, adam_init(theta), inner, (outer,), round=NOW)

    def loss(w: Tensor, b: Batch) -> Tensor:
        return F.cross_entropy(network.logits([w], FEDERATION.x[b.rows].double() / 255), b.labels)

    close(state.first / 0.1, maml(loss, theta, 0.1, inner, outer), 1e-9)


def test_exact_per_fedavg_is_autograd_through_the_path(tiny_module: ModuleOf) -> None:
    """With the third minibatch equal to the first, the exact order is MAML with one inner step."""
    method = PerFedAvg(steps=3, inner_lr=0.1, outer_lr=0.05, order="exact")
    f, w = LoopObjective(Task(tiny_network(), FEDERATION.x)), tiny_network().init(0).double()
    (drawn,) = taken(method)
    batches = tuple(drawn[i - 2] if i % 4 == 2 else b for i, b in enumerate(drawn))
    upload, _ = method.client(f, w, (), batches, round=NOW)
    expected, loss = w, module_loss(tiny_module, w)
    for s in range(0, 12, 4):
        expected = expected - 0.05 * maml(loss, expected, 0.1, (batches[s],), batches[s + 1])
    close(upload, expected, 1e-9)


def test_exact_meta_gradient_of_the_plain_network_is_autograd_through_a_module(tiny_module: ModuleOf) -> None:
    """The same recursion as CAFeMe's, on the network without gates and against a module that shares no code."""
    method = CAFeMe(steps=5, outer_batches=3, inner_lr=0.1, order="exact")
    f, w = LoopObjective(Task(tiny_network(), FEDERATION.x)), tiny_network().init(0).double()
    inner, (outer,) = taken(method)
    _, state = method.client(f, w, adam_init(w), inner, (outer,), round=NOW)
    close(state.first / 0.1, maml(module_loss(tiny_module, w), w, 0.1, inner, outer), 1e-9)


def test_per_fedavgs_central_difference_converges_to_the_exact_product() -> None:
    """Away from kinks (of ReLU and pooling) the error falls with the square of delta; across one it does not."""
    f, w = LoopObjective(Task(tiny_network(), FEDERATION.x)), tiny_network().init(2).double()
    (drawn,) = taken(PerFedAvg())
    v = f.grad(w, drawn[1])
    exact = PerFedAvg(order="exact")._hessian_term(f, w, drawn[2], v)
    coarse, middle, fine = (
        (PerFedAvg(delta=delta)._hessian_term(f, w, drawn[2], v) - exact).norm().item() / exact.norm().item()
        for delta in (1e-3, 1e-4, 1e-5)
    )
    assert coarse < 1e-3 and middle < 1e-4 and fine < 1e-6
    assert middle == pytest.approx(coarse / 100, rel=0.1) and fine == pytest.approx(middle / 100, rel=0.1)


def test_the_meta_gradient_is_learn2learns(tiny_module: ModuleOf) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        l2l = pytest.importorskip("learn2learn", reason="learn2learn is not installed")
    method = CAFeMe(steps=3, outer_batches=2, inner_lr=0.1, order="exact")
    f, w = LoopObjective(Task(tiny_network(), FEDERATION.x)), tiny_network().init(0).double()
    inner, (outer,) = taken(method)
    _, state = method.client(f, w, adam_init(w), inner, (outer,), round=NOW)
    learner = l2l.algorithms.MAML(tiny_module(w), lr=0.1, first_order=False)
    clone = learner.clone()
    for b in inner:
        clone.adapt(F.cross_entropy(clone(FEDERATION.x[b.rows].double() / 255), b.labels))
    F.cross_entropy(clone(FEDERATION.x[outer.rows].double() / 255), outer.labels).backward()
    close(state.first / 0.1, torch.cat([p.grad.flatten() for p in learner.parameters()]), 1e-9)
