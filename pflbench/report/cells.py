"""Fill a cell: read its runs, let clients choose from a grid, summarize its seeds, hold it against the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.errors import PflbenchError
from pflbench.report.reading import (
    EVERYBODY,
    WINDOW,
    Floats,
    Rounds,
    Shelf,
    average,
    by_client,
    by_round,
    concerned,
    scored,
    smallest,
)
from pflbench.report.table import CellValue, Gap, Peak
from pflbench.report.text import ranges
from pflbench.report.verdict import COMPARED, verdict
from pflbench.result import RunResult
from pflbench.suite.cells import Cell, Choice, Expansion, Reading, Reference
from pflbench.suite.schema import Spread

_MIXED = "the column mixes data or method versions (see †)"
_CHOSEN = "ours is each run's best round, chosen on the data that it is scored on"
_THEIRS_CHOSEN = "the paper's is each run's best round, which ours is not"


@dataclass(frozen=True)
class SeedScores:
    """A finished seed of a cell: one of its runs, the ids of all, and each client's accuracies.

    `on_test`: those if grid points are chosen on the test scores.
    """

    result: RunResult
    runs: tuple[str, ...]
    rounds: Rounds
    on_test: Rounds | None = None

    def average(self, reading: Reading) -> Floats:
        """The mean accuracy in percent for each fine-tuning step that is read."""
        if reading not in self.averages:
            self.averages[reading] = average(self.rounds, reading, self.result)
        return self.averages[reading]

    @cached_property
    def averages(self) -> dict[Reading, Floats]:
        """Averages by reading, each computed once."""
        return {}

    @cached_property
    def each(self) -> tuple[tuple[int, ...], Floats]:
        """Its clients, and the accuracy of each in percent: the mean over the rounds and steps that are read."""
        found = by_client(self.rounds)
        return found.clients, 100 * found.values.mean(axis=0)

    @property
    def moments(self) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """Scores that are read: rounds, and in each of them steps and clients."""
        return [(one.round, one.steps, one.clients) for one in self.rounds]


def of_seed(one: SeedScores, reading: Reading) -> Floats:
    """The accuracy of each client that counts in percent, the mean over the rounds and steps that are read.

    Empty where clients were not scored one by one.
    """
    clients, values = one.each
    if clients == (EVERYBODY,):
        return np.zeros(0)
    few = smallest(clients, reading, one.result)
    return np.asarray(values if few is None else values[few])


def read_seeds(cell: Cell, shelf: Shelf) -> list[SeedScores]:
    """The finished seeds of a cell. Where clients choose among runs, each is read from its own choice."""
    key = tuple(run.id for run in cell.needed), cell.reading
    found: list[SeedScores] | None = shelf.seeds.get(key)
    if found is None:
        found = shelf.seeds[key] = _read_seeds(cell, shelf)
    return found


def _read_seeds(cell: Cell, shelf: Shelf) -> list[SeedScores]:
    if cell.choices:
        return [one for points in cell.choices if (one := _chosen(cell, points, shelf))]
    results = [result for run in cell.runs if (result := shelf.read(run))]
    return [SeedScores(result, (result.spec.id,), scored(result, cell.reading)) for result in results]


def _chosen(cell: Cell, points: Sequence[Choice], shelf: Shelf) -> SeedScores | None:
    """A seed of a grid; None where one of its runs is not done."""
    found = [result for point in points for run in point if (result := shelf.read(run))]
    if len(found) < 2 * len(points):
        return None
    rounds = [scored(result, cell.reading) for result in found]
    tests, held_out = rounds[::2], rounds[1::2]
    return SeedScores(
        found[0], tuple(one.spec.id for one in found), choose_points(tests, held_out), choose_points(tests, tests)
    )


def fill_cell(cell: Cell, done: list[SeedScores], shelf: Shelf, table: Expansion, *, mixed: bool) -> CellValue:
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
    numbers = {one.result.spec.seed: one.average(reading) for one in done}
    filled = settle(empty, numbers, table, barred=other_rounds(reading, table))
    if cell.stage == "stored":
        absent = (max(0, concerned(one.result.spec) - len(one.rounds[-1].clients)) for one in done)
        filled = replace(filled, left_out=sum(absent))
    if reading.mean == "examples":
        alike = replace(reading, mean="clients")
        filled = replace(filled, plain=float(np.mean([float(one.average(alike).mean()) for one in done])))
    if not cell.choices:
        return _over_rounds(filled, [one.result for one in done], reading, table)
    on_test = [average(one.on_test, reading, one.result) for one in done if one.on_test]
    optimistic = summarize(np.array(on_test), table.spread)
    return replace(filled, on_test=Reference(optimistic.mean, optimistic.spread))


def other_rounds(reading: Reading, table: Expansion) -> str | None:
    """Reason why the rounds that are read are not those of the paper's numbers; None: they are."""
    if (reading.read_as == "best") == (table.paper_round == "best"):
        return None
    return _CHOSEN if reading.read_as == "best" else _THEIRS_CHOSEN


def _over_rounds(value: CellValue, results: Sequence[RunResult], reading: Reading, table: Expansion) -> CellValue:
    """The value with what its other scored rounds say."""
    if reading.read_as != "last":
        return replace(value, gap=other_readings(results, reading))
    if table.paper_round == "best":
        return _with_peak(value, results, reading, table)
    verdict_, theirs = value.verdict, value.reference
    if verdict_ is None or theirs is None or verdict_.label not in COMPARED[1:]:
        return value
    other = other_readings(results, reading)
    if other is None or len(other.best) < len(results):
        return value
    best = list(other.best.values())
    there = verdict(best, theirs, table.spread, table.layout.decimals)
    if COMPARED.index(there.label) >= COMPARED.index(verdict_.label):
        return value
    mean = float(np.mean(best))
    said = f"at our best round (optimistic; rounds {ranges(other.at.values())}) it is {mean:.1f}: {there.label}"
    return replace(value, verdict=replace(verdict_, at_best=said))


def _with_peak(value: CellValue, results: Sequence[RunResult], reading: Reading, table: Expansion) -> CellValue:
    """The value with its best round, which is compared with the paper's."""
    other = other_readings(results, reading)
    numbers = {**value.seeds, **(other.best if other else {})}
    best = settle(value, {seed: np.array([numbers[seed]]) for seed in value.seeds}, table)
    lead, at, scored = None, None, (1, 1)
    if other:
        at, (few, most) = float(np.median([*other.at.values()])), other.scored
        scored = (1 if other.alone else few, most)
        above = {seed: np.array([other.best[seed] - other.last[seed]]) for seed in other.best}
        lead = settle(replace(value, reference=None), above, table)
    return replace(value, peak=Peak(best, lead, scored, at), gap=other, verdict=best.verdict)


def settle(
    value: CellValue,
    seeds: dict[int, Floats],
    table: Expansion,
    *,
    barred: str | None = None,
    within: float | None = None,
) -> CellValue:
    """The value with its mean, its spreads and its verdict.

    Args:
        value: Its place.
        seeds: For each seed its numbers, one per step.
        table: Whose cell it is.
        barred: Reason why its rounds do not compare with the paper's.
        within: The margin of its verdict in points; default: that of an accuracy.
    """
    ours = summarize(np.array(list(seeds.values())), table.spread)
    if value.mixed:
        barred = _MIXED
    elif table.shortfall.runs:
        barred = f"{table.shortfall.kind}: {table.shortfall.runs}"
    elif barred is None and value.reference and value.reference.inferred:
        barred = f"setting inferred from this reference: {value.reference.inferred}"
    means = {seed: float(numbers.mean()) for seed, numbers in seeds.items()}
    theirs = value.reference
    return replace(
        value,
        seeds=means,
        mean=ours.mean,
        std=ours.std,
        sem=ours.sem,
        spread=ours.spread if table.shows_spread else None,
        verdict=verdict([*means.values()], theirs, table.spread, table.layout.decimals, barred, within=within)
        if theirs
        else None,
    )


def choose_points(points: Sequence[Rounds], by: Sequence[Rounds]) -> Rounds:
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

    Raises `PflbenchError` as `choose_points` does.
    """
    _check_alike(by)
    means = np.stack([np.mean([one.values.mean(axis=0) for one in rounds], axis=0) for rounds in by])
    return np.asarray(means.argmax(axis=0))


def _check_alike(points: Sequence[Rounds]) -> None:
    clients = points[0][0].clients
    if any(one.clients != clients for rounds in points for one in rounds):
        raise PflbenchError("The runs of a grid do not score the same clients, so none can choose between them.")


class Summary(NamedTuple):
    """A cell's numbers in percent. The spreads are None where the seeds are too few to have one."""

    mean: float
    std: float | None
    sem: float | None
    spread: float | None
    n: int


def summarize(values: Floats, spread: Spread) -> Summary:
    """Summarize `values[seed, step]`. The SEM is always that of the sample standard deviation (ddof = 1)."""
    n = len(values)
    per_seed = values if spread.of == "each-step" else values.mean(axis=1, keepdims=True)
    std = _std(per_seed, spread.ddof)
    sample = _std(per_seed, 1)
    sem = None if sample is None else sample / math.sqrt(n)
    return Summary(float(values.mean()), std, sem, std if spread.kind == "std" else sem, n)


def spread_word(spread: Spread) -> str:
    """Name of the number behind the ±."""
    return "standard error of the mean" if spread.kind == "sem" else "standard deviation"


def _std(values: Floats, ddof: int) -> float | None:
    # One seed has no spread; numpy would say 0 for ddof = 0, which reads as certainty.
    if len(values) < 2 or len(values) <= ddof:
        return None
    return float(values.std(axis=0, ddof=ddof).mean())


def other_readings(results: Sequence[RunResult], reading: Reading) -> Gap | None:
    """Last round, mean of the last ten and best round of a cell's finished runs, by seed.

    None where no run was scored in several rounds. The best round is chosen by what it is scored on, so it is
    optimistic, and shown only where it is asked for. Some papers' numbers look like it.
    """
    every = {result.spec.seed: by_round(result, reading) for result in results}
    walks = {seed: walk for seed, walk in every.items() if len(walk) > 1}
    if not walks:
        return None
    at = {seed: max(walk, key=lambda round, walk=walk: walk[round]) for seed, walk in walks.items()}  # type: ignore[misc]
    lasts = {seed: list(walk.values())[-WINDOW:] for seed, walk in walks.items()}
    return Gap(
        last={seed: values[-1] for seed, values in lasts.items()},
        recent={seed: float(np.mean(values)) for seed, values in lasts.items()},
        best={seed: walk[at[seed]] for seed, walk in walks.items()},
        at=at,
        averaged=(min(map(len, lasts.values())), max(map(len, lasts.values()))),
        scored=(min(map(len, walks.values())), max(map(len, walks.values()))),
        alone=tuple(sorted(every.keys() - walks.keys())),
    )
