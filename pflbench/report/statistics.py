"""Intervals and tests of differences over seeds, all in the units of the values.

Runs of one seed share federation, initial model, cohorts and minibatches, so methods are compared seed by seed
(paired). `scipy.special` has the distributions; it is imported where it is needed, since most tables need none of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
"""Coverage of every interval; tests are two-sided at one minus it."""


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


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = largest
    return adjusted


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
