"""Shared set-up: one thread per test process, as the engine's workers have; array annotations are checked at run time.

The import hook must stand before the first import of what it checks, so this file imports nothing of pflbench at its
top. Checking takes several times as long as what is checked, so each test checks the first calls of each function.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

CHECKED = ("pflbench.vector", "pflbench.optim", "pflbench.models", "pflbench.methods", "pflbench.engine")

settings.register_profile("pflbench", deadline=None)  # a busy machine is no bug
settings.load_profile("pflbench")
torch.set_num_threads(1)

FIRST = 3
"""Number of calls of each function that each test checks."""
calls: Counter[CodeType] = Counter()
jaxtyped = jaxtyping.jaxtyped


def sparing(*, typechecker: Any) -> Callable[[Any], Any]:
    """What the import hook decorates with: `jaxtyped`, which is skipped after a function's first calls in a test.

    Functions are told apart by their code: one that is defined anew in each call of another counts as one.
    """

    def decorate(function: Any) -> Any:
        if not isinstance(function, FunctionType):
            return jaxtyped(function, typechecker=typechecker)
        code, checked = function.__code__, None

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal checked
            if calls[code] >= FIRST:
                return function(*args, **kwargs)
            calls[code] += 1
            checked = checked or jaxtyped(function, typechecker=typechecker)
            return checked(*args, **kwargs)

        # Nobody's file, so that no error is laid to it: `pflbench.errors.one_line` looks for the user's line.
        call.__code__ = call.__code__.replace(co_filename=jaxtyping.__file__)
        return call

    return decorate


jaxtyping.jaxtyped = sparing
assert not any(name.startswith(CHECKED) for name in sys.modules), "imported before its annotations could be checked"
jaxtyping.install_import_hook(list(CHECKED), "beartype.beartype")

ModuleOf = Callable[[Tensor], nn.Module]


@pytest.fixture(autouse=True)
def checked_anew() -> None:
    """The first calls are those of each test."""
    calls.clear()


@pytest.fixture(autouse=True)
def nothing_granted() -> None:
    """No user-supplied code may be imported that the test itself does not grant."""
    from pflbench import trust

    trust.revoke_all()


@pytest.fixture(autouse=True)
def nothing_shipped(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference runs that came with pflbench are in no test's tables; `test_shipped` has some of its own."""
    nowhere = tmp_path_factory.getbasetemp() / "nothing-shipped"
    monkeypatch.setattr("pflbench.store.shipped.shipped_folder", lambda: nowhere)


@pytest.fixture(scope="session")
def tiny_module() -> ModuleOf:
    """`pflbench.testing.tiny_network` written independently: vector → torch module, float64."""

    def build(w: Tensor) -> nn.Module:
        module = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4, track_running_stats=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 8),
            nn.BatchNorm1d(8, track_running_stats=False),
            nn.ReLU(),
            nn.Linear(8, 3),
        ).double()
        assert sum(p.numel() for p in module.parameters()) == len(w)
        vector_to_parameters(w.clone(), module.parameters())
        return module

    return build
