"""Progress of a simulation after a round, as tensors and plain values, and its restoration in a new simulation.

Minibatches, cohorts and noise are functions of seed, client and round, so all that a round leaves is here: the server's
and the clients' states, the clients' places in their minibatches, scores so far, costs so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.engine.run import Run
from pflbench.errors import Diverged
from pflbench.result import Metric, Score

if TYPE_CHECKING:
    from pflbench.engine.simulate import Simulation

Read = Callable[[str], Tensor]
"""A tensor by the name it has in `tensors`. Raises `KeyError` if there is none."""


def tensors(simulation: Simulation) -> Iterator[tuple[str, Tensor]]:
    """All tensors by name, one client's state in memory at a time."""
    for index, run in enumerate(simulation.runs):
        yield from _leaves(f"{index}/server", run.server)
        for client in run.states:
            yield from _leaves(f"{index}/state/{client}", run.states[client])
        for client, model in run.local_models.items():
            yield f"{index}/left/{client}", model


def values(simulation: Simulation) -> dict[str, Any]:
    """All else, as JSON values. Checks that the servers' states are finite, which waits for a GPU."""
    clients = simulation.clients
    return {
        "rounds": simulation.rounds,
        "seconds": clients.seconds,
        "rows": [clients.real_rows, clients.padded_rows],
        "runs": [_values(run) for run in simulation.runs],
    }


def _values(run: Run) -> dict[str, Any]:
    run.check()
    return {
        "states": list(run.states),
        "left": list(run.local_models),
        "latest": [int(client) for client in run.latest],
        "cursors": run.cursors.tolist(),
        "scores": [list(score) for score in run.scores],
        "metrics": [list(metric) for metric in run.metrics],
        "costs": run.tally.spans,
        "failure": None if run.failure is None else str(run.failure),
    }


def restore(simulation: Simulation, values: Mapping[str, Any], read: Read) -> None:
    """Restore the progress of another simulation of the same runs in one that has not begun.

    Raises:
        KeyError: A tensor is missing.
    """
    simulation.rounds = values["rounds"]
    clients, device = simulation.clients, simulation.clients.data.device
    clients.seconds = values["seconds"]
    clients.real_rows, clients.padded_rows = values["rows"]
    for index, (run, stored) in enumerate(zip(simulation.runs, values["runs"], strict=True)):
        run.server = _tree(f"{index}/server", run.server, read, device)
        for client in stored["states"]:
            run.states[client] = _tree(f"{index}/state/{client}", run.fresh, read, device)
        run.local_models = {client: read(f"{index}/left/{client}").to(device) for client in stored["left"]}
        run.latest, run.cursors = stored["latest"], np.array(stored["cursors"], np.int64)
        run.scores = [Score(*one) for one in stored["scores"]]
        run.metrics = [Metric(*one) for one in stored["metrics"]]
        run.tally.spans = {name: tuple(span) for name, span in stored["costs"].items()}
        run.failure = None if stored["failure"] is None else Diverged(stored["failure"])


def _leaves(name: str, tree: Any) -> Iterator[tuple[str, Tensor]]:
    for number, leaf in enumerate(pytree.tree_leaves(tree)):
        yield f"{name}/{number}", leaf


def _tree(name: str, like: Any, read: Read, device: torch.device) -> Any:
    leaves, structure = pytree.tree_flatten(like)
    return pytree.tree_unflatten([read(f"{name}/{number}").to(device) for number in range(len(leaves))], structure)
