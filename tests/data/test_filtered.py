"""pFedVEM's concept drift with the released filter of test rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pflbench.data.federation import Federation, build
from pflbench.data.partitions.slicing import FilteredSlicing, RandomSlicing
from pflbench.data.source import Source
from pflbench.errors import UsageError

TEST = 500


def source(test: int = TEST) -> Source:
    """As CIFAR-100: 20 superclasses of five subclasses with numbers of their own, 50 training and 5 test rows each."""
    random = np.random.default_rng(0)
    above = random.permutation(np.repeat(np.arange(20), 5))
    kind = np.concatenate([random.permutation(np.repeat(np.arange(100), each)) for each in (50, test // 100)])
    return Source(torch.zeros(len(kind), 1, 1, 1, dtype=torch.uint8), above[kind], kind, 20, "made", test)


def divided(partition: Any, query: Any, seed: int, of: Source | None = None, clients: int = 50) -> Federation:
    return build(of or source(), partition, clients=clients, training_clients=clients, query=query, seed=seed)


def test_only_what_clients_are_scored_on_is_another() -> None:
    """The test rows whose superclass is the number of a subclass that the client has; all of them if there is none."""
    shares, whole = [], 0
    for seed in range(8):
        plain = divided(RandomSlicing("concepts"), "test-split", seed)
        filtered = divided(FilteredSlicing(), "partition", seed)
        for a, b in zip(plain.support, filtered.support, strict=True):
            assert np.array_equal(a, b)
        assert np.array_equal(plain.test, filtered.test) and np.array_equal(plain.training, filtered.training)
        for client, (every, kept) in enumerate(zip(plain.query, filtered.query, strict=True)):
            subclasses = set(plain.kind[plain.support[client]].tolist())
            left = [row for row in every.tolist() if int(plain.labels[row]) in subclasses]
            assert kept.tolist() == (left or every.tolist())
            whole += not left
            shares.append(len(left) / len(every))
    # The sheet: four of twenty superclasses on average, none to eleven; a seed has a client without any in 16 %.
    assert np.mean(shares) == pytest.approx(0.2, abs=0.02) and max(shares) <= 12 / 20 and whole <= 8


def test_a_client_whose_test_rows_are_all_filtered_out_keeps_them() -> None:
    """Superclasses 0 and 1 of the subclasses 2 to 5: no number of a superclass is one of a subclass."""
    kind = np.repeat(np.arange(2, 6), 10)
    found = Source(
        torch.zeros(80, 1, 1, 1, dtype=torch.uint8), np.tile((kind - 2) // 2, 2), np.tile(kind, 2), 2, "", 40
    )
    plain, filtered = (
        divided(p, q, 0, found, clients=4)
        for p, q in ((RandomSlicing("concepts"), "test-split"), (FilteredSlicing(), "partition"))
    )
    assert all(np.array_equal(a, b) and len(a) == 20 for a, b in zip(plain.query, filtered.query, strict=True))


def test_what_it_needs() -> None:
    with pytest.raises(UsageError, match="leaves out test rows"):
        divided(FilteredSlicing(), "partition", 0, source(test=0))
    with pytest.raises(UsageError, match='query = "partition"'):
        divided(FilteredSlicing(), "test-split", 0)
    limited = divided(FilteredSlicing(rows=1000), "partition", 0, clients=10)
    assert sum(map(len, limited.support)) == 1000
