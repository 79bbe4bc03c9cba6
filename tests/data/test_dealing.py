"""Partitions that deal each client its own test rows: FedEC's shards of classes, and federations made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.data.datasets.cifar import CIFAR10, CIFAR100
from pflbench.data.datasets.digits import Digits
from pflbench.data.federation import Federation, build
from pflbench.data.partition import Hand
from pflbench.data.partitions.cafeme import Shards
from pflbench.data.partitions.fedec import ClassShards, LetterUsers
from pflbench.data.source import Dataset, Source
from pflbench.errors import UsageError
from pflbench.rng import stream

SETTINGS = [(10, 100, 2), (10, 100, 5), (10, 1000, 2), (100, 100, 5), (100, 100, 20)]
"""Classes, clients, classes per client of the paper's CIFAR columns."""
TABLE = {
    (10, 100, 2): (20, 250, 500, 50, 100, 1.90),
    (10, 100, 5): (50, 100, 500, 20, 100, 4.11),
    (10, 1000, 2): (200, 25, 50, 5, 10, 1.90),
    (100, 100, 5): (5, 100, 500, 20, 100, 4.92),
    (100, 100, 20): (20, 25, 500, 5, 100, 18.3),
}
"""The sheet's table: shards per class, rows of a train shard and of a client, of a test shard and of a client's test
rows, expected number of distinct classes."""


def cifar_labels(classes: int, seed: int = 0) -> np.ndarray:
    """50,000 + 10,000 balanced labels, in random order within both splits."""
    random = np.random.default_rng(seed)
    splits = [random.permutation(np.repeat(np.arange(classes), n // classes)) for n in (50_000, 10_000)]
    return np.concatenate(splits)


def dealt(labels: np.ndarray, test: int, clients: int, each: int, seed: int = 0) -> list[Hand]:
    return ClassShards(each).deal(labels, None, test, clients, seed)


def shard_numbers(rows: np.ndarray, labels: np.ndarray, within: np.ndarray, shards: int) -> list[tuple[int, int]]:
    """The (class, shard) of a client's rows, once for each; fails unless it has the shards' rows completely."""
    found = []
    for name in np.unique(labels[rows]):
        pieces = np.array_split(within[labels[within] == name], shards)
        mine = [k for k, piece in enumerate(pieces) if np.isin(piece, rows).any()]
        assert set(np.concatenate([pieces[k] for k in mine])) == set(rows[labels[rows] == name])
        found += [(int(name), k) for k in mine]
    return found


# ---- shards of classes


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_sheets_sizes(setting: tuple[int, int, int]) -> None:
    classes, clients, each = setting
    shards, train_shard, n_train, test_shard, n_test, _ = TABLE[setting]
    labels = cifar_labels(classes)
    hands = dealt(labels, 10_000, clients, each)
    assert {len(support) for support, _ in hands} == {n_train} and {len(scored) for _, scored in hands} == {n_test}
    assert n_train == each * train_shard and n_test == each * test_shard and shards * classes == clients * each
    for split, every in ((0, np.arange(50_000)), (1, np.arange(50_000, 60_000))):
        assert np.array_equal(np.sort(np.concatenate([hand[split] for hand in hands])), every)
    per_client = np.array([np.bincount(labels[support], minlength=classes) for support, _ in hands])
    assert np.all(per_client % train_shard == 0)
    assert np.all((per_client > 0).sum(0) <= shards) and np.all(per_client.sum(0) == shards * train_shard)
    tested = np.array([np.bincount(labels[scored], minlength=classes) for _, scored in hands])
    assert np.array_equal(per_client // train_shard, tested // test_shard)


@pytest.mark.parametrize("setting", SETTINGS)
def test_clients_have_as_many_distinct_classes_as_the_shuffle_gives(setting: tuple[int, int, int]) -> None:
    classes, clients, each = setting
    shards = TABLE[setting][0]
    # A class is absent from all slots of a client with the hypergeometric chance.
    expected = classes * (1 - comb(clients * each - shards, each) / comb(clients * each, each))
    assert expected == pytest.approx(TABLE[setting][-1], abs=0.05)
    labels = np.concatenate([np.repeat(np.arange(classes), shards)] * 2)
    counts = [
        len(np.unique(labels[support]))
        for seed in range(20)
        for support, _ in dealt(labels, len(labels) // 2, clients, each, seed)
    ]
    assert np.mean(counts) == pytest.approx(expected, abs=4 * np.std(counts) / len(counts) ** 0.5)


@settings(max_examples=40)
@given(
    classes=st.integers(1, 5),
    times=st.integers(1, 4),
    each=st.integers(1, 4),
    extra=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_rows_are_whole_shards_of_the_same_classes_in_both_splits(
    classes: int, times: int, each: int, extra: int, seed: int
) -> None:
    clients = classes * times
    shards = times * each
    random = np.random.default_rng(seed)
    splits = [np.repeat(np.arange(classes), shards + random.integers(0, extra + 1, classes)) for _ in range(2)]
    labels = np.concatenate([random.permutation(split) for split in splits])
    own = len(splits[0])
    hands = dealt(labels, len(splits[1]), clients, each, seed)
    again = dealt(labels, len(splits[1]), clients, each, seed)
    numbers: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for (support, scored), repeated in zip(hands, again, strict=True):
        assert support.dtype == scored.dtype == np.int64
        assert np.array_equal(support, repeated[0]) and np.array_equal(scored, repeated[1])
        mine = shard_numbers(support, labels, np.arange(own), shards)
        tested = shard_numbers(scored, labels, np.arange(own, len(labels)), shards)
        assert [name for name, _ in mine] == [name for name, _ in tested] and len(mine) == each
        numbers[0].extend(mine)
        numbers[1].extend(tested)
    # Every shard of every class is somebody's, once: so every class is used equally often.
    every = [(name, k) for name in range(classes) for k in range(shards)]
    assert sorted(numbers[0]) == sorted(numbers[1]) == every


def test_the_first_shards_are_the_larger_ones() -> None:
    labels = np.zeros(11 + 4, dtype=np.int64)
    hands = dealt(labels, 4, 4, 1)
    assert sorted(rows.tolist() for rows, _ in hands) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    assert sorted(rows.tolist() for _, rows in hands) == [[11], [12], [13], [14]]


def test_shards_are_drawn_uniformly_and_anew_for_the_test_split() -> None:
    labels = np.zeros(8, dtype=np.int64)
    pairs = np.zeros((4, 4))
    for seed in range(1600):
        support, scored = dealt(labels, 4, 4, 1, seed)[2]
        pairs[support[0], scored[0] - 4] += 1
    assert np.abs(pairs - 100).max() < 45  # 4.6 standard deviations


@pytest.mark.parametrize(
    ("clients", "each", "test", "says"),
    [
        (3, 2, 40, "multiple of 4"),
        (20, 1, 40, None),
        (24, 1, 40, r"training split has 5 rows"),
        (8, 1, 4, r"test split has 1 rows"),
        (4, 1, 0, "test split"),
        (0, 1, 40, "cannot be divided"),
    ],
)
def test_impossible_shards(clients: int, each: int, test: int, says: str | None) -> None:
    labels = np.concatenate([np.arange(20) % 4, np.arange(test) % 4])
    if says is None:
        assert len(dealt(labels, test, clients, each)) == clients
        return
    with pytest.raises(UsageError, match=says):
        dealt(labels, test, clients, each)


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 28)])
def test_the_embedded_digits_stand_in(channels: int, size: int, tmp_path: Path) -> None:
    pool = Digits(channels, size, test=297).load(tmp_path, 0)
    federation = made(pool, ClassShards(5), clients=20)
    assert federation.x.shape[1:] == (channels, size, size) and len(federation.test) == 297
    assert len(np.concatenate(federation.support)) == 1500 and len(np.concatenate(federation.query)) == 297


# ---- federations


def pool(n: int = 400, test: int = 100) -> Source:
    labels = np.arange(n + test) % 10
    return Source(torch.zeros(n + test, 1, 2, 2, dtype=torch.uint8), labels, None, 10, "0" * 16, test=test)


def made(source: Source, partition: Any, *, clients: int = 10, **options: Any) -> Federation:
    return build(
        source,
        partition,
        **{"clients": clients, "training_clients": clients, "query": "partition", "seed": 0} | options,
    )


@dataclass(frozen=True)
class Fixed:
    """A user's dealer that says what it is told to say."""

    hands: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]
    shares: bool = False

    def deal(self, labels: np.ndarray, kind: Any, test: int, clients: int, seed: int) -> list[Hand]:
        return [(np.array(support), np.array(query)) for support, query in self.hands]


def test_clients_adapt_and_are_scored_on_what_they_are_dealt() -> None:
    source = pool()
    federation = made(source, ClassShards(2))
    hands = ClassShards(2).deal(source.labels, None, 100, 10, 0)
    for client, (support, scored) in enumerate(hands):
        order = stream(0, "query", client).permutation(len(support))
        assert np.array_equal(federation.support[client], support[order])
        assert np.array_equal(federation.query[client], scored)
    assert np.array_equal(federation.test, np.arange(400, 500)) and federation.training.all()


def test_a_dealer_sees_the_whole_pool() -> None:
    seen = []

    @dataclass(frozen=True)
    class Spy(Fixed):
        def deal(self, labels: np.ndarray, kind: Any, test: int, clients: int, seed: int) -> list[Hand]:
            seen.append((len(labels), len(kind), test, clients, seed))
            return super().deal(labels, kind, test, clients, seed)

    source = replace(pool(), kind=np.arange(500))
    made(source, Spy((((0, 1), (400,)), ((2,), (3, 499)))), clients=2, seed=7)
    assert seen == [(500, 500, 100, 2, 7)]


GOOD = ((0, 1), (400,))


@pytest.mark.parametrize(
    ("hands", "says"),
    [
        ((GOOD,), "1 clients instead of 2"),
        ((GOOD, ((), (401,))), "client 1 without a support row"),
        ((GOOD, ((2,), ())), "client 1 without a query row"),
        ((GOOD, ((2, 400), (401,))), r"support rows of client 1 are not integers in 0\.\.399"),
        ((GOOD, ((2,), (500,))), r"query rows of client 1 are not integers in 0\.\.499"),
        ((GOOD, ((-1,), (401,))), r"0\.\.399"),
        ((GOOD, ((2.0,), (401,))), r"not integers"),
        ((GOOD, ((2, 2), (401,))), "client 1 a row twice"),
        ((GOOD, ((2, 3), (3,))), "client 1 a row twice"),
        ((GOOD, ((1, 2), (401,))), "to two clients"),
        ((GOOD, ((2, 3), (400,))), "to two clients"),
        ((GOOD, ((2, 3), (0,))), "to two clients"),
    ],
)
def test_a_dealer_that_breaks_its_promise(hands: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        made(pool(), Fixed(hands), clients=2)
    if "two clients" in says:
        federation = made(pool(), Fixed(hands, shares=True), clients=2)
        assert [len(rows) for rows in federation.support] == [2, 2]
    else:
        with pytest.raises(UsageError, match=says):
            made(pool(), Fixed(hands, shares=True), clients=2)


def test_the_query_and_the_partition_must_go_together() -> None:
    with pytest.raises(UsageError, match=r"class-shards or letter-users; Shards does not"):
        made(pool(), Shards(20))
    for query in (0.2, "test-split"):
        for partition in (ClassShards(2), LetterUsers()):
            with pytest.raises(UsageError, match=rf'{type(partition).__name__} .*query = "partition"'):
                made(pool(), partition, query=query)


@settings(max_examples=20)
@given(seed=st.integers(0, 99), validation=st.floats(0.01, 0.6))
def test_validation_takes_rows_of_the_support(seed: int, validation: float) -> None:
    plain = made(pool(), ClassShards(2), seed=seed)
    federation = made(pool(), ClassShards(2), seed=seed, validation=validation)
    for before, support, scored in zip(plain.support, federation.support, federation.query, strict=True):
        assert len(scored) == max(1, round(validation * len(before)))
        assert support.tolist() == [row for row in before if row not in set(scored)] and set(scored) <= set(before)
    assert np.array_equal(np.sort(federation.test), np.sort(np.concatenate(federation.query)))


@pytest.mark.data
def test_real_cifar(real: Callable[[Dataset], Path]) -> None:
    for dataset, clients, each in ((CIFAR10(test=True), 1000, 2), (CIFAR100(fine=True), 100, 5)):
        federation = made(dataset.load(real(dataset), 0), ClassShards(each), clients=clients, seed=42)
        assert sum(map(len, federation.support)) == 50_000 and sum(map(len, federation.query)) == 10_000
        assert len(np.unique(np.concatenate(federation.support + federation.query))) == 60_000
        for support, scored in zip(federation.support, federation.query, strict=True):
            assert set(federation.labels[support]) == set(federation.labels[scored])
