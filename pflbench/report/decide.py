"""Decision of a claim from paired differences over seeds, at planned looks.

A claim makes one or more comparisons: row minus rival in one column, seed by seed. Student's t-test of their mean
decides at each look with `ALPHA` on one side, so two looks err with 0.025 in all (Bonferroni). A comparison is shown if
it rejects "not better" at one look; a claim holds if every comparison is shown, each at whichever look (an
intersection-union test, which needs no correction: a claim with a wrong comparison holds only if that one is shown).
So a shown comparison needs no further seeds. A claim does not hold if one comparison rejects the opposite, corrected
by Holm over all comparisons of the claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.report.statistics import smallest_detectable

Floats = npt.NDArray[np.float64]
Word = Literal["holds", "holds, smaller than printed", "does not hold", "undecided", "not run"]

ALPHA = 0.0125
"""One-sided error of one look."""
LOOKS = (3, 5)
"""Default numbers of seeds after which a claim is looked at."""


class Hypotheses(NamedTuple):
    """Hypotheses about the true mean difference, in points.

    `least`: smallest difference that counts as the printed one; None: any. `margin`: for `within` alone, the largest
    absolute difference.
    """

    least: float | None = None
    margin: float | None = None


@dataclass(frozen=True)
class Decision:
    """Word on a claim, and its evidence.

    Attributes:
        word: What the comparisons decide.
        seeds: Number of seeds at the look that decided; for `undecided` those of the last complete look, else 0.
        against: Positions of the comparisons that speak against the claim after Holm; empty unless they decide.
        contradicted: True if the differences have the opposite sign; False if they are smaller than claimed.
        detectable: For `undecided`, the largest over comparisons that are not shown of the smallest true difference
            that the last look would show with a power of 80 %, in points; None where no spread is known.
        shown: Positions of the comparisons that a look showed.
    """

    word: Word
    seeds: int = 0
    against: tuple[int, ...] = ()
    contradicted: bool = False
    detectable: float | None = None
    shown: tuple[int, ...] = ()


def decide(
    differences: Sequence[Sequence[float | None]], bounds: Sequence[Hypotheses], looks: Sequence[int]
) -> Decision:
    """Decide a claim at the first look that can.

    Args:
        differences: For each comparison, one value in points for each seed of the suite in its order; None: not run.
        bounds: For each comparison, what is claimed of it.
        looks: Increasing numbers of seeds, each at least 2.

    Raises:
        ValueError: There is no comparison, or the looks do not increase from 2.
    """
    if not differences or len(differences) != len(bounds):
        raise ValueError("A claim needs at least one comparison, each with its bounds.")
    if not looks or looks[0] < 2 or any(a >= b for a, b in pairwise(looks)):
        raise ValueError(f"The looks {list(looks)} do not increase from 2 seeds.")
    complete = 0
    shown: tuple[int, ...] = ()
    for n in looks:
        values = np.array([_first(one, n) for one in differences])  # [comparison, seed]
        found = at_look(values, bounds, shown)
        if found.word != "undecided":
            return found
        shown = found.shown
        if not np.isnan(np.delete(values, shown, axis=0)).any():
            complete = n
    if all(value is None for one in differences for value in one):
        return Decision("not run")
    unshown = [one for i, one in enumerate(differences) if i not in shown]
    return Decision("undecided", complete, detectable=_detectable(unshown, looks[-1]), shown=shown)


def at_look(values: Floats, bounds: Sequence[Hypotheses], shown: tuple[int, ...]) -> Decision:
    """Decide at one look from `values[comparison, seed]`, of which some were `shown` before.

    A comparison with a NaN is not run; it counts as shown if it was so before.
    """
    n = values.shape[1]
    mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / math.sqrt(n)
    margins = [one.margin for one in bounds]
    lower = np.array([0.0 if one is None else -one for one in margins])
    upper = np.array([np.inf if one is None else one for one in margins])
    least = np.array([-np.inf if one.least is None else one.least for one in bounds])
    # One-sided p of "at most the lower end", "at least the upper end"; the claim's side is between the two.
    inside = np.maximum(_p(mean - lower, error, n), _p(upper - mean, error, n))
    opposite = np.minimum(_p(lower - mean, error, n), _p(mean - upper, error, n))
    smaller = _p(least - mean, error, n)
    contradicts, falls_short = rejected(opposite), rejected(smaller)
    # NaN compares as false, so a comparison that is not run is never shown.
    shown = tuple(sorted({*shown, *np.flatnonzero(inside <= ALPHA).tolist()}))
    if contradicts:
        return Decision("does not hold", n, contradicts, contradicted=True, shown=shown)
    if len(shown) == len(bounds):
        return Decision("holds, smaller than printed" if falls_short else "holds", n, falls_short, shown=shown)
    if falls_short:
        return Decision("does not hold", n, falls_short, shown=shown)
    return Decision("undecided", n, shown=shown)


def rejected(p: Floats) -> tuple[int, ...]:
    """Positions whose p-values Holm's procedure rejects at `ALPHA`; NaN counts as a comparison that is not rejected."""
    order = np.argsort(np.where(np.isnan(p), np.inf, p), kind="stable")
    found: list[int] = []
    for step, position in enumerate(order):
        if not p[position] <= ALPHA / (len(p) - step):
            break
        found.append(int(position))
    return tuple(sorted(found))


def _first(one: Sequence[float | None], n: int) -> list[float]:
    """The first `n` values of a comparison; all NaN if one is missing, since looks are at the same seeds for all."""
    values = list(one[:n])
    if len(values) < n or any(value is None for value in values):
        return [math.nan] * n
    return [float(value) for value in values if value is not None]


def _p(distance: Floats, error: Floats, n: int) -> Floats:
    """One-sided p-value of Student's test that the true distance is at most 0. Equal values have p 0 or 1."""
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, distance / error, np.where(distance == 0, 0.0, np.sign(distance) * np.inf))
    t = np.where(np.isnan(error), np.nan, t)
    return np.asarray(np.where(np.isinf(t), (t < 0).astype(float), stdtr(n - 1, -t)))


def _detectable(differences: Sequence[Sequence[float | None]], n: int) -> float | None:
    """The largest over comparisons of the smallest difference that `n` seeds would show; None below two seeds."""
    found = []
    for one in differences:
        values = [value for value in one if value is not None]
        if len(values) > 1:
            found.append(smallest_detectable(float(np.std(values, ddof=1)), n, level=1 - 2 * ALPHA))
    return max((one for one in found if one is not None), default=None)
