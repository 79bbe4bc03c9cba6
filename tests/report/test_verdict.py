"""The one yardstick: our seeds against a printed number, by the interval of the difference."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from pflbench.report import text
from pflbench.report.verdict import MARGIN, Verdict, verdict
from pflbench.suite.cells import Reference
from pflbench.suite.schema import Spread

FIVE = 5
STD0 = Spread(kind="std", ddof=0, n=FIVE)
STD1 = Spread(kind="std", ddof=1, n=FIVE)
SEM = Spread(kind="sem", n=FIVE)
SEEDS = [50.0, 51.0, 52.5, 49.0, 50.5]
THEIRS = np.array([48.0, 50.0, 49.5, 51.0, 50.2])


def printed(spread: float | None, mean: float = float(THEIRS.mean())) -> Reference:
    return Reference(mean, spread)


@pytest.mark.parametrize(
    ("kind", "spread"),
    [
        (STD0, THEIRS.std(ddof=0)),
        (STD1, THEIRS.std(ddof=1)),
        (SEM, THEIRS.std(ddof=1) / math.sqrt(5)),
    ],
    ids=["std0", "std1", "sem"],
)
def test_the_interval_is_welchs_whatever_the_paper_prints(kind: Spread, spread: float) -> None:
    """From the printed numbers alone it is what scipy finds from the paper's own five runs, and half a digit more."""
    there = scipy.stats.ttest_ind(SEEDS, THEIRS, equal_var=False).confidence_interval(0.95)
    found = verdict(SEEDS, printed(float(spread)), kind, decimals=2).interval
    assert found == pytest.approx((there.low - 0.005, there.high + 0.005), rel=1e-9)


@pytest.mark.parametrize(
    ("spread", "kind", "why"),
    [
        (None, STD0, "prints no ±"),
        (0.0, SEM, "printed as 0"),
        (0.4, Spread(kind="std"), "not known over how many runs"),
    ],
)
def test_without_a_usable_spread_ours_alone_counts(spread: float | None, kind: Spread, why: str) -> None:
    there = scipy.stats.ttest_1samp(SEEDS, 50.0).confidence_interval(0.95)
    found = verdict(SEEDS, printed(spread, 50.0), kind, decimals=1)
    assert found.interval == pytest.approx((there.low - 50 - 0.05, there.high - 50 + 0.05))
    assert "our seeds alone" in found.reason and why in found.reason


def test_the_printed_text_says_how_many_digits_there_are() -> None:
    two = verdict(SEEDS, Reference(50.0), STD1, decimals=2).interval
    one = verdict(SEEDS, Reference(50.0, text="50.0"), STD1, decimals=2).interval
    assert two is not None and one is not None
    assert one == pytest.approx(two.widened(0.045))


def around(mean: float, half: float) -> list[float]:
    """Three seeds whose interval reaches so far on either side of their mean."""
    step = half * math.sqrt(3) / scipy.stats.t.ppf(0.975, 2)
    return [mean - step, mean, mean + step]


@pytest.mark.parametrize(
    ("ours", "theirs", "label"),
    [
        (71.95, 70.0, "close"),  # the interval ends at the margin
        (68.05, 70.0, "close"),
        (81.95, 80.0, "close"),
        (70.05, 70.0, "agrees"),  # the interval ends at 0
        (80.15, 80.1, "agrees"),
        (65.55, 65.5, "agrees"),
        (64.95, 65.0, "agrees"),
        (71.96, 70.0, "differs"),
        (70.06, 70.0, "close"),
    ],
)
def test_rounding_of_floats_decides_no_label(ours: float, theirs: float, label: str) -> None:
    found = verdict([ours] * 3, Reference(theirs), STD0, decimals=1)
    assert found.label == label
    assert found.interval is not None and found.digits(1) <= 2


@pytest.mark.parametrize(
    ("difference", "half", "label"),
    [
        (0.5, 1.0, "agrees"),
        (-0.9, 1.0, "agrees"),
        (1.5, 1.6, "inconclusive"),  # reaches 3.1
        (0.0, 2.1, "inconclusive"),
        (1.1, 1.0, "differs"),
        (-0.3, 0.2, "close"),  # small, and yet not 0
        (1.0, 0.9, "close"),  # from 0.1 to 1.9
        (1.9, 0.2, "differs"),  # reaches 2.1
        (30.0, 3.0, "differs"),
    ],
)
def test_labels(difference: float, half: float, label: str) -> None:
    found = verdict(around(50 + difference, half), Reference(50.0), STD1, decimals=6)
    assert found.label == label
    assert found.interval == pytest.approx((difference - half, difference + half), abs=1e-5)


@pytest.mark.parametrize(
    ("paper", "margin"), [(-3.0, 2.0), (40.0, 2.0), (92.0, 2.0), (94.0, 1.5), (98.0, 0.5), (98.82, 0.5), (100.0, 0.5)]
)
@pytest.mark.parametrize("inside", ["agrees", "close"])
def test_the_margin_shrinks_towards_100(paper: float, margin: float, inside: str) -> None:
    """An interval just within the margin, and one just beyond it; with 0 inside, and just outside."""
    low, outside = {"agrees": (-0.1, "inconclusive"), "close": (0.1, "differs")}[inside]
    for high, label in ((margin - 0.01, inside), (margin + 0.01, outside)):
        middle, half = (low + high) / 2, (high - low) / 2
        found = verdict(around(paper + middle, half), Reference(paper), STD1, decimals=6)
        assert (found.label, found.margin) == (label, pytest.approx(margin))


def test_a_difference_of_cells_has_the_widest_margin() -> None:
    """It is no accuracy: 100 is no bound of it."""
    seeds = around(99.0, 1.0)
    assert verdict(seeds, Reference(99.0), STD1, decimals=6).label == "inconclusive"
    assert verdict(seeds, Reference(99.0), STD1, decimals=6, within=MARGIN).label == "agrees"


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (-3.6, -0.02, "-1.81 (-3.60 to -0.02)"),  # not "to -0.0" or "to +0.0", as it differs
        (0.02, 1.2, "+0.61 (+0.02 to +1.20)"),  # close: without 0
        (-0.004, 1.2, "+0.6 (+0.0 to +1.2)"),  # agrees: 0 is in it either way
        (-1.0, 2.04, "+0.52 (-1.00 to +2.04)"),  # inconclusive: beyond the margin
        (-1.0, 1.2, "+0.1 (-1.0 to +1.2)"),
    ],
)
def test_rounded_limits_do_not_contradict_the_word(low: float, high: float, shown: str) -> None:
    middle, half = (low + high) / 2, (high - low) / 2
    found = verdict(around(50 + middle, half), Reference(50.0, text="50.0000000"), STD1, decimals=1)
    assert text.difference_text(middle, found, 1) == shown


def test_what_bars_a_verdict() -> None:
    two = verdict([50.0, 51.0], Reference(50.0, 1.0, suspect="differs from Fig. 3"), STD0, 2)
    assert (two.label, two.interval, two.suspect) == ("too few seeds", None, "differs from Fig. 3")
    barred = verdict(SEEDS, Reference(50.0, 1.0, suspect="x"), STD0, 2, "other data")
    assert barred == Verdict("not comparable", "other data")


def test_a_suspect_reference_is_compared_all_the_same() -> None:
    plain, suspect = (verdict(SEEDS, Reference(45.0, 0.5, why), STD0, 2) for why in (None, "a misprint"))
    assert (plain.label, plain.suspect) == ("differs", None)
    assert (suspect.label, suspect.interval, suspect.suspect) == ("differs", plain.interval, "a misprint")


def test_seeds_that_do_not_vary() -> None:
    assert verdict([50.0] * 3, Reference(50.0), STD1, 2).label == "agrees"
    assert verdict([50.0] * 3, Reference(50.1), STD1, 2).label == "close"
    assert verdict([50.0] * 3, Reference(53.0), STD1, 2).label == "differs"


def test_a_mean_of_deviations_is_called_an_upper_bound() -> None:
    each = Spread(kind="std", ddof=0, of="each-step", n=FIVE)
    assert "at least as large" in verdict(SEEDS, printed(1.0), each, 2).reason
    assert "at least as large" not in verdict(SEEDS, printed(1.0), STD0, 2).reason


@pytest.mark.parametrize("kind", [STD0, STD1, SEM], ids=["std0", "std1", "sem"])
def test_one_rule_at_one_size(kind: Spread) -> None:
    """When both are draws of one law, 0 is outside about as often as 5 in 100, whatever ± is printed."""
    rng = np.random.default_rng(3)
    differ = 0
    for _ in range(1000):
        ours, theirs = rng.normal(50, 1, 5), rng.normal(50, 1, 5)
        spread = {"std": theirs.std(ddof=kind.ddof), "sem": theirs.std(ddof=1) / math.sqrt(5)}[kind.kind]
        differ += verdict(list(ours), Reference(theirs.mean(), spread), kind, 6).label in ("close", "differs")
    assert 25 <= differ <= 65  # Welch's with five each is a little conservative
