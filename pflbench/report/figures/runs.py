"""What figures read from runs: each client's accuracy and size, accuracy by round, metrics by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pflbench.errors import PflbenchError, unknown
from pflbench.report.cells import choose, of_grid
from pflbench.report.reading import EVERYBODY, Floats, Scored, Shelf, after, average, by_client, scored
from pflbench.result import RunResult
from pflbench.suite.cells import Cell, Choice


class Done(NamedTuple):
    """A seed of a cell that is done: a run of it, and each client's accuracies, means over the rounds that are read."""

    run: RunResult
    scored: Scored


def done(cell: Cell, shelf: Shelf) -> list[Done]:
    """The seeds of a cell that are done. Where clients choose among runs, each is read from its own choice."""
    if cell.choices:
        return [one for points in cell.choices if (one := _chosen(cell, points, shelf))]
    return [Done(run, by_client(scored(run, cell.reading))) for run in results(cell, shelf)]


def results(cell: Cell, shelf: Shelf) -> list[RunResult]:
    """A cell's runs that are done, by seed."""
    return [result for run in cell.runs if (result := shelf.read(run))]


def _chosen(cell: Cell, points: Sequence[Choice], shelf: Shelf) -> Done | None:
    found = of_grid(cell, points, shelf)
    return None if found is None else Done(found.first, by_client(choose(found.tests, found.held_out)))


def sizes(one: Done) -> Floats:
    """How many support images each scored client of a seed has. Raises `PflbenchError` if the run does not tell."""
    support = {m.client: m.value for m in one.run.metrics if m.round == 0 and m.name == "support"}
    if lacking := [client for client in one.scored.clients if client not in support]:
        who = "whose scores are one for all" if lacking == [EVERYBODY] else f"client {lacking[0]}"
        raise PflbenchError(
            f"Run {one.run.spec.id} does not say how many support images there are ({who}), which the figure shows. "
            "Personal models' runs do; compute an old one again with --redo always."
        )
    return np.array([support[client] for client in one.scored.clients])


def by_round(run: RunResult, cell: Cell) -> dict[int, float]:
    """A run's mean accuracy in percent, as the cell reads it, after every round it was scored in."""
    rounds = sorted({score.round for score in run.scores if score.stage == cell.stage})
    return {round: float(average([after(run, cell.reading, round)], cell.reading, run).mean()) for round in rounds}


def by_step(run: RunResult, cell: Cell) -> Floats:
    """A run's mean accuracy in percent, as the cell reads it, after 0, 1, … fine-tuning steps ["steps + 1"]."""
    assert run.spec.scoring.finetune is not None
    reading = replace(cell.reading, steps=tuple(range(run.spec.scoring.finetune.steps + 1)))
    return average(scored(run, reading), reading, run)


def features(run: RunResult) -> dict[int, dict[int, Floats]]:
    """The mean features of clients' personal models ["features"], by client and then by number of rounds."""
    found: dict[int, dict[int, dict[int, float]]] = {}
    for m in run.metrics:
        name, _, index = m.name.partition("/")
        if name == "feature":
            found.setdefault(m.client, {}).setdefault(m.round, {})[int(index)] = m.value
    return {
        client: {round: np.array([values[i] for i in sorted(values)]) for round, values in sorted(rounds.items())}
        for client, rounds in sorted(found.items())
    }


def metric(run: RunResult, name: str, round: int) -> Floats:
    """A metric of all clients in a round; empty if it is not stored. Raises `UsageError` for one the run never has."""
    known = {m.name for m in run.metrics}
    if known and name not in known:
        raise unknown(f"metric of {run.spec.method.name}", name, known)
    return np.array([m.value for m in run.metrics if m.name == name and m.round == round])
