"""Partitions by one kind of skew: what they promise, and their laws against exact ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pflbench.data.partition import Partition
from pflbench.data.partitions.skew import ClassesPerClient, DirichletEqual, QuantitySkew
from pflbench.errors import UsageError

LIGHT = settings(max_examples=60, deadline=None)
CIFAR = np.repeat(np.arange(10), 5000)

labelings = st.lists(st.integers(0, 4), min_size=40, max_size=200).map(np.array)
seeds = st.integers(0, 2**32 - 1)


def promises(partition: Partition, labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
    before = labels.copy()
    held = partition(labels, None, clients, seed)
    partition(labels, None, clients, seed + 1)  # whatever other seeds drew
    again = partition(labels, np.zeros_like(labels), clients, seed)
    every = np.concatenate(held)
    assert len(held) == clients and all(rows.dtype == np.int64 for rows in held)
    assert len(np.unique(every)) == len(every) and every.min() >= 0 and every.max() < len(labels)
    assert all(np.array_equal(a, b) for a, b in zip(held, again, strict=True))
    assert np.array_equal(labels, before)
    return held


def per_class(held: list[np.ndarray], labels: np.ndarray) -> np.ndarray:
    return np.array([np.bincount(labels[rows], minlength=labels.max() + 1) for rows in held])


@pytest.mark.parametrize("partition", [DirichletEqual(), QuantitySkew(), ClassesPerClient()])
def test_other_seeds_give_other_partitions(partition: Partition) -> None:
    a, b = (partition(CIFAR, None, 10, seed) for seed in (0, 1))
    assert any(set(x) != set(y) for x, y in zip(a, b, strict=True))


# ---- the mix of labels, at equal sizes


@LIGHT
@given(labels=labelings, clients=st.integers(1, 12), alpha=st.floats(1e-4, 1e6), seed=seeds)
def test_equal_sizes_and_every_row(labels: np.ndarray, clients: int, alpha: float, seed: int) -> None:
    held = promises(DirichletEqual(alpha), labels, clients, seed)
    sizes = list(map(len, held))
    assert sum(sizes) == len(labels) and max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_the_law_of_two_clients_and_two_classes() -> None:
    """How many rows of class 0 client 0 gets, against the sum over all requests of the first pass."""
    m, alpha, draws = 6, 0.5, 4000
    asked = stats.betabinom(m, alpha, alpha).pmf(np.arange(m + 1))
    law = np.zeros(m + 1)
    for a in range(m + 1):
        for b in range(m + 1):
            # The class that is asked for too often goes to a random part of the requests; losers get the other one.
            if a + b >= m:
                of_client = stats.hypergeom(a + b, a, m).pmf(np.arange(m + 1))
            else:
                of_client = stats.hypergeom(2 * m - a - b, m - a, m).pmf(m - np.arange(m + 1))
            law += asked[a] * asked[b] * of_client
    assert law.sum() == pytest.approx(1)
    labels = np.repeat([0, 1], m)
    found = np.bincount(
        [per_class(DirichletEqual(alpha)(labels, None, 2, seed), labels)[0, 0] for seed in range(draws)],
        minlength=m + 1,
    )
    assert np.abs(found - draws * law).max() < 4.5 * np.sqrt(draws * law * (1 - law)).max()
    assert stats.chisquare(found, draws * law).pvalue > 1e-4


def test_the_mean_mix_is_that_of_the_pool() -> None:
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    counts = np.array([per_class(DirichletEqual(0.3)(labels, None, 20, seed), labels) for seed in range(60)])
    assert np.array_equal(counts.sum(1), np.tile([600, 300, 100], (60, 1)))
    of_client = counts[:, 7]  # any one: clients are exchangeable
    error = of_client.std(0) / 60**0.5
    assert np.all(np.abs(of_client.mean(0) - [30, 15, 5]) < 4 * error)


@pytest.mark.parametrize(("alpha", "low", "high"), [(1e-4, 1.0, 2.0), (0.1, 2.0, 5.0), (1e4, 9.9, 10.0)])
def test_alpha_says_how_many_classes_a_client_has(alpha: float, low: float, high: float) -> None:
    counts = per_class(DirichletEqual(alpha)(CIFAR, None, 100, 0), CIFAR)
    effective = np.exp([stats.entropy(mine) for mine in counts]).mean()
    assert low <= effective <= high
    assert set(counts.sum(1)) == {500}


# ---- sizes


@LIGHT
@given(
    labels=labelings,
    clients=st.integers(1, 8),
    beta=st.floats(1e-3, 1e6),
    minimum=st.integers(1, 5),
    seed=seeds,
)
def test_sizes_have_a_minimum_and_every_row_is_dealt(
    labels: np.ndarray, clients: int, beta: float, minimum: int, seed: int
) -> None:
    held = promises(QuantitySkew(beta, minimum), labels, clients, seed)
    sizes = list(map(len, held))
    assert sum(sizes) == len(labels) and min(sizes) >= minimum


def test_the_law_of_sizes() -> None:
    clients, beta, minimum, free = 8, 0.5, 10, 49_920
    sizes = np.array(
        [[len(rows) for rows in QuantitySkew(beta, minimum)(CIFAR, None, clients, seed)] for seed in range(400)]
    )
    shares = (sizes - minimum) / free
    law = stats.beta(beta, (clients - 1) * beta)
    for client in (0, 3, 7):  # with 400 draws, a whole row of 49,920 makes no difference
        assert stats.kstest(shares[:, client], law.cdf).pvalue > 1e-3
    assert shares.sum(1) == pytest.approx(np.ones(400))


def test_labels_are_alike() -> None:
    labels = np.repeat([0, 1, 2], [30_000, 15_000, 5_000])
    counts = per_class(QuantitySkew(0.5, 100)(labels, None, 20, 0), labels)
    expected = counts.sum(1, keepdims=True) * [0.6, 0.3, 0.1]
    # Hypergeometric counts: their squares over what is expected add up to chi-square, 2 degrees for each client.
    assert stats.chi2(38).sf(((counts - expected) ** 2 / expected).sum()) > 1e-3
    assert counts.sum() == 50_000


# ---- few classes each


@LIGHT
@given(names=st.integers(1, 8), clients=st.integers(1, 20), each=st.integers(1, 8), extra=st.integers(0, 9), seed=seeds)
def test_classes_per_client(names: int, clients: int, each: int, extra: int, seed: int) -> None:
    each = min(each, names)
    sizes = clients + np.random.default_rng(seed).integers(0, extra + 1, names)
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(names), sizes))
    counts = per_class(promises(ClassesPerClient(each), labels, clients, seed), labels)
    assert np.all((counts > 0).sum(1) == each)
    for c in range(names):
        mine = counts[:, c][counts[:, c] > 0]
        assert len(mine) == 0 or (mine.sum() == sizes[c] and mine.max() - mine.min() <= 1)
    if clients * each >= names:
        assert np.all((counts > 0).any(0))
    else:
        assert (counts > 0).sum() == clients * each and (counts > 0).sum(0).max() == 1
    if clients >= names:
        assert all(counts[client, client % names] > 0 for client in range(clients))


def test_how_many_clients_hold_a_class() -> None:
    """With C classes and k each, a client that need not hold a class holds it with chance (k - 1) / (C - 1)."""
    labels = np.repeat(np.arange(10), 100)
    held = np.array([per_class(ClassesPerClient(3)(labels, None, 50, seed), labels) > 0 for seed in range(200)])
    holders = held.sum(1)
    law = stats.binom(45, 2 / 9, loc=5)
    assert holders.mean() == pytest.approx(law.mean(), rel=1e-9)  # 15: every client holds three
    assert holders[:, 0].var() == pytest.approx(law.var(), rel=0.35)
    pairs = held[:, 0, 1:].mean(0)  # the others of client 0 are equally likely
    assert np.abs(pairs - 2 / 9).max() < 4.5 * (2 / 9 * 7 / 9 / 200) ** 0.5


# ---- impossible requests


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DirichletEqual()(np.zeros(5, dtype=np.int64), None, 6, 0), "cannot be divided"),
        (lambda: QuantitySkew()(np.zeros(50, dtype=np.int64), None, 6, 0), "need 60 rows; there are 50"),
        (lambda: ClassesPerClient(2)(np.zeros(50, dtype=np.int64), None, 6, 0), "hold 2 classes, there are 1"),
        (lambda: ClassesPerClient(2)(np.arange(50) // 49, None, 6, 0), "6 clients hold class 1, which has 1 rows"),
    ],
)
def test_impossible_requests_end_with_a_message(make: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()
