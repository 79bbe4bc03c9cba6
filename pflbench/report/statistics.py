"""Intervals and tests of differences over seeds, all in the units of the values.

Runs of one seed share federation, initial model, cohorts and minibatches, so methods are compared seed by seed
(paired). `scipy.special` has the distributions; it is imported where it is needed, since most tables need none of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
"""Coverage of every interval; tests are two-sided at one minus it."""
POWER = 0.8
"""Of the smallest detectable difference."""
_EXACT = 20
"""Up to so many values the sign-flip test goes through all signs: a million of them."""
_DRAWS = 20_000
"""Random signs beyond that."""


class Interval(NamedTuple):
    """Two ends, `low` at most `high`."""

    low: float
    high: float

    def widened(self, by: float) -> Interval:
        """This much longer on each side."""
        return Interval(self.low - by, self.high + by)

    def __contains__(self, value: object) -> bool:
        """True if it holds a number, its ends included."""
        return isinstance(value, int | float) and self.low <= value <= self.high


class Sample(NamedTuple):
    """Mean, standard deviation (ddof = 1; None: not known) and number of independent values."""

    mean: float
    sd: float | None
    n: int


class Paired(NamedTuple):
    """Differences of two methods over `n` shared seeds.

    Attributes:
        mean: Their mean.
        sd: Their standard deviation (ddof = 1); None for one seed.
        interval: Student's t-interval of the mean; None for one seed.
        p_t: Two-sided p of the paired t-test; None for one seed.
    """

    n: int
    mean: float
    sd: float | None
    interval: Interval | None
    p_t: float | None


def sample(values: npt.ArrayLike) -> Sample:
    """The sample that these values are. Raises `ValueError` for none."""
    found = _flat(values)
    return Sample(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else None, len(found))


def mean_interval(values: npt.ArrayLike, level: float = LEVEL) -> Interval | None:
    """Student's t-interval of the mean of independent values; None for fewer than two."""
    return sample_interval(sample(values), level)


def sample_interval(of: Sample, level: float = LEVEL) -> Interval | None:
    """Student's t-interval of a sample's mean; None without a deviation or with fewer than two values."""
    return None if of.sd is None or of.n < 2 else _around(of.mean, of.sd / math.sqrt(of.n), of.n - 1, level)


def paired(differences: npt.ArrayLike) -> Paired:
    """Statistics of the differences of two methods over their shared seeds. Raises `ValueError` for none."""
    mean, sd, n = sample(differences)
    return Paired(n, mean, sd, mean_interval(differences), _p_of_t(mean, sd, n))


def sign_flip(differences: npt.ArrayLike) -> float:
    """Two-sided p of the sign-flip test on the mean: exact up to 20 values, then by 20,000 random signs.

    Under its null hypothesis the differences are symmetric around 0. Sums that differ by rounding alone count as equal.
    """
    values = _flat(differences)
    scale = float(np.abs(values).sum())
    least = abs(float(values.sum())) - 1e-12 * scale
    if len(values) > _EXACT:
        signs = np.random.default_rng(len(values)).choice([-1.0, 1.0], size=(_DRAWS, len(values)))
        return float((1 + (np.abs(signs @ values) >= least).sum()) / (1 + _DRAWS))
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return float((np.abs(sums) >= least).mean())


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = largest
    return adjusted


def smallest_detectable(sd: float | None, n: int, power: float = POWER, level: float = LEVEL) -> float | None:
    """The smallest true mean of n differences that a two-sided t-test finds with this power, given their deviation.

    None for fewer than two values; 0 where they do not vary.
    """
    if sd is None or n < 2:
        return None
    if sd == 0:
        return 0.0
    return _shift(n, power, level) * sd / math.sqrt(n)


@cache
def _shift(n: int, power: float, level: float) -> float:
    """Distance of a mean from 0, in standard errors of n values, that a two-sided t-test finds with this power."""
    from scipy.optimize import brentq
    from scipy.special import nctdtr

    bound = _quantile(n - 1, level)

    def found(shift: float) -> float:
        return float(1 - nctdtr(n - 1, shift, bound))  # the other tail is below 1e-6 where this is the power

    high = 1.0
    while found(high) < power:
        high *= 2
    return float(brentq(lambda shift: found(shift) - power, 0.0, high))


def difference_interval(ours: Sample, theirs: Sample, level: float = LEVEL) -> Interval | None:
    """The interval of the difference of two independent means (Welch; degrees of freedom by Satterthwaite).

    A side without a deviation counts as exact. None if neither has one.
    """
    parts = [(one.sd**2 / one.n, one.n - 1) for one in (ours, theirs) if one.sd is not None and one.n > 1]
    if not parts:
        return None
    variance = sum(square for square, _ in parts)
    if variance == 0:
        return Interval(ours.mean - theirs.mean, ours.mean - theirs.mean)
    df = variance**2 / sum(square**2 / freedom for square, freedom in parts)
    return _around(ours.mean - theirs.mean, math.sqrt(variance), df, level)


class Friedman(NamedTuple):
    """Friedman's test over columns: the statistic, its p, and each method's mean rank (1 is best)."""

    statistic: float
    p: float
    ranks: tuple[float, ...]


def ranks(scores: npt.ArrayLike) -> Floats:
    """The rank of each method in each column of `scores` ["columns", "methods"]: 1 for the best, ties share theirs."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(-np.atleast_2d(np.asarray(scores, np.float64)), axis=1))


def friedman(scores: npt.ArrayLike) -> Friedman | None:
    """Friedman's test of whether methods rank alike over independent columns, corrected for ties.

    Args:
        scores: Accuracies ["columns", "methods"].

    Returns:
        None for fewer than two columns or three methods, or where all methods tie everywhere.
    """
    table = np.atleast_2d(np.asarray(scores, np.float64))
    columns, methods = table.shape
    if columns < 2 or methods < 3 or (table == table[:, :1]).all():
        return None
    from scipy.stats import friedmanchisquare

    found = friedmanchisquare(*table.T)
    return Friedman(float(found.statistic), float(found.pvalue), tuple(map(float, ranks(table).mean(0))))


def rank_intervals(scores: npt.ArrayLike, rng: np.random.Generator, draws: int = 2000) -> list[Interval] | None:
    """The interval of each method's mean rank, by a bootstrap of columns, corrected as in `two_level`.

    None for fewer than two columns.
    """
    found = ranks(scores)
    columns = len(found)
    if columns < 2:
        return None
    means = found[rng.integers(columns, size=(draws, columns))].mean(1)  # ["draws", "methods"]
    errors = means.std(0, ddof=1) * math.sqrt(columns / (columns - 1))
    return [
        _around(float(center), float(error), columns - 1, LEVEL)
        for center, error in zip(found.mean(0), errors, strict=True)
    ]


def critical_difference(methods: int, columns: int, level: float = LEVEL) -> float:
    """Least distance of two mean ranks that differ (Nemenyi; Demšar 2006, Sec. 3.2.2)."""
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(level, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * columns))


def _flat(values: npt.ArrayLike) -> Floats:
    found = np.asarray(values, np.float64).ravel()
    if not len(found):
        raise ValueError("There are no values.")
    return found


def _quantile(df: float, level: float) -> float:
    """Half-width of a two-sided interval in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(df, (1 + level) / 2))


def _around(mean: float, error: float, df: float, level: float) -> Interval:
    half = error * _quantile(df, level)
    return Interval(mean - half, mean + half)


def _p_of_t(mean: float, sd: float | None, n: int) -> float | None:
    if sd is None:
        return None
    if sd == 0:
        return 1.0 if mean == 0 else 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(n - 1, -abs(mean) / (sd / math.sqrt(n))))
