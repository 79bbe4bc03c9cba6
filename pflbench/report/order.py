"""Order of a column's rows beside the order of the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.report.statistics import Interval, Sample, sample
from pflbench.report.table import CellValue, Grid
from pflbench.report.text import between, number
from pflbench.report.verdict import ENOUGH_SEEDS, printed_sample
from pflbench.suite.cells import Expansion
from pflbench.suite.schema import Spread

FEWEST = 4
"""Rows below which an order says nothing."""
_DRAWS = 4000


class Order(NamedTuple):
    """Kendall's tau-b of our means and the paper's over a column's rows.

    `interval`: the central 95 % of tau over draws of both orders' numbers by Student's t with their standard errors;
    None where a row has fewer than three seeds, or the paper's ± is unknown.
    """

    tau: float
    interval: Interval | None
    rows: int


def order(values: Iterable[CellValue], spread: Spread) -> Order | None:
    """Order of the rows that have a number of ours and of the paper's; None for fewer than four.

    `spread`: what the paper's ± is.
    """
    ours, theirs = list[Sample](), list[Sample]()
    for value in values:
        if value.reference and not value.mixed and (seeds := [*value.compared.seeds.values()]):
            ours.append(sample(seeds))
            theirs.append(printed_sample(value.reference, spread)[0])
    if len(ours) < FEWEST:
        return None
    tau = float(_tau([one.mean for one in ours], [one.mean for one in theirs]))
    known = all(one.n >= ENOUGH_SEEDS for one in ours) and all(one.sd is not None and one.n > 1 for one in theirs)
    return Order(tau, _interval(ours, theirs) if known else None, len(ours))


def _interval(ours: Sequence[Sample], theirs: Sequence[Sample]) -> Interval:
    noise = _noise(tuple(one.n - 1 for one in (*ours, *theirs)))
    drawn = [one.mean + (one.sd or 0.0) / one.n**0.5 * t for one, t in zip((*ours, *theirs), noise, strict=True)]
    low, high = np.quantile(_tau(drawn[: len(ours)], drawn[len(ours) :]), (0.025, 0.975))
    return Interval(float(low), float(high))


@lru_cache(maxsize=8)  # most columns of a table have the same seeds
def _noise(degrees: tuple[int, ...]) -> list[npt.NDArray[np.float64]]:
    """Draws of Student's t for each of these degrees of freedom."""
    random = np.random.default_rng(0)
    return [random.standard_t(one, _DRAWS) for one in degrees]


def _tau(one: npt.ArrayLike, other: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Tau-b of two orders of rows, [row] or [row, draw]; 0 where one ties all. Loading scipy.stats takes longer."""
    signs = []
    for means in (np.asarray(one), np.asarray(other)):
        first, second = np.triu_indices(len(means), 1)
        above, below = means[first] > means[second], means[first] < means[second]
        signs.append(above.astype(np.int8) - below.astype(np.int8))
    a, b = signs
    return np.asarray(
        (a * b).sum(0) / np.sqrt(np.maximum(np.count_nonzero(a, axis=0) * np.count_nonzero(b, axis=0), 1))
    )


def orders(table: Expansion, grid: Grid) -> list[str]:
    """A line on the order of the rows in each column whose data are the paper's."""
    said = []
    for head in table.heads:
        found = order((value for (_, id), value in grid.items() if id == head.id), table.spread)
        if found and not head.column.stands_in:
            said.append(
                f"{head.name} {number(found.tau, None, 2)}{between(found.interval, 2, '')} of {found.rows} rows"
            )
    return [f"Order of rows, Kendall's tau with the paper's: {'; '.join(said)}."] if said else []
