"""From scores to a cell: means, spreads over seeds and over the last rounds, and the verdict beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pflbench.report.reading import Floats, by_round
from pflbench.report.table import Recent, Verdict
from pflbench.result import RunResult
from pflbench.suite.cells import Reading, Reference
from pflbench.suite.schema import Spread

ENOUGH_SEEDS = 3
WINDOW = 10
"""So many of the last scored rounds stand beside a cell that shows the last one alone."""
_ROUNDING = 1e-9


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
    """What stands behind the ±."""
    return "standard error of the mean" if spread.kind == "sem" else "standard deviation"


def _std(values: Floats, ddof: int) -> float | None:
    # One seed has no spread; numpy would say 0 for ddof = 0, which reads as certainty.
    if len(values) < 2 or len(values) <= ddof:
        return None
    return float(values.std(axis=0, ddof=ddof).mean())


def recent(results: Sequence[RunResult], reading: Reading) -> Recent | None:
    """A cell's done runs, one per seed, over their last scored rounds.

    None at another stage than "global", where the cell is a mean over rounds anyway, or where no run was scored in
    enough of them.
    """
    if reading.stage != "global" or any(result.spec.scoring.last > 1 for result in results):
        return None
    walks = {result.spec.seed: by_round(result, reading, WINDOW) for result in results}
    found = {seed: walk for seed, walk in walks.items() if len(walk) == WINDOW}
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


def verdict(ours: Summary, theirs: Reference, not_comparable: str | None = None) -> Verdict:
    """How our cell compares to the paper's. `not_comparable`: the reason if they must not be compared."""
    if not_comparable is not None:
        return Verdict("not comparable", not_comparable)
    if ours.n < ENOUGH_SEEDS:
        return Verdict("too few seeds", f"fewer than {ENOUGH_SEEDS} seeds are done", suspect=theirs.suspect)
    spreads = "√(ours² + paper's²)" if theirs.spread is not None else "ours alone, as the paper prints no ±"
    reason = f"the difference is within one, within two, or more (off) joint ± (how many: in parentheses), {spreads}"
    joint = math.hypot(ours.spread or 0.0, theirs.spread or 0.0)
    difference = abs(ours.mean - theirs.mean)
    ratio = difference / joint if joint else math.inf if difference > _ROUNDING else 0.0
    within = [n for n in (1, 2) if difference <= n * joint + _ROUNDING]
    return Verdict("off" if not within else "within 1" if 1 in within else "within 2", reason, ratio, theirs.suspect)
