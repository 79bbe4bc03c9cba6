"""The control that results are held against: it allows what rounding does, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pflbench.testing import assert_same, nudged
from pflbench.testing.rounding import gaps

EPS = torch.finfo(torch.float32).eps


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_nudge_moves_every_number_to_a_neighbor(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 1000, dtype=dtype)
    moved = nudged(x)
    up, down = (torch.nextafter(x, torch.full_like(x, sign * math.inf)) for sign in (1, -1))
    assert nudged(torch.zeros(3, dtype=dtype)).tolist() == [0] * 3
    assert ((moved == up) | (moved == down)).all() and (moved == up).any() and (moved == down).any()
    assert torch.equal(moved, nudged(x)) and not torch.equal(moved, nudged(x, 1))


def test_a_nudge_keeps_structure_and_what_is_no_float() -> None:
    tree = {"w": torch.ones(3), "counts": torch.arange(3), "state": ((), 4)}
    moved = nudged(tree)
    assert moved["state"] == ((), 4) and torch.equal(moved["counts"], tree["counts"])
    assert torch.equal(tree["w"], torch.ones(3)) and not torch.equal(moved["w"], tree["w"])


def chaotic(x: Tensor) -> Tensor:
    """Fourteen steps of a map that doubles differences."""
    for _ in range(14):
        x = 3.9 * x * (1 - x)
    return x


def steady(x: Tensor) -> Tensor:
    """Fourteen steps of one that halves them."""
    for _ in range(14):
        x = 0.5 * x + 0.1
    return x


X = torch.linspace(0.1, 0.4, 20)


def test_a_difference_as_large_as_the_controls_is_rounding() -> None:
    other, exact = chaotic(X * (1 + EPS)), chaotic(X)
    assert not torch.equal(other, exact)
    with pytest.raises(AssertionError, match="two results differ by"):
        assert_same(other, exact)
    assert_same(other, exact, chaotic(nudged(X)))
    (gap,) = gaps(other, exact, [chaotic(nudged(X))])
    assert gap.explained and gap.control > 100 * EPS


def test_the_same_difference_is_none_where_nothing_amplifies() -> None:
    by = (chaotic(X * (1 + EPS)) - chaotic(X)).abs().max()
    assert_same(steady(X * (1 + EPS)), steady(X), steady(nudged(X)))
    with pytest.raises(AssertionError):
        assert_same(steady(X) + by, steady(X), steady(nudged(X)))


def test_each_tensor_is_held_against_its_own_control() -> None:
    both = (steady(X), chaotic(X))
    control = (steady(nudged(X)), chaotic(nudged(X)))
    assert_same(both, both, control)
    with pytest.raises(AssertionError):
        assert_same((steady(X) + 1e-4, chaotic(X)), both, control)


def test_what_flips_is_amplified_and_what_is_smooth_is_not() -> None:
    x = torch.tensor([0.5, 1.0, -1.0])
    (flipped,) = gaps((x - 0.5).sign(), (x - 0.5).sign(), [(nudged(x) - 0.5).sign()])
    (smooth,) = gaps(x, x, [nudged(x)])
    assert flipped.amplified and not smooth.amplified


def test_what_is_not_a_number_or_of_another_shape_is_never_the_same() -> None:
    with pytest.raises(AssertionError):
        assert_same(torch.tensor([1.0, math.nan]), torch.ones(2), torch.zeros(2))
    with pytest.raises(ValueError):
        assert_same((X, X), (X,), (X,))
    with pytest.raises(ValueError):
        assert_same(X[:1], X, X)


def test_a_float32_result_is_held_to_float32s_digits_in_float64_too() -> None:
    assert_same(steady(X.double()), steady(X), steady(nudged(X)))
    with pytest.raises(AssertionError):
        assert_same(steady(X.double()) + 1e-9, steady(X.double()), steady(nudged(X.double())))
