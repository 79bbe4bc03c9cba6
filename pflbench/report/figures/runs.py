"""What figures read from runs: each client's accuracy and size, accuracy by round, metrics by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pflbench.errors import PflbenchError, unknown
from pflbench.report.choose import choose
from pflbench.report.reading import EVERYBODY, Floats, Scored, average, scored
from pflbench.report.shelf import Shelf
from pflbench.report.table import CellInput, Choice
from pflbench.result import RunResult, Score


class Done(NamedTuple):
    """A seed of a cell that is done: a run of it, and each client's accuracies."""

    run: RunResult
    scored: Scored


def done(cell: CellInput, shelf: Shelf) -> list[Done]:
    """The seeds of a cell that are done. Where clients choose among runs, each is read from its own choice."""
    if cell.choices:
        return [one for points in cell.choices if (one := _chosen(cell, points, shelf))]
    return [Done(run, scored(run, cell.reading)) for run in results(cell, shelf)]


def results(cell: CellInput, shelf: Shelf) -> list[RunResult]:
    """A cell's runs that are done, by seed."""
    return [result for run in cell.runs if (result := shelf.read(run))]


def _chosen(cell: CellInput, points: Sequence[Choice], shelf: Shelf) -> Done | None:
    pairs = [(shelf.read(point.run), shelf.read(point.validation)) for point in points]
    both = [(run, validation) for run, validation in pairs if run and validation]
    if len(both) < len(points):
        return None
    tests, held_out = ([scored(result, cell.reading) for result in side] for side in zip(*both, strict=True))
    return Done(both[0][0], choose(tests, held_out))


def sizes(one: Done) -> Floats:
    """The numbers of support rows of a seed's scored clients. Raises `PflbenchError` if the run does not tell them."""
    support = {m.client: m.value for m in one.run.metrics if m.round == 0 and m.name == "support"}
    if lacking := [client for client in one.scored.clients if client not in support]:
        who = "whose scores are one for all" if lacking == [EVERYBODY] else f"client {lacking[0]}"
        raise PflbenchError(
            f"Run {one.run.spec.id} does not say how many support rows there are ({who}), which the figure shows. "
            "Personal models' runs do; compute an old one again with --redo always."
        )
    return np.array([support[client] for client in one.scored.clients])


def by_round(run: RunResult, cell: CellInput) -> dict[int, float]:
    """A run's mean accuracy in percent, as the cell reads it, after every round it was scored in."""
    rounds: dict[int, list[Score]] = {}
    for score in run.scores:
        if score.stage == cell.reading.stage:
            rounds.setdefault(score.round, []).append(score)
    return {
        round: float(average(scored(replace(run, scores=tuple(then)), cell.reading), cell.reading, run).mean())
        for round, then in sorted(rounds.items())
    }


def metric(run: RunResult, name: str, round: int) -> Floats:
    """A metric of all clients in a round; empty if it is not stored. Raises `UsageError` for one the run never has."""
    known = {m.name for m in run.metrics}
    if known and name not in known:
        raise unknown(f"metric of {run.spec.method.name}", name, known)
    return np.array([m.value for m in run.metrics if m.name == name and m.round == round])
