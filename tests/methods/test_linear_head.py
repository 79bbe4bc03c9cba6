"""Losses and gradients of linear heads against `torch.nn.functional` and autograd."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.methods.linear_head import head_gradient, head_losses, head_losses_and_gradient

ROWS, WIDTH, CLASSES = 11, 4, 3
HEAD = CLASSES * WIDTH + CLASSES
SAMPLES = [(), (1,), (5,), (2, 3)]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


Z, LABELS = draw(ROWS, WIDTH, seed=1), torch.arange(ROWS) % CLASSES
MASK = torch.arange(ROWS) % 4 != 1


def logits(h: Tensor, z: Tensor) -> Tensor:
    """One head's, as a linear layer."""
    return F.linear(z, h[:-CLASSES].view(CLASSES, WIDTH), h[-CLASSES:])


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all rows", "masked"])
@pytest.mark.parametrize("samples", SAMPLES)
def test_losses_and_gradients_are_autograds(samples: tuple[int, ...], mask: Tensor | None) -> None:
    h, real = draw(*samples, HEAD), MASK | (mask is None)
    losses, gradients = [], []
    for one in h.view(-1, HEAD):
        leaf = one.clone().requires_grad_()
        losses.append(F.cross_entropy(logits(leaf, Z[real]), LABELS[real]))
        gradients += torch.autograd.grad(losses[-1], leaf)
    expected = torch.stack(losses).detach().view(samples), torch.stack(gradients).view(*samples, HEAD)
    close(head_losses(h, Z, LABELS, mask, CLASSES), expected[0])
    close(head_gradient(h, Z, LABELS, mask, CLASSES), expected[1])
    for ours, theirs in zip(head_losses_and_gradient(h, Z, LABELS, mask, CLASSES), expected, strict=True):
        close(ours, theirs)


def test_autograd_goes_through_the_losses_to_the_features() -> None:
    h, z = draw(5, HEAD), Z.clone().requires_grad_()
    (ours,) = torch.autograd.grad(head_losses(h, z, LABELS, None, CLASSES).mean(), z)
    (theirs,) = torch.autograd.grad(sum(F.cross_entropy(logits(one, z), LABELS) for one in h) / 5, z)
    close(ours, theirs)


def test_a_stack_of_padded_clients_is_each_client_alone() -> None:
    h, z = draw(3, 5, HEAD), draw(3, ROWS, WIDTH, seed=2)
    labels, masks = torch.stack([LABELS.roll(i) for i in range(3)]), torch.stack([MASK.roll(i) for i in range(3)])
    stacked = torch.vmap(lambda *args: head_losses_and_gradient(*args, CLASSES))(h, z, labels, masks)
    close(torch.vmap(lambda *args: head_gradient(*args, CLASSES))(h, z, labels, masks), stacked[1])
    for i, real in enumerate(masks):
        alone = head_losses_and_gradient(h[i], z[i][real], labels[i][real], None, CLASSES)
        for ours, theirs in zip(stacked, alone, strict=True):
            close(ours[i], theirs)


def test_logits_too_large_to_exponentiate_have_a_finite_loss_and_gradient() -> None:
    losses, g = head_losses_and_gradient(1e4 * draw(5, HEAD), Z, LABELS, None, CLASSES)
    assert torch.isfinite(losses).all() and torch.isfinite(g).all() and losses.min() > 100


def test_a_client_without_real_rows_has_loss_and_gradient_0() -> None:
    losses, g = head_losses_and_gradient(draw(5, HEAD), Z, LABELS, torch.zeros(ROWS, dtype=torch.bool), CLASSES)
    assert not losses.any() and not g.any()
