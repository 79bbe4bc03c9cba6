"""One yardstick for every paper: the difference of our mean and its, with a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pflbench.report.statistics import LEVEL, Interval, Sample, difference_interval
from pflbench.report.statistics import sample as sample_of
from pflbench.suite.cells import Reference
from pflbench.suite.schema import Spread

SUSPECT = "reference suspect"
ENOUGH_SEEDS = 3
CLOSE = 2.0
"""Within so many points, on either side, the whole interval must lie for numbers to agree."""
Label = Literal["agrees", "inconclusive", "differs", "too few seeds", "not comparable"]
COMPARED: tuple[Label, ...] = ("agrees", "inconclusive", "differs")
"""The labels of cells that were held against the paper, the nearest first."""
RULE = (
    f"agrees: the {100 * LEVEL:.0f} % interval of the difference holds 0 and lies within ±{CLOSE:g} points; "
    "inconclusive: it holds 0; differs: it does not"
)
"""What the labels of compared cells mean."""


@dataclass(frozen=True)
class Verdict:
    """How a cell compares to the paper, and why; `interval`: of ours minus the paper's, in points.

    `suspect`: why the paper's number may be wrong, which stands beside the comparison and does not hide it.
    `at_best`: what the comparison would be at our best round, where that is nearer to the paper's than our last.
    """

    label: Label
    reason: str
    interval: Interval | None = None
    suspect: str | None = None
    at_best: str | None = None

    @property
    def word(self) -> str:
        """The verdict in a word; "reference suspect" where the paper's number is, whatever the difference."""
        return self.label if self.suspect is None else SUSPECT


def verdict(
    seeds: Sequence[float], theirs: Reference, spread: Spread, decimals: int, barred: str | None = None
) -> Verdict:
    """How our seeds' means compare to the paper's number.

    The paper's ± is brought to the standard deviation of its runs by its kind and by `spread.n`, how many runs it is
    over; without one of these, or where the ± is printed as 0, ours alone makes the interval. Half a unit of the
    paper's last printed digit widens it.

    Args:
        seeds: The mean of each of our seeds, in percent.
        theirs: What the paper printed.
        spread: What its ± is.
        decimals: How many digits behind the point it prints.
        barred: Why the numbers must not be compared (None: they may).
    """
    if barred is not None:
        return Verdict("not comparable", barred)
    if len(seeds) < ENOUGH_SEEDS:
        return Verdict("too few seeds", f"fewer than {ENOUGH_SEEDS} seeds are done", suspect=theirs.suspect)
    there, how = _theirs(theirs, spread)
    interval = difference_interval(sample_of(seeds), there)
    assert interval is not None  # three seeds have a deviation
    interval = interval.widened(_half_a_unit(theirs, decimals))
    return Verdict(_label(interval), f"the interval is {how}", interval, theirs.suspect)


def _label(interval: Interval) -> Label:
    if 0.0 not in interval:
        return "differs"
    return "agrees" if -CLOSE <= interval.low and interval.high <= CLOSE else "inconclusive"


def _theirs(printed: Reference, spread: Spread) -> tuple[Sample, str]:
    """The paper's runs, and in words what makes the interval."""
    n = spread.n.value if spread.n else 0
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
