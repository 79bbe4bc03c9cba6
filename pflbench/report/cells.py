"""Fill a cell: read its runs, let clients choose from a grid, summarize its seeds, compare it to the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.errors import PflbenchError
from pflbench.report.reading import Floats, Rounds, Shelf, average, concerned, scored
from pflbench.report.recent import recent
from pflbench.report.statistics import summarize, verdict
from pflbench.report.table import CellValue
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.suite.cells import Caption, Cell, Choice, Expansion, Reference

_MIXED = "the column mixes data or method versions (see †)"


@dataclass(frozen=True)
class Read:
    """A finished seed of a cell: its runs, and the mean accuracy in percent for each fine-tuning step that is read.

    `on_test`: the same if grid points are chosen on the test scores; `plain`: if every client counts the same.
    `left_out`: clients that never took part and so have no score.
    """

    seed: int
    runs: tuple[str, ...]
    values: Floats
    plain: float
    left_out: int
    on_test: Floats | None = None


def read(cell: Cell, shelf: Shelf) -> list[Read]:
    """The finished seeds of a cell."""
    if cell.choices:
        found = [_chosen(cell, points, shelf) for points in cell.choices]
    else:
        found = [_single(cell, run, shelf) for run in cell.runs]
    return [one for one in found if one is not None]


def value(cell: Cell, done: list[Read], shelf: Shelf, table: Expansion, *, mixed: bool) -> CellValue:
    """The cell with the numbers of its finished seeds. `mixed`: cells of its column cannot be compared."""
    first = cell.needed[0]
    empty = CellValue(
        method=first.method.name,
        stage=cell.stage,
        rounds=first.rounds,
        done=len(done),
        expected=len(cell.by_seed),
        failed=sum(any(map(shelf.failed, runs)) for runs in cell.by_seed),
        runs={one.seed: one.runs for one in done},
        reference=cell.reference,
        mixed=mixed and bool(done),
        rests_on=cell.rests_on,
    )
    if not done:
        return empty
    filled = settle(empty, {one.seed: one.values for one in done}, table)
    filled = replace(filled, left_out=sum(one.left_out for one in done))
    if not cell.choices:
        results = [shelf.read(run) for run in cell.runs]
        filled = replace(filled, recent=recent([result for result in results if result], cell.reading))
    if cell.reading.mean == "examples":
        filled = replace(filled, plain=float(np.mean([one.plain for one in done])))
    on_test = [one.on_test for one in done if one.on_test is not None]
    if on_test:
        optimistic = summarize(np.array(on_test), table.spread)
        filled = replace(filled, on_test=Reference(optimistic.mean, optimistic.spread))
    return filled


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


def _single(cell: Cell, run: RunSpec, shelf: Shelf) -> Read | None:
    result = shelf.read(run)
    return None if result is None else _read(cell, (run.id,), scored(result, cell.reading), result)


def _read(cell: Cell, runs: tuple[str, ...], rounds: Rounds, sizes: RunResult) -> Read:
    plain = average(rounds, replace(cell.reading, mean="clients"), sizes)
    left_out = max(0, concerned(sizes.spec) - len(rounds[-1].clients)) if cell.stage == "stored" else 0
    return Read(sizes.spec.seed, runs, average(rounds, cell.reading, sizes), float(plain.mean()), left_out)


def _chosen(cell: Cell, points: tuple[Choice, ...], shelf: Shelf) -> Read | None:
    found = of_grid(cell, points, shelf)
    if found is None:
        return None
    ids = tuple(run.id for point in points for run in point)
    optimistic = average(choose(found.tests, found.tests), cell.reading, found.first)
    return replace(_read(cell, ids, choose(found.tests, found.held_out), found.first), on_test=optimistic)


class OfGrid(NamedTuple):
    """What the runs of a grid scored: for each point on test rows, and on the rows that the choice is made on."""

    first: RunResult
    tests: list[Rounds]
    held_out: list[Rounds]


def of_grid(cell: Cell, points: Sequence[Choice], shelf: Shelf) -> OfGrid | None:
    """The scores of a cell's grid for one seed; None where a run of it is not done."""
    found = [result for point in points for run in point if (result := shelf.read(run))]
    if len(found) < 2 * len(points):
        return None
    rounds = [scored(result, cell.reading) for result in found]
    return OfGrid(found[0], rounds[::2], rounds[1::2])


def choose(points: Sequence[Rounds], by: Sequence[Rounds]) -> Rounds:
    """For each client the values of the point at which `by` scores best; ties: the first.

    It serves rows in which each client chooses its hyperparameters from a grid, like pFedVEM's row Local.

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
