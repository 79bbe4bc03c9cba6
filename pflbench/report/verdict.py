"""One yardstick for every paper: the difference of our mean and its, with a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pflbench.report.statistics import LEVEL, Interval, Sample, difference_interval, sample_interval
from pflbench.report.statistics import sample as sample_of
from pflbench.suite.cells import Reference
from pflbench.suite.schema import Spread

SUSPECT = "reference suspect"
ENOUGH_SEEDS = 3
MARGIN = 2.0
"""Points on either side within which a difference is small, at most."""
LEAST_MARGIN = 0.5
"""The same, at least: close to 100 % accuracies still vary by some tenths of a point."""
SHARE = 4
"""Between the two the margin is the paper's number's distance from 100 %, divided by this."""
Label = Literal["agrees", "close", "inconclusive", "differs", "too few seeds", "not comparable"]
COMPARED: tuple[Label, ...] = ("agrees", "close", "inconclusive", "differs")
"""The labels of cells that were held against the paper, the nearest first."""
GLYPHS: dict[Label, str] = {"agrees": "✓", "close": "≈", "inconclusive": "?", "differs": "✗"}
"""Glyphs of the labels of compared cells; other labels have none."""
RULE = (
    f"the {100 * LEVEL:.0f} % interval of the difference decides. Agrees: it holds 0 and lies within the margin; "
    "close: it lies within the margin and does not hold 0; inconclusive: it holds 0 and leaves the margin; differs: it "
    "leaves the margin and does not hold 0. The margin is a quarter of the paper's distance from 100 %, at least "
    f"{LEAST_MARGIN:g} and at most {MARGIN:g} points (±{MARGIN:g} for a difference of two cells)"
)
"""Meaning of the labels of compared cells, and of the margin."""
_ROUNDING = 1e-9
"""Points by which floating point may move the ends of an interval."""
_MOST_DIGITS = 10
"""Digits behind the point of rounded limits, at most."""


@dataclass(frozen=True)
class Verdict:
    """Verdict on a cell against the paper, and its reason; `interval`: of ours minus the paper's, in points.

    `margin`: points on either side of 0 within which the interval counts as small.
    `suspect`: why the paper's number may be wrong, which stands beside the comparison and does not hide it.
    `at_best`: what the comparison would be at our best round, where that is nearer to the paper's than our last.
    """

    label: Label
    reason: str
    interval: Interval | None = None
    suspect: str | None = None
    at_best: str | None = None
    margin: float = MARGIN

    def digits(self, decimals: int) -> int:
        """Fewest digits behind the point, at least `decimals`, with which the rounded limits say the same label."""
        if self.interval is None:
            return decimals

        def agree(digits: int) -> bool:
            low, high = (round(limit, digits) for limit in self.interval or ())
            return label(Interval(low, high), self.margin) == self.label

        return next(filter(agree, range(decimals, _MOST_DIGITS)), decimals)


def margin(printed: Reference) -> float:
    """Points within which our accuracy is close to a printed one: fewer near 100 %, where differences are small."""
    return max(LEAST_MARGIN, min(MARGIN, (100 - printed.mean) / SHARE))


def verdict(
    seeds: Sequence[float],
    theirs: Reference,
    spread: Spread,
    decimals: int,
    barred: str | None = None,
    *,
    within: float | None = None,
) -> Verdict:
    """Verdict on our seeds' means against the paper's number.

    The paper's ± is brought to the standard deviation of its runs by its kind and by `spread.n`, how many runs it is
    over; without one of these, or where the ± is printed as 0, ours alone makes the interval. Half a unit of the
    paper's last printed digit widens it.

    Args:
        seeds: The mean of each of our seeds, in percent.
        theirs: What the paper printed.
        spread: What its ± is.
        decimals: How many digits behind the point it prints.
        barred: Why the numbers must not be compared (None: they may).
        within: The margin in points; default: that of an accuracy.
    """
    if barred is not None:
        return Verdict("not comparable", barred)
    if len(seeds) < ENOUGH_SEEDS:
        return Verdict("too few seeds", f"fewer than {ENOUGH_SEEDS} seeds are done", suspect=theirs.suspect)
    there, how = printed_sample(theirs, spread)
    interval = difference_interval(sample_of(seeds), there)
    assert interval is not None  # three seeds have a deviation
    interval = interval.widened(_half_a_unit(theirs, decimals))
    within = margin(theirs) if within is None else within
    reason = f"the interval is {how}"
    return Verdict(label(interval, within), reason, interval, theirs.suspect, margin=within)


def paper_interval(theirs: Reference, spread: Spread) -> Interval | None:
    """95 % interval of a printed mean, in percent, by Student's t; None where its ± or number of runs is unknown."""
    return sample_interval(printed_sample(theirs, spread)[0])


def label(interval: Interval, margin: float) -> Label:
    """The label of a compared cell, by the interval of its difference and the margin.

    An end that equals 0 or the margin lies within.
    """
    small = -margin - _ROUNDING <= interval.low and interval.high <= margin + _ROUNDING
    if 0.0 in interval.widened(_ROUNDING):
        return "agrees" if small else "inconclusive"
    return "close" if small else "differs"


def printed_sample(printed: Reference, spread: Spread) -> tuple[Sample, str]:
    """The paper's runs, and in words what of them makes the interval of a difference."""
    n = spread.n or 0
    if printed.spread is None:
        return Sample(printed.mean, None, n), "from our seeds alone, as the paper prints no ±"
    if not printed.spread:
        return Sample(printed.mean, None, n), "from our seeds alone, as the paper's ± is printed as 0"
    if n < 2:
        return Sample(printed.mean, None, n), "from our seeds alone, as it is not known over how many runs its ± is"
    bound = ", at least as large as that of their means" if spread.of == "each-step" else ""
    if spread.kind == "sem":
        how = f"the paper's ± times √{n} as the deviation of {n} runs"
        return Sample(printed.mean, printed.spread * math.sqrt(n), n), f"Welch's, {how}"
    scale, times = (1.0, "") if spread.ddof else (math.sqrt(n / (n - 1)), f" times √({n}/{n - 1})")
    deviation = f"the paper's ±{times} as the deviation of {n} runs{bound}"
    return Sample(printed.mean, printed.spread * scale, n), f"Welch's, {deviation}"


def _half_a_unit(printed: Reference, decimals: int) -> float:
    """Half of what the last digit of the paper's number stands for."""
    digits = len(printed.text.partition(".")[2]) if printed.text else decimals
    return 0.5 * 10.0**-digits
