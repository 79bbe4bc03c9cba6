"""A method's own loss, features, normalization, and large batches in pieces: against autograd, looped and stacked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.data.source import Normalization
from pflbench.engine import objective
from pflbench.engine.client_map import ClientMap, Data, Item
from pflbench.engine.objective import LoopObjective, Task
from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Objective
from pflbench.testing import tiny_features, tiny_federation, tiny_network

EXECUTIONS = ("loop", "vectorized")
FEDERATION = tiny_federation(0)
NET = tiny_features()
ROWS = [np.arange(7), np.arange(7, 10), np.arange(10, 22)]


def weighted(outputs: Tensor, labels: Tensor, mask: Tensor | None, weight: Tensor) -> Tensor:
    """A loss with an argument per client, over real rows."""
    each = F.cross_entropy(outputs, labels, reduction="none") + (outputs * weight).square().sum(-1)
    return each.mean() if mask is None else torch.where(mask, each, 0).sum() / mask.sum()


def squared(z: Tensor, labels: Tensor, mask: Tensor | None, weight: Tensor) -> Tensor:
    each = (z * weight).square().sum(-1) * (1 + labels)
    return each.mean() if mask is None else torch.where(mask, each, 0).sum() / mask.sum()


def mapped(fn: Any, execution: Any, task: Task | None = None) -> list[Any]:
    """`fn(f, w, own, b)` for three unequal clients, each with a weight of its own."""
    data = Data(task or Task(NET, FEDERATION.x), FEDERATION.labels, (0,))
    owns = [torch.tensor(0.5 + i, dtype=torch.float64) for i in range(len(ROWS))]
    items = [Item(0, own, ([rows],)) for own, rows in zip(owns, ROWS, strict=True)]
    w = NET.init(0).double()
    return ClientMap(data, execution, most_padding=100.0)(lambda f, s, o, t: fn(f, s, o, t[0]), [w], items)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(
    ("at", "loss", "wrt"),
    [
        ("logits", weighted, None),
        ("logits", weighted, "base"),
        ("logits", weighted, "head"),
        ("features", squared, "base"),
    ],
)
def test_the_gradient_of_an_own_loss_is_autograds(execution: Any, at: Any, loss: Any, wrt: Any) -> None:
    def ours(f: Objective, w: Tensor, own: Tensor, b: Batch) -> Tensor:
        return f.grad(w, b, wrt=wrt, loss=loss, at=at, args=(own,))

    for i, (found, rows) in enumerate(zip(mapped(ours, execution), ROWS, strict=True)):
        w = NET.init(0).double().requires_grad_()
        x, y = FEDERATION.x[rows].double() / 255, torch.from_numpy(FEDERATION.labels[rows])
        outputs = NET.logits([w], x) if at == "logits" else NET.represent([w], x)
        value = loss(outputs, y, None, torch.tensor(0.5 + i, dtype=torch.float64))
        (expected,) = torch.autograd.grad(value, w)
        expected = expected[NET.layout.part(wrt)] if wrt else expected
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_features_and_the_head_make_the_logits(execution: Any) -> None:
    def both(f: Objective, w: Tensor, own: Tensor, b: Batch) -> tuple[Tensor, Tensor]:
        return f.features(w, b), f.logits(w, b)

    w = NET.init(0).double()
    views = NET.layout.views([w])
    for (z, logits), rows in zip(mapped(both, execution), ROWS, strict=True):
        real = slice(len(rows))
        torch.testing.assert_close(F.linear(z, views["head.out.weight"], views["head.out.bias"])[real], logits[real])


def test_a_network_without_features_says_so() -> None:
    f = LoopObjective(Task(tiny_network(), FEDERATION.x))
    with pytest.raises(UsageError, match="more than one linear layer"):
        f.features(tiny_network().init(0), Batch(torch.arange(3), torch.zeros(3, dtype=torch.int64)))


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_images_are_normalized_per_channel(execution: Any) -> None:
    task = Task(NET, FEDERATION.x, normalization=Normalization((0.3,), (0.2,)))
    found = mapped(lambda f, w, own, b: f.logits(w, b), execution, task)
    for logits, rows in zip(found, ROWS, strict=True):
        expected = NET.logits([NET.init(0).double()], (FEDERATION.x[rows].double() / 255 - 0.3) / 0.2)
        torch.testing.assert_close(logits[: len(rows)], expected, rtol=1e-10, atol=1e-12)


def test_a_large_batch_in_pieces_is_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Batch(torch.arange(22), torch.from_numpy(FEDERATION.labels[:22]))
    f, w = LoopObjective(Task(NET, FEDERATION.x)), NET.init(0).double()

    def everything() -> list[Tensor]:
        return [f(w, b), f.grad(w, b), f.grad(w, b, wrt="head"), f.features(w, b)]

    whole = everything()
    monkeypatch.setattr(objective, "PIECE", 5)
    seen: list[int] = []
    images = Task.images
    monkeypatch.setattr(Task, "images", lambda self, b, dtype: seen.append(len(b.rows)) or images(self, b, dtype))
    for one, other in zip(everything(), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
    assert max(seen) == 5


def test_batch_normalization_sees_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    net = tiny_network()
    b = Batch(torch.arange(22), torch.from_numpy(FEDERATION.labels[:22]))
    f, w = LoopObjective(Task(net, FEDERATION.x)), net.init(0).double()
    whole = f.grad(w, b)
    monkeypatch.setattr(objective, "PIECE", 5)
    assert torch.equal(f.grad(w, b), whole)
