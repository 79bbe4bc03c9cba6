"""Trainings that go before a run's own (`RunSpec.after`): each from the model that the one before it left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from pflbench.data.federation import Federation
from pflbench.engine.run import Initial
from pflbench.engine.simulate import Setup, Simulation
from pflbench.errors import Diverged, UsageError
from pflbench.methods.base import Method
from pflbench.models.network import Network
from pflbench.spec import RunSpec
from pflbench.typing import Params

AnyMethod = Method[Any, Any, Any]


@dataclass(frozen=True)
class ChainTraining:
    """One training before a run's own, for runs that differ by seed only: a spec and a federation for each."""

    specs: Sequence[RunSpec]
    federations: Sequence[Federation]
    method: AnyMethod


@dataclass
class Walked:
    """Results of the trainings.

    Attributes:
        left: For each run of the group the model that its own training starts from, None where nothing goes before it,
            or how one of them failed.
        told: For each run a record of each training: its method, its rounds, the mean costs of a local update (see
            `costs.Tally`), and the seconds that its clients took.
        rounds: How many rounds were trained in all.
        highest: The most bytes that were in use.
    """

    left: list[Params | Diverged | None]
    told: list[list[dict[str, Any]]]
    rounds: int = 0
    highest: int = 0


@runtime_checkable
class ChainCheckpoints(Protocol):
    """State of trainings under way, to resume them from."""

    def walked(self, runs: int) -> Walked:
        """Progress of a group of runs, with the trainings that are over."""

    def restore(self, simulation: Simulation) -> None:
        """Set the first simulation that asks to where it stood."""

    def keep(self, walked: Walked, simulation: Simulation) -> None:
        """Called after each round; what it raises ends the training."""


def train_chain(
    trainings: Sequence[ChainTraining],
    runs: int,
    network: Network,
    setup: Setup,
    checkpoints: ChainCheckpoints | None = None,
) -> Walked:
    """Run the trainings one after the other, for a group of `runs`. Clients keep nothing from one to the next.

    Raises:
        UsageError: A training leaves no single model of this network, the suite's plain one.
    """
    walked = checkpoints.walked(runs) if checkpoints else Walked([None] * runs, [[] for _ in range(runs)])
    for training in trainings[len(walked.told[0]) :]:
        first, before = training.specs[0], walked.left
        heard = _counted(setup.on_round, walked.rounds) if setup.on_round else None
        own = replace(setup, on_round=heard, after_round=partial(checkpoints.keep, walked) if checkpoints else None)
        simulation = Simulation(training.specs, training.federations, training.method, network, own, before)
        if checkpoints:
            checkpoints.restore(simulation)
        simulation.train()
        walked.left = []
        for index, run in enumerate(simulation.runs):
            run.check()
            walked.left.append(_left(run.server, run.failure, before[index], network, first.method.name))
            seconds = round(simulation.clients.seconds / runs, 3)
            told = {"method": first.method.name, "rounds": first.rounds, "client_seconds": seconds}
            walked.told[index].append(told | run.tally.means())
        walked.rounds += simulation.rounds
        walked.highest = max(walked.highest, simulation.clients.room.highest)
    return walked


def _counted(on_round: Callable[[int], None], before: int) -> Callable[[int], None]:
    return lambda rounds: on_round(before + rounds)


def _left(
    server: Any, failure: Diverged | None, before: Params | Diverged | None, network: Network, name: str
) -> Params | Diverged:
    if isinstance(before, Diverged):
        return before
    if failure is not None:
        return Diverged(f"{name}, which is trained before it, {failure}")
    return _single(server, network, name)


def _single(server: Any, network: Network, name: str) -> Params:
    """The server's state where it is a model. Raises `UsageError` where it is something else."""
    if not isinstance(server, Tensor) or server.shape != (network.layout.size,):
        raise UsageError(f"Nothing can be trained after {name}: what its server holds is no single model.")
    return server


def check_chain(spec: RunSpec, trainings: Sequence[AnyMethod], own: AnyMethod, network: Network) -> None:
    """Raise `UsageError` unless the trainings before a run's own hand on one model of its network, the plain one.

    `trainings`: the methods of `spec.after`; `own`: the run's.
    """
    names = [*(link.method.name for link in spec.after), spec.method.name]
    for name, method in zip(names, [*trainings, own], strict=True):
        if spec.after and method.network(network).layout != network.layout:
            raise UsageError(f"{name} trains another network than {names[0]}, so the two cannot stand in one chain.")
    for name, method in zip(names, trainings, strict=False):
        new = Initial(network, spec.seed, torch.device("cpu"), torch.float32)
        _single(method.init(new, spec.training_clients), network, name)
