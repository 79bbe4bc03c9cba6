"""A federation of three training clients, and slow steps by autograd, that PFLlib's methods are held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import Initial
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Batch, Method
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import tiny_features, tiny_federation, tiny_spec

FEDERATION = replace(tiny_federation(0, sizes=(25, 30, 47, 9, 12)), training=np.array([True, True, True, False, False]))
TRAINING = [0, 1, 2]
NETWORK = tiny_features()
C, D = NETWORK.classes, NETWORK.width
BASE, HEAD = NETWORK.layout.part("base"), NETWORK.layout.part("head")
START = Initial(NETWORK, 0, torch.device("cpu"), torch.float64)()
RATE = 0.05
OPTIONS: dict[str, Any] = {"epochs": 2, "lr": RATE}
EXECUTIONS = pytest.mark.parametrize("execution", ["loop", "vectorized"])
Rows = np.ndarray


def spec(stage: Any = "personalized", **changes: Any) -> RunSpec:
    made = tiny_spec(clients=5, cohort=3, rounds=2, scoring=Scoring(clients="training", stages=(stage,)))
    return made.model_copy(update={"weights": "examples", **changes})


def trained(
    method: Method,
    execution: Any = "loop",
    stage: Any = "personalized",
    rounds: int = 2,
    **changes: Any,
) -> Any:
    """The run after these rounds; `changes`: of its spec."""
    asked = spec(stage, rounds=rounds, **changes)
    setup = Setup(execution=execution, most_padding=math.inf)
    simulation = Simulation([asked], [FEDERATION], method, NETWORK, setup)
    simulation.run()
    return simulation.runs[0]


def passes(client: int) -> list[Rows]:
    return support_streams(FEDERATION, spec())[client].batches * OPTIONS["epochs"]  # type: ignore[union-attr]


def data(rows: Rows) -> tuple[Tensor, Tensor]:
    return FEDERATION.x[rows].double() / 255, torch.from_numpy(FEDERATION.labels[rows])


def logits(w: Tensor, x: Tensor) -> Tensor:
    return NETWORK.logits([w], x)


def features(w: Tensor, x: Tensor) -> Tensor:
    return NETWORK.represent([w], x)


def parts(head: Tensor) -> tuple[Tensor, Tensor]:
    return head[:-C].view(C, D), head[-C:]


def down(loss: Callable[..., Tensor], *at: Tensor) -> list[Tensor]:
    """A step of gradient descent on each argument."""
    leaves = [one.clone().requires_grad_() for one in at]
    found = torch.autograd.grad(loss(*leaves), leaves, allow_unused=True)
    return [one - RATE * g if g is not None else one for one, g in zip(at, found, strict=True)]


def weighted(models: list[Tensor], clients: Sequence[int] = TRAINING) -> Tensor:
    """The mean of these clients' models by their numbers of training rows."""
    sizes = torch.tensor([len(FEDERATION.support[client]) for client in clients], dtype=torch.float64)
    return torch.einsum("c,c...->...", sizes / sizes.sum(), torch.stack(models))


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def client_of(labels: list[int]) -> tuple[LoopObjective, tuple[Batch, ...], tuple[Batch, ...]]:
    """An objective on some images, all of them at once, and minibatches of three."""
    rows, y = torch.arange(len(labels)), torch.tensor(labels)
    cut = tuple(Batch(rows[i : i + 3], y[i : i + 3]) for i in range(0, len(labels), 3))
    return LoopObjective(Task(NETWORK, FEDERATION.x)), (Batch(rows, y),), cut
