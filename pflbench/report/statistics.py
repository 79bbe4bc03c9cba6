"""From scores to a cell: means, spreads over seeds, and the verdict against the paper's number."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from pflbench.report.reading import Floats
from pflbench.report.table import Verdict
from pflbench.suite.cells import Reference
from pflbench.suite.schema import Spread

ENOUGH_SEEDS = 3
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


def _std(values: Floats, ddof: int) -> float | None:
    # One seed has no spread; numpy would say 0 for ddof = 0, which reads as certainty.
    if len(values) < 2 or len(values) <= ddof:
        return None
    return float(values.std(axis=0, ddof=ddof).mean())


def verdict(ours: Summary, theirs: Reference, not_comparable: str | None = None) -> Verdict:
    """How our cell compares to the paper's. `not_comparable`: the reason if they must not be compared."""
    if not_comparable is not None:
        return Verdict("not comparable", not_comparable)
    return replace(_compared(ours, theirs), suspect=theirs.suspect)


def _compared(ours: Summary, theirs: Reference) -> Verdict:
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
