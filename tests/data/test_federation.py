from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.data.federation import build, split_clients
from pflbench.data.partition import Dirichlet, Shards
from pflbench.data.source import Source
from pflbench.errors import UsageError


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
