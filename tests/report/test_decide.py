"""Decisions on claims: closed forms, and an independent decision by scipy's tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pflbench.report.decide import ALPHA, Decision, Hypotheses, decide

LOOKS = (3, 5)
AT_LEAST_1 = Hypotheses(least=1.0)


def by_scipy(values: list[list[float]], least: float) -> tuple[str, int]:
    """The word, and the look that decided: scipy's one-sided t-tests, and Bonferroni (which is Holm's first step).

    A comparison that is significant at one look stays so.
    """
    above = {n: [stats.ttest_1samp(one[:n], 0, alternative="greater").pvalue <= ALPHA for one in values] for n in LOOKS}
    for n in LOOKS:
        below = [stats.ttest_1samp(one[:n], 0, alternative="less").pvalue for one in values]
        small = [stats.ttest_1samp(one[:n], least, alternative="less").pvalue for one in values]
        short = min(small) <= ALPHA / len(values)
        if min(below) <= ALPHA / len(values):
            return "does not hold", n
        if all(any(above[m][i] for m in LOOKS if m <= n) for i in range(len(values))):
            return "holds, smaller than printed" if short else "holds", n
        if short:
            return "does not hold", n
    return "undecided", LOOKS[-1]


seed_values = st.floats(-6, 6).map(lambda x: round(x, 3))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(seed_values, min_size=5, max_size=5), min_size=1, max_size=4), st.floats(0.1, 4))
def test_words_are_those_of_one_sided_t_tests(values: list[list[float]], least: float) -> None:
    if any(np.std(one[:n]) < 1e-6 for one in values for n in LOOKS):
        return
    found = decide(values, [Hypotheses(least=least)] * len(values), LOOKS)
    assert (found.word, found.seeds) == by_scipy(values, least)


def test_a_claim_holds_only_if_every_comparison_does() -> None:
    clear, unclear = [3.0, 3.2, 2.9], [-1.0, 4.0, 2.0]
    assert decide([clear], [AT_LEAST_1], LOOKS).word == "holds"
    found = decide([clear, unclear], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds) == ("undecided", 3)
    assert found.detectable is not None and found.detectable > 1


def test_a_comparison_that_is_shown_needs_no_further_seeds() -> None:
    shown, early = [3.0, 3.2, 2.9, None, None], [4.0, 2.0, 3.0]
    found = decide([shown, early], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds, found.shown) == ("undecided", 3, (0,))
    late = [*early, 3.1, 3.0]
    found = decide([shown, late], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds, found.shown) == ("holds", 5, (0, 1))
    found = decide([shown, [*early, -3.1, 3.0]], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds) == ("undecided", 5), "the look at five seeds lacks none that is needed"
    found = decide([[3.0, 9.0, -1.0, None, None], late], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds, found.shown) == ("undecided", 3, (1,))


def test_one_comparison_contradicts_a_claim_while_others_are_not_run() -> None:
    found = decide([[-3.0, -3.2, -2.9], [None, None, None]], [AT_LEAST_1] * 2, LOOKS)
    assert found == Decision("does not hold", 3, (0,), contradicted=True)


def test_a_clear_but_small_lead_is_smaller_than_claimed() -> None:
    found = decide([[0.20, 0.21, 0.19]], [Hypotheses(least=4.0)], LOOKS)
    assert (found.word, found.against) == ("holds, smaller than printed", (0,))
    found = decide([[0.2, -0.2, 0.1]], [Hypotheses(least=4.0)], LOOKS)
    assert (found.word, found.contradicted) == ("does not hold", False)


def test_the_first_look_that_decides_is_the_last() -> None:
    assert decide([[3.0, 3.2, 2.9, -9.0, -9.0]], [AT_LEAST_1], LOOKS).seeds == 3


def test_looks_wait_for_the_same_seeds_of_all_comparisons() -> None:
    found = decide([[3.0, 3.2, 2.9], [3.0, None, 2.9]], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds) == ("undecided", 0)
    assert decide([[None, 3.2, 2.9, 3.0]], [AT_LEAST_1], LOOKS).word == "undecided"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([0.1, -0.1, 0.05], "holds"),
        ([3.0, 3.1, 2.9], "does not hold"),
        ([-3.0, -3.1, -2.9], "does not hold"),
        ([0.4, -0.3, 0.6], "undecided"),
    ],
)
def test_within_needs_the_whole_interval_inside_the_margin(values: list[float], word: str) -> None:
    assert decide([values], [Hypotheses(margin=0.5)], (3,)).word == word


def test_equal_differences_decide_without_dividing_by_zero() -> None:
    assert decide([[2.0, 2.0, 2.0]], [AT_LEAST_1], LOOKS).word == "holds"
    assert decide([[0.0, 0.0, 0.0]], [Hypotheses()], LOOKS).word == "undecided"


def test_nothing_run_is_no_decision() -> None:
    assert decide([[None] * 5], [AT_LEAST_1], LOOKS).word == "not run"


@pytest.mark.parametrize("looks", [(), (1, 3), (3, 3)])
def test_looks_increase_from_two_seeds(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="look"):
        decide([[1.0, 2.0]], [AT_LEAST_1], looks)
    with pytest.raises(ValueError, match="comparison"):
        decide([], [], LOOKS)
