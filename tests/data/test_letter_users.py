"""FedEC's users of three letters: as the sheet says, disjoint as far as possible, and as the released script has them."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.data.datasets.digits import Digits
from pflbench.data.federation import build
from pflbench.data.partition import Hand
from pflbench.data.partitions.fedec import LetterUsers
from pflbench.errors import UsageError
from pflbench.rng import stream

LETTERS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 4000))
"""As many of each letter as the script keeps."""


def deal(partition: LetterUsers, labels: np.ndarray = LETTERS, clients: int = 150, seed: int = 0) -> list[Hand]:
    return partition.deal(labels, None, 0, clients, seed)


def all_rows(hand: Hand) -> np.ndarray:
    return np.concatenate(hand)


def one_by_one(mode: str, labels: np.ndarray, counts: np.ndarray, seed: int) -> list[tuple[list[int], list[int]]]:
    """The sheet's construction, an image at a time: support and query of as many users as there are counts."""
    names = np.unique(labels).tolist()
    lists = [stream(seed, "letter-users", "class", n).permutation(np.flatnonzero(labels == n)).tolist() for n in names]
    at = [0] * len(names)
    held: set[int] = set()
    tested: set[int] = set()
    users = []
    for user, count in enumerate(counts.tolist()):
        drawn: list[int] = []
        for c in (user % len(names), (user + 1) % len(names), (user + 2) % len(names)):
            if mode == "released":
                at[c] = 0
            wanted = len(drawn) + count
            while len(drawn) < wanted:
                image = lists[c][at[c] % len(lists[c])]
                at[c] += 1
                if mode == "released" or image not in tested:
                    drawn.append(image)
        order = [drawn[i] for i in stream(seed, "letter-users", "user", user).permutation(len(drawn))]
        may = [image for image in order if mode == "released" or image not in held]
        query = may[len(may) - (len(order) - int(0.9 * len(order))) :]
        users.append(([image for image in order if image not in query], query))
        held |= set(order)
        tested |= set(query)
    return users


@pytest.mark.parametrize("mode", ["disjoint", "released"])
def test_users_are_as_the_sheet_says(mode: str) -> None:
    partition = LetterUsers(mode)  # type: ignore[arg-type]
    counts = partition.per_class(0)
    assert counts.shape == (200,) and counts.min() >= 33
    for user, (support, scored) in enumerate(deal(partition)):
        n = 3 * counts[user]
        assert len(support) == int(0.9 * n) and len(scored) == n - int(0.9 * n)
        assert support.dtype == scored.dtype == np.int64
        found = np.bincount(LETTERS[all_rows((support, scored))], minlength=10)
        assert set(np.flatnonzero(found)) == {user % 10, (user + 1) % 10, (user + 2) % 10}
        assert set(found[found > 0]) == {counts[user]}
        assert len(np.unique(all_rows((support, scored)))) == n


def wrapped(partition: LetterUsers, labels: np.ndarray, clients: int, seed: int) -> int:
    """How often a client is dealt a row that an earlier one holds."""
    rows = np.concatenate([part for hand in partition.deal(labels, None, 0, clients, seed) for part in hand])
    return len(rows) - len(np.unique(rows))


def test_sizes_are_log_normal() -> None:
    """Users hold s rows less a remainder of 0, 1 or 2, where log(s - 100) is normal with mean 4 and deviation 1."""
    rows = np.concatenate([3 * LetterUsers(users=2000).per_class(seed) for seed in range(5)])
    assert rows.mean() == pytest.approx(100 + np.exp(4.5) - 1, abs=5 * np.exp(4.5) * (np.e - 1) ** 0.5 / 100)
    assert np.median(rows) == pytest.approx(100 + np.exp(4) - 1, abs=4)
    assert np.mean(rows >= 100 + np.exp(5)) == pytest.approx(0.159, abs=0.015)  # one deviation above
    assert np.mean(rows < 100 + np.exp(3) - 1) == pytest.approx(0.159, abs=0.02)


def test_totals_of_150_users() -> None:
    """FedEC sheet §2.3: 28.3k for 150 users, with a deviation of 1.4k; the test rows are a tenth and half a row more."""
    totals = [3 * LetterUsers().per_class(seed)[:150].sum() for seed in range(40)]
    assert np.mean(totals) == pytest.approx(28_300, abs=4 * 1400 / 40**0.5)
    assert 900 < np.std(totals) < 2000
    hands = deal(LetterUsers(), seed=3)
    total, test = sum(len(all_rows(hand)) for hand in hands), sum(len(scored) for _, scored in hands)
    assert 61 <= test - 0.1 * total <= 75


def test_disjoint_users_read_on() -> None:
    hands = deal(LetterUsers())
    every = np.concatenate([all_rows(hand) for hand in hands])
    assert len(np.unique(every)) == len(every)
    assert wrapped(LetterUsers(), LETTERS, 150, 0) == 0
    # What a class's first users read, one after the other, is what one large user reads from the beginning.
    users = [user for user in range(12) if 0 in {user % 10, (user + 1) % 10, (user + 2) % 10}]
    read = np.concatenate([all_rows(hands[user]) for user in users])
    read = set(read[LETTERS[read] == 0])
    released = [all_rows(hand) for hand in deal(LetterUsers("released"), clients=200)]
    longest = max(({*rows[LETTERS[rows] == 0]} for rows in released), key=len)
    shorter, longer = sorted((read, longest), key=len)
    assert len(shorter) > 100 and shorter <= longer


def test_released_users_share_the_beginning_of_a_class() -> None:
    hands = [all_rows(hand) for hand in deal(LetterUsers("released"))]
    for letter in range(10):
        mine = [set(rows[LETTERS[rows] == letter]) for rows in hands]
        mine = sorted((rows for rows in mine if rows), key=len)
        assert len(mine) == 45
        assert all(shorter <= longer for shorter, longer in pairwise(mine))
    assert set(hands[3]) & set(hands[13])
    # So test rows of some are what others train on.
    dealt = deal(LetterUsers("released"))
    trained = set(np.concatenate([support for support, _ in dealt]))
    assert len(trained & set(np.concatenate([scored for _, scored in dealt]))) > 100
    assert [(a.tolist(), b.tolist()) for a, b in dealt] == one_by_one(
        "released", LETTERS, LetterUsers().per_class(0)[:150], 0
    )
    rows = np.concatenate(hands)
    assert wrapped(LetterUsers("released"), LETTERS, 150, 0) == len(rows) - len(set(rows)) > 0


@settings(max_examples=60)
@given(
    per_class=st.integers(60, 300),
    classes=st.integers(3, 10),
    clients=st.integers(1, 30),
    scale=st.sampled_from([None, 0.5, 0.1]),
    seed=st.integers(0, 999),
)
def test_disjoint_users_share_only_what_nobody_is_scored_on(
    per_class: int, classes: int, clients: int, scale: float | None, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), per_class))
    partition = LetterUsers(scale=scale)
    try:
        hands = deal(partition, labels, clients, seed)
    except UsageError as error:
        found = re.search(r"at most (\d+) clients", str(error))
        if found is None:
            assert "larger dataset" in str(error)
            return
        clients = int(found[1])  # as many as the message promises
        hands = deal(partition, labels, clients, seed)
    counts = partition.per_class(seed)
    assert [(a.tolist(), b.tolist()) for a, b in hands] == one_by_one("disjoint", labels, counts[:clients], seed)
    held = np.zeros(len(labels), dtype=int)
    again = 0
    for user, (support, scored) in enumerate(hands):
        mine = np.concatenate([support, scored])
        assert len(np.unique(mine)) == len(mine) == 3 * counts[user]
        assert len(support) == len(mine) * 9 // 10
        assert not held[scored].any()
        for name in np.unique(labels[mine]):
            repeated = mine[(labels[mine] == name) & (held[mine] > 0)]
            # Nothing is read again before all of its class is read.
            if len(repeated):
                assert np.all((held > 0)[labels == name] | np.isin(np.flatnonzero(labels == name), mine))
        again += int((held[mine] > 0).sum())
        held[mine] += 1
    assert all(held[scored].max() == 1 for _, scored in hands)
    assert wrapped(partition, labels, clients, seed) == again == held.sum() - np.count_nonzero(held)


def test_small_pools_do_wrap() -> None:
    labels = np.repeat(np.arange(10), 400)
    assert wrapped(LetterUsers(), labels, 20, 0) > 0


@settings(max_examples=20)
@given(mode=st.sampled_from(["disjoint", "released"]), fewer=st.integers(1, 39), seed=st.integers(0, 99))
def test_more_clients_change_no_earlier_one(mode: str, fewer: int, seed: int) -> None:
    partition = LetterUsers(mode, scale=0.2)  # type: ignore[arg-type]
    labels = LETTERS[:4000]
    for few, many in zip(deal(partition, labels, fewer, seed), deal(partition, labels, 40, seed), strict=False):
        assert np.array_equal(few[0], many[0]) and np.array_equal(few[1], many[1])


def test_more_users_change_no_size() -> None:
    assert np.array_equal(LetterUsers(users=150).per_class(5), LetterUsers().per_class(5)[:150])


def test_seeds_and_users_differ() -> None:
    assert not np.array_equal(LetterUsers().per_class(0), LetterUsers().per_class(1))
    a, b = deal(LetterUsers(scale=0.1), clients=2, seed=0), deal(LetterUsers(scale=0.1), clients=2, seed=1)
    assert not np.isin(a[0][0], b[0][0]).all()
    letters = LETTERS[a[0][0]]
    assert np.any(np.diff(letters) < 0)  # a user's rows are shuffled, too


def test_at_most_4000_of_a_class_are_used() -> None:
    labels = np.repeat(np.arange(3), 4100)
    rows = np.concatenate([all_rows(hand) for hand in deal(LetterUsers(), labels, 69, 0)])
    assert len(rows) > 12_000
    assert np.bincount(labels[np.unique(rows)]).tolist() == [4000] * 3


def test_scaling_down() -> None:
    full, half = LetterUsers().per_class(0), LetterUsers(scale=0.5).per_class(0)
    assert np.all((half == full // 2) | (half == (full + 1) // 2)) and half.min() >= 16
    assert set(LetterUsers(scale=0.001).per_class(0)) == {2}
    assert np.array_equal(LetterUsers(scale=1.0).per_class(0), full)
    support, scored = deal(LetterUsers(scale=0.001), clients=1)[0]
    assert (len(support), len(scored)) == (5, 1)


@pytest.mark.parametrize("mode", ["disjoint", "released"])
def test_the_embedded_digits_stand_in(mode: str, tmp_path: Path) -> None:
    for test in (None, 297):
        pool = Digits(test=test).load(tmp_path, 0)
        partition = LetterUsers(mode, scale=0.1)  # type: ignore[arg-type]
        for validation in (0.0, 0.1):
            federation = build(
                pool,
                partition,
                clients=20,
                training_clients=20,
                query="partition",
                seed=0,
                validation=validation,
            )
            assert max(rows.max() for rows in federation.support + federation.query) < 1797 - (test or 0)
        assert len(build(pool, partition, clients=20, training_clients=20, query="partition", seed=0).test) == (
            test or 0
        )


@pytest.mark.parametrize(
    ("partition", "labels", "clients", "says"),
    [
        (LetterUsers(users=20), LETTERS, 21, "users = 20"),
        (LetterUsers(), LETTERS % 2, 10, "3 classes, and there are 2"),
        (
            LetterUsers("released"),
            np.arange(300) % 10,
            10,
            r"Client 0 needs \d+ rows of class 0, and 30.*larger dataset",
        ),
        (LetterUsers(), np.arange(2500) % 10, 150, r"at most \d+ clients, or a smaller scale than 1\.0"),
        (LetterUsers("released"), np.arange(2500) % 10, 150, r"Client (\d+) needs .* at most \1 clients"),
        (LetterUsers(), LETTERS, 0, "cannot be divided"),
    ],
)
def test_impossible_users(partition: LetterUsers, labels: np.ndarray, clients: int, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        deal(partition, labels, clients)
