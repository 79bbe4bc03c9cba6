"""Decision of a claim from paired differences over seeds, at planned looks.

A claim makes one or more comparisons: row minus rival in one column, seed by seed. Student's t-test of their mean
decides at each look, with its share of `ERROR` on one side (Bonferroni). A comparison is shown if it rejects "not
better" at one look; later seeds of it are not read. A claim holds if every comparison is shown, each at whichever look
(an intersection-union test, which needs no correction: a claim with a wrong comparison holds only if that one is
shown). It does not hold if a comparison that is not shown is significant for the opposite, or for being smaller than
claimed, corrected by Holm over all comparisons of the claim. So no further run changes a word that is decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Word = Literal["holds", "holds, smaller than printed", "does not hold", "undecided", "not run"]

ERROR = 0.025
"""One-sided error of all looks together."""


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
        against: Positions of the comparisons that decide `does not hold`; else empty.
        contradicted: True if the differences have the opposite sign; False if they are smaller than claimed.
        shown: Number of seeds at the look that showed a comparison, by its position.
        small: Positions of those that are shown and smaller than claimed.
    """

    word: Word
    seeds: int = 0
    against: tuple[int, ...] = ()
    contradicted: bool = False
    shown: Mapping[int, int] = field(default_factory=dict)
    small: frozenset[int] = frozenset()


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
    _check(differences, bounds, looks)
    complete = 0
    shown: dict[int, int] = {}
    small: frozenset[int] = frozenset()
    for n in looks:
        # [comparison, seed]; what is shown is not read again
        values = np.array([_first(() if i in shown else one, n) for i, one in enumerate(differences)])
        if not np.isnan(np.delete(values, list(shown), axis=0)).any():
            complete = n
        found = _at_look(values, bounds, ERROR / len(looks))
        shown |= dict.fromkeys(found.shown, n)
        small |= shown.keys() & found.short
        against = found.opposite or tuple(i for i in found.short if i not in shown)
        if against:
            return Decision("does not hold", n, against, bool(found.opposite), shown=shown, small=small)
        if len(shown) == len(bounds):
            return Decision("holds, smaller than printed" if small else "holds", n, shown=shown, small=small)
    if all(value is None for one in differences for value in one):
        return Decision("not run")
    return Decision("undecided", complete, shown=shown, small=small)


def _check(differences: Sequence[Sequence[float | None]], bounds: Sequence[Hypotheses], looks: Sequence[int]) -> None:
    if not differences or len(differences) != len(bounds):
        raise ValueError("A claim needs at least one comparison, each with its bounds.")
    if not looks or looks[0] < 2 or any(a >= b for a, b in pairwise(looks)):
        raise ValueError(f"The looks {list(looks)} do not increase from 2 seeds.")


class _Look(NamedTuple):
    """Positions of comparisons that are shown, that have the opposite, and that are smaller than claimed."""

    shown: tuple[int, ...]
    opposite: tuple[int, ...]
    short: tuple[int, ...]


def _at_look(values: Floats, bounds: Sequence[Hypotheses], alpha: float) -> _Look:
    """What one look finds in `values[comparison, seed]`; a comparison with a NaN is neither shown nor refuted."""
    n = values.shape[1]
    mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / math.sqrt(n)
    margins = [one.margin for one in bounds]
    lower = np.array([0.0 if one is None else -one for one in margins])
    upper = np.array([np.inf if one is None else one for one in margins])
    least = np.array([-np.inf if one.least is None else one.least for one in bounds])
    # One-sided p of "at most the lower end", "at least the upper end"; the claim's side is between the two.
    inside = np.maximum(_p(mean - lower, error, n), _p(upper - mean, error, n))
    outside = np.minimum(_p(lower - mean, error, n), _p(mean - upper, error, n))
    sides = np.array([1 if one is None else 2 for one in margins])
    shown = tuple(np.flatnonzero(inside <= alpha).tolist())  # NaN compares as false
    return _Look(shown, rejected(sides * outside, alpha), rejected(_p(least - mean, error, n), alpha))


def rejected(p: Floats, alpha: float) -> tuple[int, ...]:
    """Positions whose p-values Holm's procedure rejects at `alpha`; NaN counts as a comparison that is not rejected."""
    order = np.argsort(np.where(np.isnan(p), np.inf, p), kind="stable")
    found: list[int] = []
    for step, position in enumerate(order):
        if not p[position] <= alpha / (len(p) - step):
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
