"""Intervals and tests over seeds: against scipy, statsmodels, published tables, closed forms, and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.report import statistics, text
from pflbench.report.statistics import Interval, Sample

RNG = np.random.default_rng(0)
EXACT = 1e-12
DIFFERENCES = [RNG.normal(0.7, 1.3, size=n) for n in (2, 3, 5, 10, 17)]


@pytest.mark.parametrize("values", DIFFERENCES, ids=len)
def test_paired_t_is_scipys(values: np.ndarray) -> None:
    found, there = statistics.paired(values), scipy.stats.ttest_1samp(values, 0.0)
    assert found.p_t == pytest.approx(float(there.pvalue), rel=EXACT)
    assert found.interval == pytest.approx(tuple(there.confidence_interval(0.95)), rel=EXACT)
    assert (found.n, found.mean, found.sd) == (len(values), values.mean(), values.std(ddof=1))


def test_one_seed_has_neither_interval_nor_p() -> None:
    found = statistics.paired([0.4])
    assert (found.n, found.mean) == (1, 0.4)
    assert (found.sd, found.interval, found.p_t) == (None,) * 3


def test_no_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        statistics.paired([])


def test_equal_differences() -> None:
    nothing, something = statistics.paired([0.0, 0.0, 0.0]), statistics.paired([0.5, 0.5, 0.5])
    assert nothing.p_t == 1.0
    assert (something.p_t, something.interval) == (0.0, (0.5, 0.5))


@settings(max_examples=20)  # statsmodels takes 50 ms for each
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_statsmodels(p: list[float]) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    assert statistics.holm(p) == pytest.approx(list(multitest.multipletests(p, method="holm")[1]), rel=EXACT)


@pytest.mark.parametrize(("a", "b"), [((3, 1.0), (5, 2.5)), ((5, 0.2), (5, 0.2)), ((10, 3.0), (2, 0.5))])
def test_difference_from_a_papers_number_is_welchs(a: tuple[int, float], b: tuple[int, float]) -> None:
    ours, theirs = (RNG.normal(50, sd, size=n) for n, sd in (a, b))
    there = scipy.stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    found = statistics.difference_interval(statistics.sample(ours), statistics.sample(theirs))
    assert found == pytest.approx(tuple(there), rel=1e-11)


def test_difference_from_a_number_without_a_spread_takes_ours_alone() -> None:
    ours = np.array([50.0, 51.0, 53.0])
    found = statistics.difference_interval(statistics.sample(ours), Sample(50.5, None, 5))
    alone = statistics.mean_interval(ours - 50.5)
    assert alone is not None and found == pytest.approx(alone, rel=EXACT)
    assert statistics.difference_interval(Sample(1.0, None, 1), Sample(2.0, None, 5)) is None
    assert statistics.difference_interval(Sample(1.0, 0.0, 3), Sample(2.0, None, 5)) == (-1.0, -1.0)


def test_interval() -> None:
    interval = statistics.Interval(-1.0, 2.0)
    assert 0 in interval and 2.0 in interval and 2.1 not in interval
    assert interval.widened(0.5) == (-1.5, 2.5)


def test_paired_t_is_calibrated() -> None:
    values = np.random.default_rng(5).normal(size=(20_000, 5))
    t = values.mean(1) / (values.std(1, ddof=1) / math.sqrt(5))
    bound = scipy.stats.t.ppf(0.975, 4)
    assert 0.045 < (np.abs(t) > bound).mean() < 0.055
    # Our own p crosses 5 % exactly where scipy's t does.
    picked = values[:200]
    assert [statistics.paired(one).p_t < 0.05 for one in picked] == list(np.abs(t[:200]) > bound)  # type: ignore[operator]


@pytest.mark.parametrize("sign", ["", "+"])
def test_no_end_of_an_interval_is_minus_zero(sign: str) -> None:
    assert text.between(Interval(-0.004, -0.0), 2, sign) == f" ({sign}0.00 to {sign}0.00)"
    assert text.between(Interval(-1.234, 0.5), 2, sign) == f" (-1.23 to {sign}0.50)" and text.between(None, 2) == ""
    assert text.number(-0.04, None, 1, sign) == f"{sign}0.0"
