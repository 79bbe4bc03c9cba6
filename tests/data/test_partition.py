"""Partitions against the CAFeMe sheet's facts (§2, none needs an image) and against what every partition promises."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.data.datasets.mnist import rotation_groups
from pflbench.data.partition import Partition, legacy_stream, shuffled
from pflbench.data.partitions import cafeme
from pflbench.data.partitions.cafeme import Dirichlet, Kinds, Shards
from pflbench.data.partitions.pfllib import PFLlib
from pflbench.errors import UsageError

CIFAR = np.repeat(np.arange(10), 5000)
MNIST = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])

LIGHT = settings(max_examples=40, deadline=None)


def sizes(partition: Partition, labels: np.ndarray, seed: int) -> np.ndarray:
    return np.array([len(rows) for rows in partition(labels, None, 100, seed)])


def distinct(labels: np.ndarray, seed: int) -> np.ndarray:
    """How many of the 100 clients hold 0, 1, 2, 3 classes under 200 shards."""
    held = Shards()(labels, None, 100, seed)
    return np.bincount([len(np.unique(labels[rows])) for rows in held], minlength=4)


# ---- facts of the sheet


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (CIFAR, [(133, 1083), (30, 1447), (68, 1574), (63, 1220), (126, 1162), (146, 1219)]),
        (MNIST, [(81, 1413), (176, 1558), (74, 1299), (26, 1255), (18, 1450), (66, 2712), (88, 1303)]),
    ],
    ids=["cifar10", "rmnist"],
)
def test_dirichlet_client_sizes(labels: np.ndarray, expected: list[tuple[int, int]]) -> None:
    found = [sizes(Dirichlet(), labels, seed) for seed in range(len(expected))]
    assert [(n.min(), n.max()) for n in found] == expected


@pytest.mark.parametrize(
    ("labels", "batch", "crash"), [(CIFAR, 50, {1, 7, 14, 15}), (MNIST, 30, {3, 4})], ids=["cifar10", "rmnist"]
)
def test_seeds_with_a_client_below_one_batch(labels: np.ndarray, batch: int, crash: set[int]) -> None:
    smallest = {seed: int(sizes(Dirichlet(), labels, seed).min()) for seed in range(16)}
    assert {seed for seed, n in smallest.items() if n - int(0.2 * n) < batch} == crash


@pytest.mark.parametrize(("alpha", "low", "high"), [(5, 395, 783), (1000, 578, 615)])
def test_dirichlet_is_flatter_with_a_larger_alpha(alpha: float, low: int, high: int) -> None:
    n = sizes(Dirichlet(alpha=alpha), MNIST, 0)
    assert (n.min(), n.max()) == (low, high)


def test_dirichlet_clients_hold_about_seven_classes() -> None:
    held = Dirichlet()(CIFAR, None, 100, 0)
    assert np.mean([len(np.unique(CIFAR[rows])) for rows in held]) == pytest.approx(7, abs=0.7)


def test_shards_of_cifar10_have_two_classes_and_sometimes_one() -> None:
    counts = [distinct(CIFAR, seed) for seed in range(5)]
    assert all(c[1] + c[2] == 100 for c in counts)
    assert counts[0][1] == 3
    assert (min(c[1] for c in counts), max(c[1] for c in counts)) == (3, 15)


def test_shards_of_mnist_straddle_classes() -> None:
    counts = np.stack([distinct(MNIST, seed) for seed in range(5)])
    low, high = counts.min(0), counts.max(0)
    assert [(low[k], high[k]) for k in (1, 2, 3)] == [(2, 15), (77, 90), (6, 8)]


@pytest.mark.parametrize(("labels", "size"), [(CIFAR, 500), (MNIST, 600)], ids=["cifar10", "rmnist"])
def test_shards_have_equal_sizes(labels: np.ndarray, size: int) -> None:
    assert set(sizes(Shards(), labels, 0)) == {size}


def test_shards_deal_permuted_shards_in_order() -> None:
    labels = np.array([1, 0, 1, 0, 2, 2])  # shards of one row, by label: rows 1 3 0 2 4 5
    hands = np.random.RandomState(3).permutation(6).reshape(2, 3)
    found = Shards(6)(labels, None, 2, 3)
    assert [rows.tolist() for rows in found] == np.array([1, 3, 0, 2, 4, 5])[hands].tolist()


def test_kinds_give_ten_clients_of_600_per_angle() -> None:
    kind = rotation_groups(60_000, 10, 4)
    held = Kinds()(MNIST, kind, 100, 4)
    assert {len(rows) for rows in held} == {600}
    assert [set(kind[rows]) for rows in held] == [{i // 10} for i in range(100)]
    # Laid end to end, the clients are the shuffle that made the rotation groups.
    assert np.array_equal(np.concatenate(held), shuffled(60_000, 4))


# ---- what every partition promises


def promises(
    partition: Partition, labels: np.ndarray, kind: np.ndarray | None, clients: int, seed: int
) -> list[np.ndarray]:
    held = partition(labels, kind, clients, seed)
    again = partition(labels, kind, clients, seed)
    every = np.concatenate(held)
    assert len(held) == clients
    assert all(rows.dtype == np.int64 for rows in held)
    assert len(np.unique(every)) == len(every)
    assert all(np.array_equal(a, b) for a, b in zip(held, again, strict=True))
    return held


labelings = st.lists(st.integers(0, 4), min_size=40, max_size=200).map(np.array)
seeds = st.integers(0, 2**32 - 1)


@LIGHT
@given(labels=labelings, clients=st.integers(1, 5), each=st.integers(1, 4), seed=seeds)
def test_shards_are_disjoint_and_leave_only_a_remainder(labels: np.ndarray, clients: int, each: int, seed: int) -> None:
    held = promises(Shards(clients * each), labels, None, clients, seed)
    assert sum(map(len, held)) == len(labels) - len(labels) % (clients * each)


@LIGHT
@given(labels=labelings, clients=st.integers(1, 5), alpha=st.floats(0.3, 100), seed=seeds)
def test_dirichlet_is_disjoint_complete_and_at_least_the_minimum(
    labels: np.ndarray, clients: int, alpha: float, seed: int
) -> None:
    before = labels.copy()
    held = promises(Dirichlet(alpha, minimum=2), labels, None, clients, seed)
    assert sum(map(len, held)) == len(labels)
    assert min(map(len, held)) >= 2
    assert np.array_equal(labels, before)


@LIGHT
@given(n=st.integers(40, 200), kinds=st.integers(1, 4), each=st.integers(1, 5), seed=seeds)
def test_kinds_are_disjoint_complete_and_pure(n: int, kinds: int, each: int, seed: int) -> None:
    kind = rotation_groups(n, kinds, seed)
    held = promises(Kinds(), np.zeros(n, dtype=np.int64), kind, kinds * each, seed)
    assert sum(map(len, held)) == n
    assert all(len(np.unique(kind[rows])) == 1 for rows in held)


@pytest.mark.parametrize("partition", [Shards(20), Dirichlet(minimum=2)])
def test_seeds_differ(partition: Partition) -> None:
    labels = np.repeat(np.arange(5), 40)
    a, b = (partition(labels, None, 10, seed) for seed in (0, 1))
    assert not np.array_equal(np.concatenate(a), np.concatenate(b))


def test_global_random_state_is_neither_read_nor_written() -> None:
    before = repr(np.random.get_state())  # noqa: NPY002
    held = Dirichlet()(CIFAR, None, 100, 0)
    Shards()(CIFAR, None, 100, 0)
    assert repr(np.random.get_state()) == before  # noqa: NPY002
    np.random.random(7)  # noqa: NPY002
    again = Dirichlet()(CIFAR, None, 100, 0)
    assert all(np.array_equal(a, b) for a, b in zip(held, again, strict=True))


# ---- impossible requests


@pytest.mark.parametrize(
    ("partition", "clients", "says"),
    [
        (Shards(200), 201, "dealt evenly"),
        (Shards(200), 30, "dealt evenly"),
        (Shards(1000), 10, "cut into"),
        (Shards(), 501, "cannot be divided"),
        (Shards(), 0, "cannot be divided"),
        (Dirichlet(), 51, "smaller minimum"),
        (Dirichlet(), 501, "cannot be divided"),
        (Dirichlet(minimum=10), 50, "1000 draws"),  # needs exactly ten rows each
        (Dirichlet(alpha=1e-6), 10, "larger alpha"),  # draws underflow or all go to full clients
        (Kinds(), 10, "needs a dataset"),
    ],
)
def test_impossible_requests_end_with_a_message(partition: Partition, clients: int, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        partition(np.repeat(np.arange(10), 50), None, clients, 0)


def test_kinds_need_a_multiple_and_enough_rows() -> None:
    kind = np.array([0, 0, 0, 0, 0, 1])
    labels = np.zeros(6, dtype=np.int64)
    with pytest.raises(UsageError, match="evenly"):
        Kinds()(labels, kind, 3, 0)
    with pytest.raises(UsageError, match="fewer rows"):
        Kinds()(labels, kind, 4, 0)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seed_outside_the_legacy_range(seed: int) -> None:
    with pytest.raises(UsageError, match="Seed"):
        legacy_stream(seed)


@pytest.mark.parametrize("pfllib", [False, True])
@pytest.mark.parametrize(
    ("classes", "rows", "clients", "most"),
    [(10, 1_797, 1_797, 1000), (1000, 6_000, 500, 70), (62, 700_000, 200, 150), (10, 60_000, 100, 1000)],
)
def test_impossible_dirichlet_splits_are_given_up_after_a_bounded_amount_of_work(
    classes: int, rows: int, clients: int, most: int, pfllib: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws: list[int] = []
    monkeypatch.setattr(cafeme, "_divided", lambda *_: draws.append(1))
    labels = np.arange(rows) % classes
    with pytest.raises(UsageError, match=f"over {rows} rows never gave each of {clients} clients 1 rows"):
        if pfllib:
            PFLlib(minimum=1).deal(labels, None, 0, clients, 0)
        else:
            Dirichlet(minimum=1)(labels, None, clients, 0)
    assert most / 2 < len(draws) <= most


@pytest.mark.parametrize("alpha", [1e-4, 1e-8, 5e-324, 1e300])
def test_extreme_alphas_give_a_split_or_one_sentence_and_no_warning(alpha: float) -> None:
    labels = np.arange(1_797) % 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            assert min(map(len, Dirichlet(alpha)(labels, None, 10, 0))) >= 10
        except UsageError as error:
            assert "larger alpha" in str(error) and alpha < 1
