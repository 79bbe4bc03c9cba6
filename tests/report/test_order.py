"""Order of rows: Kendall's tau against scipy's, and the width of its interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from pflbench.report.order import order
from pflbench.report.table import CellValue, Peak
from pflbench.suite.cells import Reference
from pflbench.suite.schema import Runs, Spread

STD = Spread(kind="std", ddof=1, n=Runs(value=3, source="paper"))


def cell(seeds: list[float], printed: float, spread: float | None = 0.1) -> CellValue:
    return CellValue(
        mean=float(np.mean(seeds)), seeds=dict(enumerate(seeds)), done=len(seeds), reference=Reference(printed, spread)
    )


def test_tau_is_scipys_and_far_rows_have_a_narrow_interval() -> None:
    printed = [90.0, 80.0, 70.0, 60.0, 50.0]
    ours = [50.0, 81.0, 69.0, 61.0, 40.0]
    cells = [cell([one - 0.1, one, one + 0.1], theirs) for one, theirs in zip(ours, printed, strict=True)]
    found = order(cells, STD)
    assert found is not None and found.rows == 5 and found.interval is not None
    assert found.tau == pytest.approx(kendalltau(ours, printed).statistic)
    assert found.interval == pytest.approx((found.tau, found.tau))


def test_rows_that_seeds_do_not_tell_apart_widen_the_interval() -> None:
    cells = [cell([50.0 + i, 60.0, 70.0 - i], 60.0 + i, 5.0) for i in range(5)]
    found = order(cells, STD)
    assert found is not None and found.interval is not None
    assert found.interval.low < -0.3 and found.interval.high > 0.3


def test_a_row_with_few_seeds_or_an_unknown_spread_leaves_no_interval() -> None:
    cells = [cell([50.0 + i, 51.0 + i, 52.0 + i], 60.0 + i) for i in range(4)]
    assert order(cells, STD) is not None and order(cells[:3], STD) is None
    for other in (cell([50.0, 51.0], 70.0), cell([50.0, 51.0, 52.0], 70.0, None)):
        found = order([*cells, other], STD)
        assert found is not None and (found.rows, found.interval) == (5, None)
    assert order([CellValue(reference=Reference(1.0, None))] * 5, STD) is None


def test_best_rounds_are_what_is_ordered() -> None:
    """By last rounds the order is the paper's, by best rounds its reverse."""
    cells = []
    for i in range(4):
        last, best = cell([50.0 + i], 60.0 + i), cell([90.0 - i], 60.0 + i)
        cells.append(CellValue(**{**vars(last), "peak": Peak(best, None, (1, 1))}))
    found = order(cells, STD)
    assert found is not None and found.tau == -1


def test_ties_count_as_scipys() -> None:
    printed, ours = [90.0, 80.0, 80.0, 60.0, 50.0], [50.0, 80.0, 70.0, 70.0, 40.0]
    found = order([cell([one], theirs) for one, theirs in zip(ours, printed, strict=True)], STD)
    assert found is not None and found.tau == pytest.approx(kendalltau(ours, printed).statistic)
