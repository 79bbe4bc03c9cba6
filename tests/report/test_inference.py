"""Intervals and tests over seeds: against scipy, statsmodels, published tables, closed forms, and simulation."""

from __future__ import annotations

import itertools
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


@pytest.mark.parametrize("values", DIFFERENCES[:4], ids=len)
def test_sign_flip_is_scipys(values: np.ndarray) -> None:
    there = scipy.stats.permutation_test(
        (values, np.zeros_like(values)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=math.inf,
    )
    assert statistics.sign_flip(values) == pytest.approx(float(there.pvalue), rel=EXACT)


def test_sign_flip_with_many_values_is_near_the_exact_one() -> None:
    values = RNG.normal(0.2, 1.0, size=21)
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    exact = (np.abs(sums) >= abs(values.sum()) - 1e-12).mean()
    assert statistics.sign_flip(values) == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=7))
def test_sign_flip_is_the_share_of_signs_as_far_out(values: list[int]) -> None:
    flipped = [sum(s * v for s, v in zip(signs, values, strict=True)) for signs in signs_of(len(values))]
    share = sum(abs(one) >= abs(sum(values)) for one in flipped) / len(flipped)
    assert statistics.sign_flip([v / 10 for v in values]) == pytest.approx(share)
    assert share >= 2 / 2 ** len(values)


def signs_of(n: int) -> list[tuple[int, ...]]:
    return list(itertools.product([1, -1], repeat=n))


@settings(max_examples=20)  # statsmodels takes 50 ms for each
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_statsmodels(p: list[float]) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    assert statistics.holm(p) == pytest.approx(list(multitest.multipletests(p, method="holm")[1]), rel=EXACT)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 30])
def test_smallest_detectable_is_statsmodels(n: int) -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    found = statistics.smallest_detectable(1.7, n)
    there = 1.7 * power.TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8)
    assert found == pytest.approx(float(there), rel=1e-5)  # which counts the far tail, too


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


TABLE = RNG.integers(0, 6, size=(8, 5)).astype(float)  # with ties


def test_ranks_and_friedman_are_scipys() -> None:
    assert np.array_equal(statistics.ranks(TABLE), scipy.stats.rankdata(-TABLE, axis=1))
    found, there = statistics.friedman(TABLE), scipy.stats.friedmanchisquare(*TABLE.T)
    assert found is not None
    assert (found.statistic, found.p) == pytest.approx((float(there.statistic), float(there.pvalue)), rel=1e-11)
    assert found.ranks == pytest.approx(scipy.stats.rankdata(-TABLE, axis=1).mean(0), rel=EXACT)


def test_friedman_needs_columns_methods_and_a_difference() -> None:
    assert statistics.friedman(TABLE[:1]) is None
    assert statistics.friedman(TABLE[:, :2]) is None
    assert statistics.friedman(np.ones((4, 3))) is None


def test_critical_difference_is_demsars() -> None:
    # Demšar (2006), Table 5: q of 0.05 for 2 to 10 methods.
    printed = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)
    assert statistics.critical_difference(4, 14) == pytest.approx(1.25, abs=0.005), (
        "his example of four methods on fourteen datasets"
    )
    for methods, q in enumerate(printed, 2):
        expected = q * math.sqrt(methods * (methods + 1) / (6 * 14))
        assert statistics.critical_difference(methods, 14) == pytest.approx(expected, rel=1e-3)


def test_rank_intervals_hold_the_mean_and_need_two_columns() -> None:
    found = statistics.rank_intervals(TABLE, np.random.default_rng(1))
    assert found is not None
    for mean, interval in zip(statistics.ranks(TABLE).mean(0), found, strict=True):
        assert interval.low < mean < interval.high
    assert statistics.rank_intervals(TABLE[:1], np.random.default_rng(1)) is None


def test_rank_intervals_are_as_wide_as_students() -> None:
    """Of many draws, the standard error is that of the mean over columns, with n - 1 in place of n."""
    found = statistics.rank_intervals(TABLE, np.random.default_rng(1), draws=40_000)
    assert found is not None
    ranks = statistics.ranks(TABLE)
    errors = ranks.std(0, ddof=1) / len(ranks) ** 0.5
    for error, interval in zip(errors, found, strict=True):
        expected = 2 * error * scipy.stats.t.ppf(0.975, len(ranks) - 1)
        assert interval.high - interval.low == pytest.approx(expected, rel=0.03)


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
