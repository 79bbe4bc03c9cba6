"""How much accuracy varies over the last scored rounds, for cells that show the last round alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pflbench.report.reading import after, average
from pflbench.report.table import Recent
from pflbench.result import RunResult
from pflbench.suite.cells import Reading

WINDOW = 10
"""So many of the last scored rounds are looked at."""


def recent(results: Sequence[RunResult], reading: Reading) -> Recent | None:
    """A cell's done runs, one per seed, over their last scored rounds.

    None at another stage than "global", where the cell is a mean over rounds anyway, or where no run was scored in
    enough of them.
    """
    if reading.stage != "global" or any(result.spec.scoring.last > 1 for result in results):
        return None
    found = {result.spec.seed: walk for result in results if len(walk := _walk(result, reading)) == WINDOW}
    if not found:
        return None
    values = np.array([list(walk.values()) for walk in found.values()])  # [seed, round]
    return Recent(
        rounds=(min(map(min, found.values())), max(map(max, found.values()))),
        seeds=tuple(found),
        mean=float(values.mean()),
        least=float(values.min()),
        most=float(values.max()),
        step=float(np.abs(np.diff(values)).max()),
        last=float(values[:, -1].mean()),
    )


def _walk(result: RunResult, reading: Reading) -> dict[int, float]:
    """The accuracy in percent after each of the last scored rounds."""
    rounds = sorted({score.round for score in result.scores if score.stage == reading.stage})[-WINDOW:]
    if len(rounds) < WINDOW:
        return {}
    few = tuple(score for score in result.scores if score.stage == reading.stage and score.round >= rounds[0])
    part = replace(result, scores=few)
    return {round: float(average((after(part, reading, round),), reading, result).mean()) for round in rounds}
