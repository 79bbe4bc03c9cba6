"""A run during a simulation: its initial model, the draws of each round, and its progress."""

from __future__ import annotations

from collections.abc import Sequence
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
from pflbench.engine.objective import Facts
from pflbench.engine.states import States
from pflbench.errors import Diverged
from pflbench.models.network import Network
from pflbench.result import Metric, Score
from pflbench.rng import stream
from pflbench.spec import RunSpec, Scoring
from pflbench.typing import Params

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
        arrives = random.random(len(cohort)) < spec.arrival
        if arrives.sum() >= min(FEWEST, len(cohort)):
            return cohort[arrives]


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
class Initial(Facts):
    """The `methods.base.Initializer` of one run: initial models of its network, drawn from its seed."""

    network: Network
    seed: int
    device: torch.device
    dtype: torch.dtype

    def __call__(self, k: int = 0) -> Params:
        """See `Initializer`, as below."""
        return self.network.init(self.seed, k).to(self.device, self.dtype)

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers of this name."""
        key = torch.tensor(noise.key(self.seed, "initial"), device=self.device)
        return noise.normal(key, name, shape, self.dtype)


@dataclass
class Tally:
    """Costs of a run's local updates so far.

    `client_gradients`: images that gradients are taken of, in minibatches of the run; other passes count as fractions.
    `floats_down`, `bytes_down`: the server's state. `floats_up`, `bytes_up`: what the server reads of an upload.
    """

    spans: dict[str, tuple[int, float, float, float]] = field(default_factory=dict)
    """Count, sum, least and most of each cost."""

    def add(self, name: str, number: float) -> None:
        """Add the cost of one local update."""
        count, total, least, most = self.spans.get(name, (0, 0.0, number, number))
        self.spans[name] = count + 1, total + number, min(least, number), max(most, number)

    def sizes(self, tensors: Sequence[Tensor], way: str, clients: int) -> None:
        """Add the numbers in these tensors and their bytes for each of so many clients; `way`: "up" or "down"."""
        for _ in range(clients):
            self.add(f"floats_{way}", float(sum(x.numel() for x in tensors)))
            self.add(f"bytes_{way}", float(sum(x.nbytes for x in tensors)))

    def means(self) -> dict[str, float]:
        """Mean costs of a local update by name, with least and most where they differ."""
        means: dict[str, float] = {}
        for name, (count, total, least, most) in self.spans.items():
            means |= {name: total / count} | ({f"{name}_least": least, f"{name}_most": most} if least < most else {})
        return {name: round(number, 4) for name, number in means.items()}


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
    states: States = field(init=False)
    local_models: dict[int, Params] = field(default_factory=dict)
    """Each client's local model, where it is scored."""
    latest: list[int] = field(default_factory=list)
    """Clients of the last round."""
    scores: list[Score] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    failure: Diverged | None = None
    unchecked: list[tuple[int, Tensor]] = field(default_factory=list)
    """Rounds whose server state is not checked yet, each with whether it is finite, a tensor."""
    counted: list[Tensor] = field(default_factory=list)
    """Images of gradients of local updates that the tally lacks."""

    def __post_init__(self) -> None:
        self.states = States(self.fresh, int(self.federation.training.sum()))

    def state(self, client: int) -> Tree:
        """A client's state."""
        return self.states.get(client, self.fresh)

    @cached_property
    def scored(self) -> list[int]:
        """Clients that the run scores."""
        return [int(client) for client in scored_clients(self.spec.scoring, self.federation.training)]

    def check(self) -> None:
        """Read what the last rounds left on the device.

        A server state that is not finite is the run's failure; costs go to the tally.
        """
        if not self.unchecked:
            return
        rounds, sound = zip(*self.unchecked, strict=True)
        finite, images = np.split(
            host.read(torch.stack([*(x.double() for x in sound), *self.counted]), "finite"), [len(sound)]
        )
        for number in images.tolist():
            self.tally.add("client_gradients", number / self.spec.batch)
        if self.failure is None and not finite.all():
            self.failure = Diverged(
                f"diverged in round {rounds[int(finite.argmin())] + 1} of {self.spec.rounds}: the server's parameters "
                "are not finite any more; a smaller learning rate may help"
            )
        self.unchecked.clear()
        self.counted.clear()
