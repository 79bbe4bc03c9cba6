"""Decisions on claims: closed forms, and an independent decision by scipy's tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pflbench.report.decide import ERROR, Decision, Hypotheses, decide

LOOKS = (3, 5)
AT_LEAST_1 = Hypotheses(least=1.0)


def by_scipy(values: list[list[float]], least: float) -> tuple[str, int]:
    """The word, and the look that decided, by scipy's one-sided t-tests and Holm's adjusted p-values.

    A comparison that is significant at one look stays so, and is not looked at again.
    """
    alpha, waiting, small = ERROR / len(LOOKS), set(range(len(values))), set[int]()

    def p(n: int, against: float, side: str) -> dict[int, float]:
        return {i: float(stats.ttest_1samp(values[i][:n], against, alternative=side).pvalue) for i in waiting}

    def holm(of: dict[int, float]) -> set[int]:
        ranked = sorted(of.items(), key=lambda one: one[1])
        adjusted = np.maximum.accumulate([(len(values) - k) * one for k, (_, one) in enumerate(ranked)])
        return {i for (i, _), one in zip(ranked, adjusted, strict=True) if one <= alpha}

    for n in LOOKS:
        below, short = holm(p(n, 0, "less")), holm(p(n, least, "less"))
        now = {i for i, one in p(n, 0, "greater").items() if one <= alpha}
        waiting, small = waiting - now, small | (now & short)
        if below or short & waiting:
            return "does not hold", n
        if not waiting:
            return "holds, smaller than printed" if small else "holds", n
    return "undecided", LOOKS[-1]


seed_values = st.floats(-6, 6).map(lambda x: round(x, 3))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(seed_values, min_size=5, max_size=5), min_size=1, max_size=4), st.floats(0.1, 4))
def test_words_are_those_of_one_sided_t_tests(values: list[list[float]], least: float) -> None:
    if any(np.std(one[:n]) < 1e-6 for one in values for n in LOOKS):
        return
    found = decide(values, [Hypotheses(least=least)] * len(values), LOOKS)
    assert (found.word, found.seeds) == by_scipy(values, least)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(seed_values, min_size=5, max_size=5), min_size=1, max_size=3),
    st.floats(0.1, 4),
    st.lists(st.integers(0, 5), min_size=3, max_size=3),
)
def test_further_runs_never_change_a_word_that_is_decided(
    values: list[list[float]], least: float, done: list[int]
) -> None:
    """Whichever comparisons were run first, and though one has seeds that nobody asked for."""
    bounds = [Hypotheses(least=least)] * len(values)
    some = [one[:n] for one, n in zip(values, done, strict=False)]
    before, after = decide(some, bounds, LOOKS), decide(values, bounds, LOOKS)
    if before.word not in ("undecided", "not run"):
        assert after.word.split(",")[0] == before.word.split(",")[0]
    if before.word.startswith("holds"):
        assert (after.word, after.seeds) == (before.word, before.seeds)


def test_a_claim_holds_only_if_every_comparison_does() -> None:
    clear, unclear = [3.0, 3.2, 2.9], [-1.0, 4.0, 2.0]
    assert decide([clear], [AT_LEAST_1], LOOKS).word == "holds"
    found = decide([clear, unclear], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds) == ("undecided", 3)


def test_a_comparison_that_is_shown_needs_no_further_seeds() -> None:
    shown, early = [3.0, 3.2, 2.9, None, None], [4.0, 2.0, 3.0]
    found = decide([shown, early], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds, found.shown) == ("undecided", 3, {0: 3})
    late = [*early, 3.1, 3.0]
    found = decide([shown, late], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds, found.shown) == ("holds", 5, {0: 3, 1: 5})
    found = decide([shown, [*early, -3.1, 3.0]], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds) == ("undecided", 5), "the look at five seeds lacks none that is needed"
    found = decide([[3.0, 9.0, -1.0, None, None], late], [AT_LEAST_1] * 2, LOOKS)
    assert (found.word, found.seeds, found.shown) == ("undecided", 3, {1: 5})


def test_one_comparison_contradicts_a_claim_while_others_are_not_run() -> None:
    found = decide([[-3.0, -3.2, -2.9], [None, None, None]], [AT_LEAST_1] * 2, LOOKS)
    assert found == Decision("does not hold", 3, (0,), contradicted=True)


def test_a_clear_but_small_lead_is_smaller_than_claimed() -> None:
    found = decide([[0.20, 0.21, 0.19]], [Hypotheses(least=4.0)], LOOKS)
    assert (found.word, found.small, found.against) == ("holds, smaller than printed", {0}, ())
    found = decide([[0.2, -0.2, 0.1]], [Hypotheses(least=4.0)], LOOKS)
    assert (found.word, found.contradicted) == ("does not hold", False)


def test_a_small_lead_that_is_shown_refutes_nothing_while_others_are_open() -> None:
    small, four = [0.20, 0.21, 0.19], [Hypotheses(least=4.0)] * 2
    found = decide([small, [None] * 3], four, LOOKS)
    assert (found.word, found.shown, found.small) == ("undecided", {0: 3}, {0})
    assert decide([small, [9.0, 9.2, 8.9]], four, LOOKS).word == "holds, smaller than printed"
    found = decide([small, [9.0, 2.0, 15.0, 9.0, 8.0]], four, LOOKS)
    assert (found.word, found.shown) == ("holds, smaller than printed", {0: 3, 1: 5})


def test_later_seeds_of_a_comparison_that_is_shown_are_not_read() -> None:
    shown = [3.0, 3.2, 2.9]
    for more in ([], [-9.0], [-9.0, -9.1]):
        found = decide([[*shown, *more], [4.0, 2.0, 3.0, 3.1, 3.0]], [AT_LEAST_1] * 2, LOOKS)
        assert (found.word, found.seeds) == ("holds", 5)
    twice = [[1.0, 1.1, 1.05, *[-20.0, -21.0] * 4], [3.0, 9.0, 1.0, *[5.0, 5.1] * 4]]
    assert decide(twice, [AT_LEAST_1] * 2, (3, 11)).word == "holds"


def test_the_error_is_shared_by_the_looks() -> None:
    values = [[1.0, 1.35, 0.7]]  # one-sided p 0.017
    assert decide(values, [Hypotheses()], (3,)).word == "holds"
    assert decide(values, [Hypotheses()], (3, 5)).word == "undecided"


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


def test_a_difference_outside_the_margin_may_lie_on_either_side() -> None:
    """So each side has half of the error: a p of 0.008 on one side is not enough at 0.0125 in all."""
    values = [0.5, 0.62, 0.42]
    p = float(stats.ttest_1samp(values, 0.0, alternative="greater").pvalue)
    assert ERROR / 4 < p < ERROR / 2
    assert decide([values], [Hypotheses(margin=1e-9)], LOOKS).word == "undecided"
    assert decide([values], [Hypotheses(margin=1e-9)], (3,)).word == "does not hold"


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
