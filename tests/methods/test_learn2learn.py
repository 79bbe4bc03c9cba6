"""Meta-gradients beside learn2learn's MAML, exact and of first order. Extra `oracle`, or `bash .ci/learn2learn`."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.methods.base import Batch, Batches, Round
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.per_fedavg import PerFedAvg
from pflbench.optim import Adam
from pflbench.testing import tiny_federation, tiny_network, tiny_spec

FEDERATION = tiny_federation(0)
NOW = Round(0)
ModuleOf = Callable[[Tensor], nn.Module]
BESIDE = ("gym", "requests", "tqdm", "qpth")
"""What learn2learn imports for its other parts: it is built without any of it, so empty stand-ins serve."""


class Empty(ModuleType):
    """A module that has every name, each an empty class, and every module below it."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *_, **__: None})


class Finder(MetaPathFinder, Loader):
    """Finds an empty module for what is not installed of `BESIDE`."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in BESIDE else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


@pytest.fixture
def maml(monkeypatch: pytest.MonkeyPatch) -> Any:
    if importlib.util.find_spec("learn2learn") is None:
        pytest.skip("learn2learn is not installed: bash .ci/learn2learn builds it")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])  # last: what is installed is found before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import learn2learn
    return learn2learn.algorithms.MAML


def meta_gradient(learner: Any, inner: Sequence[Batch], outer: Batch) -> Tensor:
    """The gradient of the loss on `outer` after a step on each of `inner`, by the parameters before them."""

    def loss(module: nn.Module, b: Batch) -> Tensor:
        return F.cross_entropy(module(FEDERATION.x[b.rows].double() / 255), b.labels)

    adapted = learner.clone()
    for b in inner:
        adapted.adapt(loss(adapted, b))
    loss(adapted, outer).backward()
    return torch.cat([p.grad.flatten() for p in learner.parameters()])


def fed(method: Any) -> list[Batches]:
    drawn, _ = support_streams(FEDERATION, tiny_spec())[3].draw(method.draws(NOW), 0)
    return [tuple(Batch(torch.from_numpy(r), torch.from_numpy(FEDERATION.labels[r])) for r in rows) for rows in drawn]


@pytest.mark.parametrize("order", ["exact", "first"])
def test_cafemes_is_that_of_maml_with_as_many_inner_steps(maml: Any, order: Any, tiny_module: ModuleOf) -> None:
    method = CAFeMe(steps=3, outer_batches=2, inner_lr=0.1, order=order)
    f, w = LoopObjective(Task(tiny_network(), FEDERATION.x)), tiny_network().init(0).double()
    inner, (outer,) = fed(method)
    _, state = method.client(f, w, Adam(0.0).init(w), inner, (outer,), round=NOW)
    found = meta_gradient(maml(tiny_module(w), lr=0.1, first_order=order == "first"), inner, outer)
    torch.testing.assert_close(state.first / 0.1, found, rtol=1e-9, atol=1e-9)  # Adam's first moment after one step


@pytest.mark.parametrize("order", ["exact", "first"])
def test_per_fedavgs_is_that_of_maml_with_one_inner_step(maml: Any, order: Any, tiny_module: ModuleOf) -> None:
    """Its Hessian's minibatch, the third of each step, is the first one here, as it is in MAML."""
    method = PerFedAvg(steps=3, inner_lr=0.1, outer_lr=0.05, order=order)
    f, w = LoopObjective(Task(tiny_network(), FEDERATION.x)), tiny_network().init(0).double()
    (drawn,) = fed(method)
    batches = tuple(drawn[i - 2] if i % 4 == 2 else b for i, b in enumerate(drawn))
    upload, _ = method.client(f, w, (), batches, round=NOW)
    expected = w
    for s in range(0, 12, 4):
        learner = maml(tiny_module(expected), lr=0.1, first_order=order == "first")
        expected = expected - 0.05 * meta_gradient(learner, batches[s : s + 1], batches[s + 1])
    torch.testing.assert_close(upload, expected, rtol=1e-9, atol=1e-9)
