"""Shared set-up: one thread per test process, as the engine's workers have; array annotations are checked at run time.

The import hook must stand before the first import of what it checks, so this file imports nothing of pflbench at its
top.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

CHECKED = ("pflbench.vector", "pflbench.optim", "pflbench.models", "pflbench.methods", "pflbench.engine")

settings.register_profile("pflbench", deadline=None)  # a busy machine is no bug
settings.load_profile("pflbench")
torch.set_num_threads(1)
assert not any(name.startswith(CHECKED) for name in sys.modules), "imported before its annotations could be checked"
install_import_hook(list(CHECKED), "beartype.beartype")

ModuleOf = Callable[[Tensor], nn.Module]


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
