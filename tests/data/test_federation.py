from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.data.federation import Federation, build, split_clients
from pflbench.data.partition import Partition
from pflbench.data.partitions.cafeme import Dirichlet, Shards
from pflbench.data.partitions.slicing import PairSlicing, RandomSlicing
from pflbench.data.source import Normalization, Source
from pflbench.errors import UsageError
from pflbench.rng import stream
from pflbench.testing import tiny_federation


def source(n: int = 400) -> Source:
    labels = np.arange(n) % 10
    return Source(torch.zeros(n, 1, 2, 2, dtype=torch.uint8), labels, None, 10, "0" * 16)


@dataclass(frozen=True)
class Fixed:
    """A user's partition that says what it is told to say."""

    rows: tuple[tuple[int, ...], ...]

    def __call__(self, labels: np.ndarray, kind: np.ndarray | None, clients: int, seed: int) -> list[np.ndarray]:
        return [np.array(rows, dtype=np.int64) for rows in self.rows]


def test_held_out_clients_of_seed_0_are_the_authors() -> None:
    held_out = np.flatnonzero(~split_clients(100, 80, 0))
    assert held_out.tolist() == [1, 2, 7, 8, 11, 13, 16, 23, 41, 47, 48, 52, 54, 63, 66, 78, 80, 87, 91, 94]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), clients=st.integers(1, 10), query=st.floats(0.1, 0.9))
def test_support_and_query_divide_each_clients_rows(seed: int, clients: int, query: float) -> None:
    options = {"clients": clients, "training_clients": 1, "query": query, "seed": seed}
    partition = Dirichlet(alpha=10.0, minimum=10)
    federation = build(source(), partition, **options)  # type: ignore[arg-type]
    again = build(source(), partition, **options)  # type: ignore[arg-type]
    held = partition(federation.labels, None, clients, seed)
    assert federation.training.sum() == 1
    for rows, support, scored, *repeat in zip(
        held, federation.support, federation.query, again.support, again.query, strict=True
    ):
        assert len(scored) == int(query * len(rows))
        assert np.array_equal(np.sort(np.concatenate([support, scored])), np.sort(rows))
        assert support.dtype == scored.dtype == np.int64
        assert np.array_equal(support, repeat[0]) and np.array_equal(scored, repeat[1])


def test_rows_of_one_client_do_not_depend_on_the_others() -> None:
    a = build(
        source(), Fixed((tuple(range(10)), tuple(range(10, 30)))), clients=2, training_clients=1, query=0.2, seed=5
    )
    b = build(
        source(), Fixed((tuple(range(50, 70)), tuple(range(10, 30)))), clients=2, training_clients=1, query=0.2, seed=5
    )
    assert np.array_equal(a.support[1], b.support[1]) and np.array_equal(a.query[1], b.query[1])


def test_the_pool_is_shared_not_copied() -> None:
    pool = source()
    federation = build(pool, Shards(20), clients=10, training_clients=8, query=0.2, seed=0)
    assert federation.x is pool.images and federation.labels is pool.labels
    assert (federation.classes, federation.hash, federation.kind) == (10, "0" * 16, None)


def test_support_is_not_in_the_partitions_order() -> None:
    federation = build(source(), Shards(20), clients=10, training_clients=8, query=0.2, seed=0)
    assert any(np.any(np.diff(rows) < 0) for rows in federation.support)


def test_everyone_may_train() -> None:
    assert split_clients(5, 5, 0).all()


@pytest.mark.parametrize("training", [0, 11])
def test_impossible_numbers_of_training_clients(training: int) -> None:
    with pytest.raises(UsageError, match="training clients"):
        build(source(), Shards(20), clients=10, training_clients=training, query=0.2, seed=0)


@pytest.mark.parametrize("query", [0.0, 1.0, -0.1])
def test_query_must_be_a_share(query: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        build(source(), Shards(20), clients=10, training_clients=8, query=query, seed=0)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (((0, 1, 2, 3, 4), (5, 6, 7, 8)), "Client 1 holds 4 rows.*query row"),
        (((0, 1, 2, 3, 4), ()), "Client 1 holds 0 rows"),
        (((0, 1, 2, 3, 4),), "1 clients instead of 2"),
        (((0, 1, 2, 3, 4), (4, 5, 6, 7, 8)), "two clients"),
        (((0, 1, 2, 3, 4), (5, 6, 7, 8, 400)), r"0\.\.399"),
        (((0, 1, 2, 3, 4), (5, 6, 7, 8, -1)), r"0\.\.399"),
    ],
)
def test_a_partition_that_breaks_its_promise(rows: tuple[tuple[int, ...], ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        build(source(), Fixed(rows), clients=2, training_clients=1, query=0.2, seed=0)


# ---- a test split of the dataset's own


def split_source(n: int = 400, test: int = 100) -> Source:
    return replace(source(n + test), test=test)


def fine_source() -> Source:
    """Two superclasses of three subclasses each, 20 training and 4 test rows per subclass."""
    kind = np.concatenate([np.tile(np.arange(6), 20), np.tile(np.arange(6), 4)])
    images = torch.zeros(144, 1, 2, 2, dtype=torch.uint8)
    return Source(images, kind % 2, kind, 2, "0" * 16, test=24)


def made(pool: Source, partition: Partition, *, clients: int = 10, **options: Any) -> Federation:
    return build(
        pool, partition, **{"clients": clients, "training_clients": clients, "query": "test-split", "seed": 0} | options
    )


def test_test_split_scores_the_clients_labels() -> None:
    pool = split_source()
    federation = made(pool, RandomSlicing())
    for rows, support, scored in zip(
        RandomSlicing()(pool.labels[:400], None, 10, 0), federation.support, federation.query, strict=True
    ):
        own = set(pool.labels[support])
        assert np.array_equal(np.sort(support), np.sort(rows))
        assert len(own) == 5 and scored.tolist() == [r for r in range(400, 500) if pool.labels[r] in own]
        assert support.dtype == scored.dtype == np.int64
    assert np.array_equal(federation.test, np.arange(400, 500)) and federation.test.dtype == np.int64


def test_test_split_scores_the_clients_kinds_where_there_are_any() -> None:
    pool = fine_source()
    federation = made(pool, RandomSlicing(skew="concepts"), clients=6)
    for support, scored in zip(federation.support, federation.query, strict=True):
        assert pool.kind is not None
        assert set(pool.kind[scored]) == set(pool.kind[support]) and len(scored) == 8
        assert set(pool.labels[scored]) == {0, 1} and scored.min() >= 120


def test_test_split_of_pairs() -> None:
    kind = np.concatenate([np.tile(np.arange(8), 30), np.tile(np.arange(8), 5)])
    pool = Source(torch.zeros(280, 1, 2, 2, dtype=torch.uint8), kind % 4, kind, 4, "0" * 16, test=40)
    federation = made(pool, PairSlicing())
    assert {len(rows) for rows in federation.query} == {10}
    assert all(set(kind[q]) == set(kind[s]) for s, q in zip(federation.support, federation.query, strict=True))
    assert len(federation.test) == 40


def test_test_split_orders_support_by_the_clients_own_stream() -> None:
    rows = tuple(range(10, 30))
    a = made(split_source(), Fixed((tuple(range(10)), rows)), clients=2)
    b = made(split_source(), Fixed((tuple(range(50, 70)), rows)), clients=2)
    expected = np.array(rows)[stream(0, "query", 1).permutation(20)]
    assert np.array_equal(a.support[1], expected) and np.array_equal(b.support[1], expected)
    assert np.array_equal(a.query[1], b.query[1])


@pytest.mark.parametrize("query", [0.2, "test-split"])
def test_test_rows_are_never_partitioned(query: Any) -> None:
    pool = split_source()
    federation = made(pool, Shards(20), query=query)
    held = np.concatenate(federation.support if query == "test-split" else federation.support + federation.query)
    assert np.array_equal(np.sort(held), np.arange(400))
    assert np.array_equal(federation.test, np.arange(400, 500))
    with pytest.raises(UsageError, match=r"0\.\.399"):
        made(pool, Fixed((tuple(range(10)), tuple(range(390, 401)))), query=query, clients=2)


def test_the_partition_sees_training_rows_only() -> None:
    seen = []

    def partition(labels: np.ndarray, kind: np.ndarray | None, clients: int, seed: int) -> list[np.ndarray]:
        seen.append((len(labels), None if kind is None else len(kind)))
        return [np.arange(60), np.arange(60, 120)]

    made(fine_source(), partition, clients=2)
    made(fine_source(), partition, clients=2, query=0.2)
    assert seen == [(120, 120)] * 2


def test_without_a_test_split() -> None:
    federation = made(source(), Shards(20), query=0.2)
    assert len(federation.test) == 0 and federation.test.dtype == np.int64
    assert federation.normalization is None
    with pytest.raises(UsageError, match="test split of its own"):
        made(source(), Shards(20))


def test_a_client_whose_types_are_not_tested() -> None:
    pool = replace(split_source(), labels=np.concatenate([np.arange(400) % 10, np.zeros(100, dtype=np.int64)]))
    with pytest.raises(UsageError, match=r"Client 1 holds 2 rows.*none of their types"):
        made(pool, Fixed(((0, 1), (2, 3))), clients=2)


def test_normalization_is_handed_on() -> None:
    normalization = Normalization((0.5,), (0.25,))
    assert made(replace(source(), normalization=normalization), Shards(20), query=0.2).normalization == normalization


# ---- validation


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), validation=st.floats(0.01, 0.6), query=st.sampled_from([0.2, "test-split"]))
def test_validation_takes_rows_of_the_support_for_everything_scored(seed: int, validation: float, query: Any) -> None:
    pool = split_source()
    plain = made(pool, RandomSlicing(cuts="equal"), query=query, seed=seed)
    federation = made(pool, RandomSlicing(cuts="equal"), query=query, seed=seed, validation=validation)
    for before, support, scored in zip(plain.support, federation.support, federation.query, strict=True):
        assert len(scored) == max(1, round(validation * len(before)))
        assert support.tolist() == [row for row in before if row not in set(scored)]  # the order is kept
        assert set(scored) <= set(before) and support.dtype == scored.dtype == np.int64
    assert np.array_equal(np.sort(federation.test), np.sort(np.concatenate(federation.query)))
    assert federation.test.max() < 400


def test_validation_rows_depend_on_no_other_client() -> None:
    rows = tuple(range(10, 30))
    a = made(split_source(), Fixed((tuple(range(10)), rows)), clients=2, validation=0.1)
    b = made(split_source(), Fixed((tuple(range(50, 70)), rows)), clients=2, validation=0.1)
    assert np.array_equal(a.query[1], b.query[1]) and len(a.query[1]) == 2
    assert len(a.query[0]) == 1


def test_validation_needs_two_rows() -> None:
    two = Fixed(((0, 1), (2, 3)))
    federation = made(split_source(), two, clients=2, validation=0.1)
    assert [len(rows) for rows in federation.support + federation.query] == [1, 1, 1, 1]
    with pytest.raises(UsageError, match="Client 1 has 1 support rows"):
        made(split_source(), Fixed(((0, 1), (2,))), clients=2, validation=0.1)
    with pytest.raises(UsageError, match="Client 0 has 2 support rows"):
        made(split_source(), two, clients=2, validation=0.9)


@pytest.mark.parametrize("validation", [-0.1, 1.0, float("nan")])
def test_validation_must_be_a_share(validation: float) -> None:
    with pytest.raises(UsageError, match="validation must lie"):
        made(source(), Shards(20), query=0.2, validation=validation)


def test_a_thousand_clients_share_one_pool() -> None:
    """Clients hold row numbers; the images are there once, also where a run computes with them."""
    from pflbench.engine.simulate import Simulation
    from pflbench.methods.fedavg import FedAvg
    from pflbench.models.mlp import mlp
    from pflbench.testing import tiny_spec

    labels = np.tile(np.arange(10), 1100)
    images = torch.zeros(len(labels), 1, 28, 28, dtype=torch.uint8)
    source = Source(images, labels, None, 10, "generated", test=1000)
    sizes = {"clients": 1000, "training_clients": 1000}
    federation = build(source, RandomSlicing(), **sizes, query="test-split", seed=0)
    spec = tiny_spec(clients=1002).model_copy(update={**sizes, "query": "test-split", "batches": "reshuffled"})
    simulation = Simulation([spec], [federation], FedAvg(), mlp((1, 28, 28), 10))
    assert federation.x is images
    assert simulation.clients.data.task.pool.data_ptr() == images.data_ptr()
    held = [*federation.support, *federation.query]
    assert len(federation.support) == 1000 and sum(rows.nbytes for rows in held) == 8 * (10_000 + 1000 * 500)


def test_rows_that_several_clients_hold_are_counted_once_each() -> None:
    def rows(*numbers: int) -> np.ndarray:
        return np.array(numbers, dtype=np.int64)

    federation = replace(
        tiny_federation(0),
        support=(rows(0, 1, 2), rows(2, 3), rows(2, 4)),
        query=(rows(5), rows(1), rows(9)),
        test=rows(9),
    )
    assert federation.shared == 2  # rows 1 and 2
    alone = replace(federation, support=(rows(0), rows(1), rows(2)), query=(rows(9), rows(9), rows(8)))
    assert alone.shared == 0  # many may be scored on one test row
