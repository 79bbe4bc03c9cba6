"""Counted normal numbers are normal, independent by key and by name, and the same wherever they are computed."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from pflbench import noise
from pflbench.methods.base import Round

MANY = 200_000
DTYPES = [torch.float32, torch.float64]


def draw(key: int, *name: str | int, count: int = MANY, dtype: torch.dtype = torch.float64) -> Tensor:
    return noise.normal(torch.tensor(key), name, (count,), dtype)


def key(*names: str | int) -> int:
    return noise.key(0, *names)


def uncorrelated(a: Tensor, b: Tensor) -> bool:
    """As well as so many independent numbers are, five standard deviations allowed."""
    return abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(len(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", [0, 1, 2**63 - 1, key(3, 7), key("initial")])
def test_numbers_are_normal(which: int, dtype: torch.dtype) -> None:
    x = draw(which, "head", 4, dtype=dtype).double()
    assert abs(x.mean()) < 5 / math.sqrt(MANY) and abs(x.var() - 1) < 5 * math.sqrt(2 / MANY)
    assert stats.kstest(x.numpy(), "norm").pvalue > 1e-3
    assert abs(stats.skew(x.numpy())) < 0.03 and abs(stats.kurtosis(x.numpy())) < 0.06
    assert 4 < x.abs().max() < 5.9


def test_the_first_number_of_many_keys_is_normal_too() -> None:
    x = torch.cat([draw(key(client, round), "base", 0, count=1) for client in range(50) for round in range(40)])
    assert stats.kstest(x.numpy(), "norm").pvalue > 1e-3 and len(x.unique()) == len(x)


def test_numbers_of_different_keys_and_names_are_independent() -> None:
    sources = [draw(key(1, 2), "head", 0), draw(key(1, 2), "head", 1), draw(key(1, 2), "base", 0)]
    sources += [draw(key(1, 3), "head", 0), draw(key(2, 2), "head", 0), draw(key(1, 2) + 1, "head", 0)]
    for a, b in combinations(sources, 2):
        assert uncorrelated(a, b) and uncorrelated(a.square(), b.square())
        assert not np.intersect1d(a, b).size


def test_numbers_of_one_draw_are_independent() -> None:
    x = draw(key(5), "head")
    half = MANY // 2  # the two numbers of one hash stand half a draw apart
    for lag in (1, 2, 7, half):
        a, b = x[:-lag], x[lag:]
        assert uncorrelated(a, b) and uncorrelated(a.square(), b.square())
    angle = torch.atan2(x[half:], x[:half])
    assert stats.kstest(angle.numpy(), stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 1e-3


@pytest.mark.parametrize("count", [0, 1, 2, 7, 33])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_stack_has_the_numbers_of_each_key_alone(count: int, dtype: torch.dtype) -> None:
    keys = torch.tensor([key(client) for client in range(4)])
    stacked = torch.vmap(lambda k: noise.normal(k, ("head", 1), (count,), dtype))(keys)
    assert stacked.shape == (4, count) and stacked.dtype == dtype
    for k, row in zip(keys, stacked, strict=True):
        assert torch.equal(row, noise.normal(k, ("head", 1), (count,), dtype))


def test_a_shape_only_arranges_the_numbers() -> None:
    flat = draw(key(1), "head", count=15)
    shaped = noise.normal(torch.tensor(key(1)), ("head",), (3, 5), torch.float64)
    assert torch.equal(shaped, flat.view(3, 5))
    assert noise.normal(torch.tensor(key(1)), ("head",), (), torch.float64).shape == ()


def test_float32_has_float64s_numbers_to_rounding() -> None:
    torch.testing.assert_close(
        draw(key(1), "head", dtype=torch.float32).double(), draw(key(1), "head"), rtol=0, atol=1e-3
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_uniform_number_has_an_infinite_logarithm(dtype: torch.dtype) -> None:
    ends = noise._uniform(torch.tensor([0, 1, 2**24 - 2, 2**24 - 1]), dtype)
    assert (ends > 0).all() and (ends <= 1).all()
    assert (ends.log() * -2).sqrt().max() < 5.9


def test_keys_are_stable_and_apart() -> None:
    keys = [noise.key(seed, client, round) for seed in range(3) for client in range(20) for round in range(20)]
    assert len(set(keys)) == len(keys) and all(0 <= k < 2**63 for k in keys)
    assert noise.key(1, 2, 3) == noise.key(1, 2, 3) != noise.key(1, 3, 2)


def test_a_round_has_noise_by_its_key() -> None:
    round = Round(3, torch.tensor(key(1, 3)))
    x = round.noise("head", 2, shape=(2, 5), dtype=torch.float64)
    assert torch.equal(x, noise.normal(torch.tensor(key(1, 3)), ("head", 2), (2, 5), torch.float64))
    with pytest.raises(ValueError, match="no key"):
        Round(3).noise("head", shape=(2,), dtype=torch.float64)


def test_fields_of_a_word_are_uniform_and_independent() -> None:
    words = noise.bits(torch.tensor(key("words")), ("here",), MANY)
    found = [noise.below(words, n, field) for field, n in enumerate((9, 9, 2))]
    for n, one in zip((9, 9, 2), found, strict=True):
        assert stats.chisquare(torch.bincount(one, minlength=n).numpy()).pvalue > 1e-3
        assert len(torch.bincount(one)) == n
    for a, b in combinations(found, 2):
        assert uncorrelated(a, b)


def test_uniform_numbers_are_uniform() -> None:
    x = noise.uniform(torch.tensor(key("uniform")), ("here",), MANY, torch.float64)
    assert 0 < x.min() and x.max() <= 1
    assert stats.kstest(x.numpy(), "uniform").pvalue > 1e-3


def test_words_of_several_keys_are_those_of_each_and_fewer_are_the_first_of_more() -> None:
    keys = torch.tensor([[key(0), key(1)], [key(2), key(3)]])
    together = noise.bits(keys, ("here",), 7)
    assert together.shape == (2, 2, 7)
    for i in range(2):
        for j in range(2):
            assert torch.equal(together[i, j], noise.bits(keys[i, j], ("here",), 7))
    assert torch.equal(together[..., :4], noise.bits(keys, ("here",), 4))


def test_a_branch_is_another_key() -> None:
    root = torch.tensor(key("root"))
    keys = [root, *(noise.branch(root, *name) for name in ((0, 0), (0, 1), (1, 0), ("here",)))]
    numbers = [noise.normal(k, ("x",), (MANY,), torch.float64) for k in keys]
    for a, b in combinations(numbers, 2):
        assert uncorrelated(a, b)
    assert int(noise.branch(root, 0, 1)) == int(noise.branch(root, 0, 1))
