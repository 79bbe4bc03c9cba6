"""The partition natural: one kind a client, drawn among those large enough, and dealt its own test rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pflbench.data.datasets.digits import Digits
from pflbench.data.federation import build
from pflbench.data.partition import Dealer
from pflbench.data.partitions.cafeme import Natural
from pflbench.data.source import Source
from pflbench.errors import UsageError

KINDS = st.lists(st.sampled_from([0, 1, 2, 5, 9]), min_size=1, max_size=60)


@given(KINDS, st.integers(1, 6), st.integers(1, 8), st.integers(0, 3))
def test_each_client_is_a_whole_kind(kinds: list[int], clients: int, minimum: int, seed: int) -> None:
    kind = np.array(kinds)
    labels = np.zeros(len(kind), dtype=np.int64)
    fit = [k for k in np.unique(kind) if (kind == k).sum() >= minimum]
    if clients > len(fit):
        with pytest.raises(UsageError, match=f"{clients} clients are not possible, as {len(fit)} of"):
            Natural(minimum)(labels, kind, clients, seed)
        return
    held = Natural(minimum)(labels, kind, clients, seed)
    owners = [kind[rows[0]] for rows in held]
    assert len(set(owners)) == len(held) == clients and set(owners) <= set(fit)
    for owner, rows in zip(owners, held, strict=True):
        assert np.array_equal(rows, np.flatnonzero(kind == owner)) and rows.dtype == np.int64
    if clients == len(fit):
        assert owners == fit
    again = Natural(minimum)(labels, kind, clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(held, again, strict=True))


@given(KINDS, KINDS, st.integers(1, 6), st.integers(1, 8), st.integers(0, 3))
def test_dealt_each_its_own_test_rows(
    kinds: list[int], tested: list[int], clients: int, minimum: int, seed: int
) -> None:
    kind, test = np.array(kinds + tested), len(tested)
    labels = np.zeros(len(kind), dtype=np.int64)
    own = len(kinds)
    fit = [k for k in np.unique(kind) if (kind[:own] == k).sum() >= minimum and (kind[own:] == k).any()]
    if clients > len(fit):
        with pytest.raises(UsageError, match="training rows and a test row"):
            Natural(minimum).deal(labels, kind, test, clients, seed)
        return
    hands = Natural(minimum).deal(labels, kind, test, clients, seed)
    owners = [kind[support[0]] for support, _ in hands]
    assert len(set(owners)) == len(hands) == clients and set(owners) <= set(fit)
    for owner, (support, query) in zip(owners, hands, strict=True):
        rows = np.flatnonzero(kind == owner)
        assert np.array_equal(support, rows[rows < own]) and np.array_equal(query, rows[rows >= own])


def test_seeds_draw_different_kinds_and_every_kind_is_drawn() -> None:
    kind = np.repeat(np.arange(20), 3)
    drawn = [tuple(kind[rows[0]] for rows in Natural()(kind, kind, 5, seed)) for seed in range(30)]
    assert len(set(drawn)) == 30 and set(np.concatenate(drawn)) == set(range(20))
    assert any(list(one) != sorted(one) for one in drawn)


def test_what_cannot_be() -> None:
    rows = np.zeros(5, dtype=np.int64)
    with pytest.raises(UsageError, match="needs a dataset whose examples have kinds"):
        Natural()(rows, None, 1, 0)
    with pytest.raises(UsageError, match="use a dataset that has one"):
        Natural().deal(rows, rows, 0, 1, 0)
    with pytest.raises(UsageError, match="0 clients are not possible"):
        Natural()(rows, rows, 0, 0)
    assert isinstance(Natural(), Dealer)


# ---- in a federation, on digits that have writers


def source(test: int | None = None) -> Source:
    return Digits(size=8, writers=30, test=test).load(Path(), 0)


def test_digits_have_writers_of_unequal_sizes() -> None:
    kind = source().kind
    assert kind is not None and kind.dtype == np.int64
    sizes = np.bincount(kind)
    assert len(sizes) == 30 and sizes.sum() == 1797 and sizes.min() >= 1
    assert sizes.max() > 1.5 * np.median(sizes)
    assert np.array_equal(kind, source().kind) and source().hash == Digits().load(Path(), 0).hash
    assert np.bincount(Digits(writers=1797).load(Path(), 0).kind).tolist() == [1] * 1797
    for options in ({"coarse": True}, {"sources": 2}, {"coarse": True, "sources": 2}):
        with pytest.raises(UsageError, match="exclude each other"):
            Digits(writers=3, **options)  # type: ignore[arg-type]


def test_a_federation_by_share_and_by_test_split() -> None:
    by_share = build(source(), Natural(40), clients=15, training_clients=10, query=0.2, seed=0)
    kind = source().kind
    assert kind is not None
    for support, query in zip(by_share.support, by_share.query, strict=True):
        assert len(support) + len(query) >= 40 and len(set(kind[support]) | set(kind[query])) == 1
        assert len(query) == int(0.2 * (len(support) + len(query)))
    dealt = build(source(400), Natural(20), clients=15, training_clients=10, query="partition", seed=0)
    written = source(400).kind
    assert written is not None
    for support, query in zip(dealt.support, dealt.query, strict=True):
        assert support.max() < 1397 <= query.min() and set(written[support]) == set(written[query])
    with pytest.raises(UsageError, match="kinds"):
        build(replace(source(), kind=None), Natural(), clients=3, training_clients=3, query=0.2, seed=0)


def test_kinds_with_test_rows_alone_are_named_as_unsupported() -> None:
    kind = np.array([0, 0, 1, 2, 2, 3])  # the last three are test rows of other writers
    with pytest.raises(
        UsageError, match="2 kinds have test rows only: clients without training rows are not supported"
    ):
        Natural().deal(kind, kind, 3, 2, 0)
    with pytest.raises(UsageError) as few:
        Natural().deal(kind, np.array([0, 0, 1, 0, 0, 1]), 3, 3, 0)
    assert "test rows only" not in str(few.value)
