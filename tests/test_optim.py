from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pflbench.optim import Adam, sgd
from pflbench.testing import assert_same, nudged


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.8)])
def test_adam_is_torchs(dtype: torch.dtype, betas: tuple[float, float]) -> None:
    g = torch.Generator().manual_seed(0)
    start = torch.randn(50, generator=g, dtype=dtype)
    # Gradients of very different sizes, some exactly 0, so that eps and the bias corrections matter.
    gradients = [torch.randn(50, generator=g, dtype=dtype) * torch.logspace(-9, 2, 50, dtype=dtype) for _ in range(20)]
    for step, gradient in enumerate(gradients):
        gradient[step::7] = 0

    def torchs(start: Tensor, gradients: list[Tensor]) -> list[Tensor]:
        leaf, found = start.clone().requires_grad_(), []
        optimizer = torch.optim.Adam([leaf], lr=0.03, betas=betas)
        for gradient in gradients:
            leaf.grad = gradient.clone()
            optimizer.step()
            found.append(leaf.detach().clone())
        return found

    by = Adam(0.03, betas)
    w, state, ours = start, by.init(start), []
    for gradient in gradients:
        w, state = by.update(w, gradient, state)
        ours.append(w)
    assert_same(ours, torchs(start, gradients), torchs(*nudged((start, gradients))))
    assert state.updates == 20
    assert state.updates.dtype == torch.float64 and state.first.dtype == state.second.dtype == dtype


def test_adam_keeps_its_arguments() -> None:
    w, g = torch.ones(3), torch.full((3,), 2.0)
    state = Adam(0.1).init(w)
    Adam(0.1).update(w, g, state)
    assert w.tolist() == [1] * 3 and g.tolist() == [2] * 3
    assert state.first.tolist() == state.second.tolist() == [0] * 3 and state.updates == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("lr", [0.0, 1e-3, 0.05, 1.0, 3.0])
def test_sgd_is_w_minus_lr_times_g(dtype: torch.dtype, lr: float) -> None:
    """To rounding: it may multiply and subtract at once, without rounding the product."""
    g = torch.Generator().manual_seed(0)
    scales = torch.logspace(-6, 6, 500, dtype=dtype)
    w = torch.randn(500, generator=g, dtype=dtype) * scales
    gradient = torch.randn(500, generator=g, dtype=dtype) * scales[torch.randperm(500, generator=g)]
    before = w.clone(), gradient.clone()
    found, product = sgd(w, gradient, lr=lr), lr * gradient
    rounding = torch.finfo(dtype).eps * (product.abs() / 2 + found.abs())
    assert found.dtype == dtype and ((found - (w - product)).abs() <= rounding).all()
    assert torch.equal(w, before[0]) and torch.equal(gradient, before[1])
    one, stacked = sgd(w, gradient, lr=lr), torch.vmap(lambda w, g: sgd(w, g, lr=lr))(w[None], gradient[None])
    assert torch.equal(one, stacked[0])


def test_sgd_is_torchs() -> None:
    w = torch.linspace(-2, 2, 50, dtype=torch.float64)
    leaf = w.clone().requires_grad_()
    optimizer = torch.optim.SGD([leaf], lr=0.1)
    for _ in range(10):
        leaf.grad = leaf.detach().cos()
        optimizer.step()
        w = sgd(w, w.cos(), lr=0.1)
    torch.testing.assert_close(w, leaf.detach(), rtol=1e-14, atol=1e-14)
