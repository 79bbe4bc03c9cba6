"""A run during a simulation: its initial model, the draws of each round, and its progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pflbench import noise
from pflbench.data.federation import Federation
from pflbench.engine import host
from pflbench.engine.batches import Stream
from pflbench.engine.costs import Tally
from pflbench.engine.states import States
from pflbench.errors import Diverged
from pflbench.models.network import Network
from pflbench.result import Metric, Score
from pflbench.rng import stream
from pflbench.spec import RunSpec, Scoring
from pflbench.typing import Params
from pflbench.vector import Kind

Tree = Any
FEWEST = 2
"""Uploads that arrive in a round at least (pFedVEM, authors' code)."""


def sample_cohort(spec: RunSpec, training: np.ndarray, index: int) -> np.ndarray:
    """The cohort of round `index`: `spec.cohort` distinct training clients, uniformly; `training`: bool ["clients"]."""
    return stream(spec.seed, "cohort", index).choice(np.flatnonzero(training), spec.cohort, replace=False)


def coin(spec: RunSpec, index: int) -> float:
    """A number uniform in [0, 1), one for all clients, which `Method.draws` sees."""
    return float(stream(spec.seed, "coin", index).random())


def arrived(spec: RunSpec, cohort: np.ndarray, index: int) -> np.ndarray:
    """The members of the cohort whose uploads reach the server: each with probability `spec.arrival`, at least two.

    A draw with fewer is drawn again, as in pFedVEM's released code.
    """
    if spec.arrival == 1:
        return cohort
    random = stream(spec.seed, "arrival", index)
    while True:
        there = random.random(len(cohort)) < spec.arrival
        if there.sum() >= min(FEWEST, len(cohort)):
            return cohort[there]


def weights(spec: RunSpec, federation: Federation, clients: list[int]) -> Tensor:
    """The clients' weights in the server's mean, float64 ["cohort"], summing to one."""
    sizes = [len(federation.support[c]) if spec.weights == "examples" else 1 for c in clients]
    n = torch.tensor(sizes, dtype=torch.float64)
    return n / n.sum()


def scored_clients(scoring: Scoring, training: np.ndarray) -> np.ndarray:
    """Ids of the clients a run scores; `training` is bool ["clients"]."""
    chosen = {"held-out": ~training, "training": training, "all": np.ones_like(training)}[scoring.clients]
    return np.flatnonzero(chosen)[: scoring.first]


@dataclass(frozen=True)
class Initial:
    """The `methods.base.Initializer` of one run: initial models of its network, drawn from its seed."""

    network: Network
    seed: int
    device: torch.device
    dtype: torch.dtype

    def __call__(self, k: int = 0) -> Params:
        """See `Initializer`, as of all below."""
        return self.network.init(self.seed, k).to(self.device, self.dtype)

    @property
    def classes(self) -> int:
        """Of the network."""
        return self.network.classes

    @property
    def width(self) -> int:
        """Of the network."""
        return self.network.width

    def part(self, name: str) -> slice:
        """A part of the model."""
        return self.network.layout.part(name)

    def last(self, layers: int) -> slice:
        """The last layers of the model."""
        return self.network.layout.last(layers)

    def entries(self, kind: Kind) -> Tensor:
        """The entries of a kind."""
        return self.network.layout.entries(kind).to(self.device)

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers of this name."""
        key = torch.tensor(noise.key(self.seed, "initial"), device=self.device)
        return noise.normal(key, name, shape, self.dtype)


@dataclass
class Run:
    """A run under way: its spec and data, the server's and the clients' states, and what it has scored so far."""

    spec: RunSpec
    federation: Federation
    streams: list[Stream]
    server: Tree
    fresh: Tree
    """The state of a client that has not taken part yet."""
    cursors: np.ndarray
    states: States = field(default_factory=States)
    left: dict[int, Params] = field(default_factory=dict)
    """Each client's local model, where it is scored."""
    latest: list[int] = field(default_factory=list)
    """Clients of the last round."""
    scores: list[Score] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    """The costs of its local updates so far."""
    failure: Diverged | None = None
    unchecked: list[tuple[int, Tensor]] = field(default_factory=list)
    """Rounds whose server state is not checked yet, each with whether it is finite, a tensor."""

    def state(self, client: int) -> Tree:
        """A client's state."""
        return self.states.get(client, self.fresh)

    @cached_property
    def scored(self) -> list[int]:
        """Clients that the run scores."""
        return [int(client) for client in scored_clients(self.spec.scoring, self.federation.training)]

    def check(self) -> None:
        """Check the rounds that are unchecked: a server state that is not finite is the run's failure."""
        if self.unchecked and self.failure is None:
            finite = host.read(torch.stack([sound for _, sound in self.unchecked]), "finite")
            if not finite.all():
                index, _ = self.unchecked[int(finite.argmin())]
                self.failure = Diverged(
                    f"diverged in round {index + 1} of {self.spec.rounds}: the server's parameters are not finite "
                    "any more; a smaller learning rate may help"
                )
        self.unchecked.clear()
