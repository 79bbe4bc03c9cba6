"""What FedEC's baselines are held against: rounds written out one client at a time, with torch's modules and optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils import _pytree as pytree

from pflbench.engine.batches import support_streams
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Batch, Batches, Method, Round
from pflbench.models.mlp import perceptron
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import tiny_federation, tiny_spec

NETWORK = perceptron((1, 8, 8), 3, hidden=(12, 8))
START = NETWORK.init(0).double()
LAST = {layers: NETWORK.layout.last(layers).start for layers in (1, 2, 3)}
FEDERATION = tiny_federation(0)
TRAINING = np.flatnonzero(FEDERATION.training).tolist()
LR, BETA, DECAY, ROUNDS = 0.05, 0.5, 0.1, 2
OPTIONS = {"lr": LR, "momentum": BETA, "weight_decay": DECAY, "batch": 4}
LOCAL = Round(0, coin=1.0)
"""In which the clients of L2GD train."""
SPEC = tiny_spec(cohort=2, rounds=ROUNDS).model_copy(
    update={
        "batches": "reshuffled",
        "weights": "examples",
        "scoring": Scoring(clients="training", stages=("personalized",), average="examples"),
    }
)
"""After two rounds of two of six clients some never took part; personal models are scored after aggregation."""
GLOBAL = SPEC.model_copy(update={"scoring": SPEC.scoring.model_copy(update={"stages": ("global",)})})
"""For methods without personal models: every client is scored with the server's."""
Models = dict[int, Tensor]


def module(w: Tensor) -> nn.Sequential:
    """`NETWORK` as torch writes it."""
    layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    layers.double()
    vector_to_parameters(w.clone(), layers.parameters())
    return layers


def flat(m: nn.Module) -> Tensor:
    return parameters_to_vector(m.parameters()).detach()


def batch(rows: np.ndarray) -> Batch:
    return Batch(torch.from_numpy(rows), torch.from_numpy(FEDERATION.labels[rows]))


def loss(m: nn.Module, b: Batch) -> Tensor:
    return F.cross_entropy(m(FEDERATION.x[b.rows].double() / 255), b.labels)


def gradient(w: Tensor, b: Batch) -> Tensor:
    m = module(w)
    loss(m, b).backward()
    return parameters_to_vector(p.grad for p in m.parameters())


@dataclass
class Optimizer:
    """torch's SGD, with weight decay of weights only, on some of the parameters of a vector."""

    lr: float = LR
    beta: float | None = BETA
    decay: float = DECAY
    chosen: slice = field(default_factory=lambda: slice(None))
    """Of the list of weights and biases."""

    def begin(self, w: Tensor) -> nn.Sequential:
        m = module(w)
        parameters = list(m.parameters())[self.chosen]
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": self.decay},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
        ]
        self.torch = torch.optim.SGD(groups, lr=self.lr, momentum=self.beta or 0.0)
        return m

    def descend(self, w: Tensor, batches: Batches, change: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """One step for each minibatch; `change` is done to the whole gradient before weight decay."""
        m = self.begin(w)
        for b in batches:
            m.zero_grad()
            loss(m, b).backward()
            if change is not None:
                g = change(parameters_to_vector(p.grad for p in m.parameters()))
                for p, piece in zip(m.parameters(), g.split([p.numel() for p in m.parameters()]), strict=True):
                    p.grad = piece.view_as(p).clone()
            self.torch.step()
        return flat(m)


def draw(client: int, draws: Any, *moment: Any) -> list[Batches]:
    drawn, _ = support_streams(FEDERATION, SPEC)[client].draw(draws, 0, *moment)
    return [
        tuple(batch(rows[0] if one.indexed else rows) for rows in batches)
        for one, batches in zip(draws, drawn, strict=True)
    ]


def cohort(index: int) -> dict[int, float]:
    """Who takes part in a round, and its share of the examples."""
    clients = sample_cohort(SPEC, FEDERATION.training, index).tolist()
    sizes = {c: len(FEDERATION.support[c]) for c in clients}
    return {c: size / sum(sizes.values()) for c, size in sizes.items()}


def strangers() -> set[int]:
    """Who never took part; the tests need some."""
    found = set(TRAINING) - {c for index in range(ROUNDS) for c in cohort(index)}
    assert found
    return found


def close(a: Tensor, b: Tensor, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def query_loss(w: Tensor, client: int) -> float:
    b = batch(FEDERATION.query[client])
    return loss(module(w), b).item() * len(b.rows)


def same(method: Method, server: Any, models: Mapping[int, Tensor], spec: RunSpec = SPEC) -> Simulation:
    """The engine comes to this server state and to these models of clients, one by one and stacked."""
    for execution in ("loop", "vectorized"):
        simulation = Simulation(
            [spec], [FEDERATION], method, NETWORK, Setup(execution=execution, most_padding=math.inf)
        )
        (outcome,) = simulation.run()
        assert outcome.failure is None
        for mine, theirs in zip(pytree.tree_leaves(outcome.server), pytree.tree_leaves(server), strict=True):
            close(mine, theirs)
        losses = {s.client: s.loss_sum for s in outcome.scores if s.stage == spec.scoring.stages[0]}
        assert losses == pytest.approx({c: query_loss(w, c) for c, w in models.items()}, rel=1e-9)
    return simulation
