"""Fill a cell: read its runs, let clients choose from a grid, summarize its seeds, compare it to the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.errors import PflbenchError
from pflbench.report.reading import Floats, Rounds, Shelf, average, concerned, scored
from pflbench.report.statistics import recent, summarize, verdict
from pflbench.report.table import CellValue
from pflbench.result import RunResult
from pflbench.suite.cells import Caption, Cell, Choice, Expansion, Reading, Reference

_MIXED = "the column mixes data or method versions (see †)"


class Read(NamedTuple):
    """A finished seed of a cell: one of its runs, the ids of all, and each client's accuracies.

    `on_test`: those if grid points are chosen on the test scores.
    """

    result: RunResult
    runs: tuple[str, ...]
    rounds: Rounds
    on_test: Rounds | None = None

    def average(self, reading: Reading) -> Floats:
        """The mean accuracy in percent for each fine-tuning step that is read."""
        return average(self.rounds, reading, self.result)


def read(cell: Cell, shelf: Shelf) -> list[Read]:
    """The finished seeds of a cell. Where clients choose among runs, each is read from its own choice."""
    if cell.choices:
        return [one for points in cell.choices if (one := _chosen(cell, points, shelf))]
    results = [result for run in cell.runs if (result := shelf.read(run))]
    return [Read(result, (result.spec.id,), scored(result, cell.reading)) for result in results]


def _chosen(cell: Cell, points: Sequence[Choice], shelf: Shelf) -> Read | None:
    """A seed of a grid; None where one of its runs is not done."""
    found = [result for point in points for run in point if (result := shelf.read(run))]
    if len(found) < 2 * len(points):
        return None
    rounds = [scored(result, cell.reading) for result in found]
    tests, held_out = rounds[::2], rounds[1::2]
    return Read(found[0], tuple(one.spec.id for one in found), choose(tests, held_out), choose(tests, tests))


def value(cell: Cell, done: list[Read], shelf: Shelf, table: Expansion, *, mixed: bool) -> CellValue:
    """The cell with the numbers of its finished seeds. `mixed`: cells of its column cannot be compared."""
    first, reading = cell.needed[0], cell.reading
    empty = CellValue(
        method=first.method.name,
        stage=cell.stage,
        rounds=first.rounds,
        done=len(done),
        expected=len(cell.by_seed),
        failed=sum(any(map(shelf.failed, runs)) for runs in cell.by_seed),
        runs={one.result.spec.seed: one.runs for one in done},
        reference=cell.reference,
        mixed=mixed and bool(done),
        rests_on=cell.rests_on,
    )
    if not done:
        return empty
    filled = settle(empty, {one.result.spec.seed: one.average(reading) for one in done}, table)
    if cell.stage == "stored":
        absent = (max(0, concerned(one.result.spec) - len(one.rounds[-1].clients)) for one in done)
        filled = replace(filled, left_out=sum(absent))
    if reading.mean == "examples":
        alike = replace(reading, mean="clients")
        filled = replace(filled, plain=float(np.mean([float(one.average(alike).mean()) for one in done])))
    if not cell.choices:
        return replace(filled, recent=recent([one.result for one in done], reading))
    on_test = [average(one.on_test, reading, one.result) for one in done if one.on_test]
    optimistic = summarize(np.array(on_test), table.spread)
    return replace(filled, on_test=Reference(optimistic.mean, optimistic.spread))


def settle(value: CellValue, seeds: dict[int, Floats], table: Caption) -> CellValue:
    """The value with its mean, its spreads and its verdict; `seeds`: for each seed its numbers, one per step."""
    ours = summarize(np.array(list(seeds.values())), table.spread)
    barred = None
    if value.mixed:
        barred = _MIXED
    elif table.shortfall.runs:
        barred = f"less than the whole protocol: {table.shortfall.runs}"
    return replace(
        value,
        seeds={seed: float(numbers.mean()) for seed, numbers in seeds.items()},
        mean=ours.mean,
        std=ours.std,
        sem=ours.sem,
        spread=ours.spread if table.shows_spread else None,
        verdict=verdict(ours, value.reference, barred) if value.reference else None,
    )


def choose(points: Sequence[Rounds], by: Sequence[Rounds]) -> Rounds:
    """For each client the values of the point at which `by` scores best, as in pFedVEM's row Local; ties: the first.

    Raises `PflbenchError` where not all rounds of all points score the same clients.
    """
    _check_alike((*points, *by))
    best = best_points(by)
    chosen = []
    for alike in zip(*points, strict=True):  # the same round of every point
        values = np.stack([one.values for one in alike])  # [point, step, client]
        chosen.append(alike[0]._replace(values=np.take_along_axis(values, best[None, None], axis=0)[0]))
    return tuple(chosen)


def best_points(by: Sequence[Rounds]) -> npt.NDArray[np.intp]:
    """For each client the number of the point that scores best in its mean over rounds and steps; ties: the first.

    Raises `PflbenchError` as `choose` does.
    """
    _check_alike(by)
    means = np.stack([np.mean([one.values.mean(axis=0) for one in rounds], axis=0) for rounds in by])
    return np.asarray(means.argmax(axis=0))


def _check_alike(points: Sequence[Rounds]) -> None:
    clients = points[0][0].clients
    if any(one.clients != clients for rounds in points for one in rounds):
        raise PflbenchError("The runs of a grid do not score the same clients, so none can choose between them.")
