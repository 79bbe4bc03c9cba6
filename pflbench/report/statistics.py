"""From scores to a cell: means, spreads over seeds, and the verdict against the paper's number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.errors import PflbenchError
from pflbench.report.table import Reading, Reference, Spread, Verdict
from pflbench.result import Score

Floats = npt.NDArray[np.float64]

ENOUGH_SEEDS = 3
_ROUNDING = 1e-9


class Summary(NamedTuple):
    """A cell's numbers in percent. The spreads are None where the seeds are too few to have one."""

    mean: float
    std: float | None
    sem: float | None
    spread: float | None
    n: int


def accuracy_by_step(scores: Sequence[Score], reading: Reading) -> Floats:
    """The unweighted mean over clients of their accuracy after the last round, in percent, for each step read."""
    last = max((s.round for s in scores if s.stage == reading.stage), default=None)
    by_step: dict[int, list[float]] = {}
    for score in scores:
        if score.stage == reading.stage and score.round == last:
            by_step.setdefault(score.step, []).append(score.accuracy)
    steps = (max(by_step, default=0),) if reading.steps is None else reading.steps
    if missing := [step for step in steps if step not in by_step]:
        raise PflbenchError(f"A run has no scores at stage {reading.stage!r}, step {missing[0]}, that a table reads.")
    return np.array([100 * np.mean(by_step[step]) for step in steps])


def summarize(values: Floats, spread: Spread) -> Summary:
    """Summarize `values[seed, step]`. The SEM is always that of the sample standard deviation (ddof = 1)."""
    n = len(values)
    per_seed = values if spread.of == "each-step" else values.mean(axis=1, keepdims=True)
    std = _std(per_seed, spread.ddof)
    sample = _std(per_seed, 1)
    sem = None if sample is None else sample / math.sqrt(n)
    return Summary(float(values.mean()), std, sem, std if spread.kind == "std" else sem, n)


def _std(values: Floats, ddof: int) -> float | None:
    # One seed has no spread; numpy would say 0 for ddof = 0, which reads as certainty.
    if len(values) < 2 or len(values) <= ddof:
        return None
    return float(values.std(axis=0, ddof=ddof).mean())


def verdict(ours: Summary, theirs: Reference, not_comparable: str | None = None) -> Verdict:
    """How our cell compares to the paper's. `not_comparable`: why no comparison is allowed, if so."""
    if not_comparable is not None:
        return Verdict("not comparable", not_comparable)
    if theirs.suspect is not None:
        return Verdict("reference suspect", theirs.suspect)
    if ours.n < ENOUGH_SEEDS:
        return Verdict("too few seeds", f"fewer than {ENOUGH_SEEDS} seeds are done")
    spreads = "√(ours² + paper's²)" if theirs.spread is not None else "ours alone, as the paper prints no ±"
    reason = f"the difference is within one, within two, or more (off) joint ± (how many: in parentheses), {spreads}"
    joint = math.hypot(ours.spread or 0.0, theirs.spread or 0.0)
    difference = abs(ours.mean - theirs.mean)
    ratio = difference / joint if joint else math.inf if difference > _ROUNDING else 0.0
    if difference <= joint + _ROUNDING:
        return Verdict("within 1", reason, ratio)
    if difference <= 2 * joint + _ROUNDING:
        return Verdict("within 2", reason, ratio)
    return Verdict("off", reason, ratio)
