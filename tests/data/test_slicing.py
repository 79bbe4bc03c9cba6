"""pFedVEM's partitions against its sheet (§3, §13). Labels and fine classes are made up; no fact needs an image."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pflbench.data.partition import Partition
from pflbench.data.partitions.slicing import PairSlicing, RandomSlicing, size_law
from pflbench.errors import UsageError
from pflbench.rng import stream

LIGHT = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**40)


def repeated(classes: int, each: int, seed: int = 0) -> np.ndarray:
    """`each` rows of every class, in random order."""
    return stream(seed, "test").permutation(np.repeat(np.arange(classes), each))


def drift(superclasses: int, subclasses: int, each: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(labels, kind); subclasses of a superclass do not have neighboring numbers."""
    kind = repeated(superclasses * subclasses, each, seed)
    above = stream(seed, "above").permutation(np.repeat(np.arange(superclasses), subclasses))
    return above[kind], kind


def pairs(counts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """(labels, kind) with counts[source][label] rows."""
    width = len(counts[0])
    kind = stream(0, "test").permutation(np.repeat(np.arange(len(counts) * width), np.ravel(counts)))
    return kind % width, kind


def sizes(held: list[np.ndarray]) -> np.ndarray:
    return np.array([len(rows) for rows in held])


def types_of(held: list[np.ndarray], types: np.ndarray) -> list[Counter[int]]:
    return [Counter(types[rows].tolist()) for rows in held]


def promises(
    partition: Partition, labels: np.ndarray, kind: np.ndarray | None, clients: int, seed: int
) -> list[np.ndarray]:
    """What every partition promises, also: nobody is left without a row, inputs stay as they are."""
    before = labels.copy(), None if kind is None else kind.copy()
    held = partition(labels, kind, clients, seed)
    every = np.concatenate(held)
    assert len(held) == clients
    assert all(rows.dtype == np.int64 and len(rows) for rows in held)
    assert len(np.unique(every)) == len(every)
    assert 0 <= every.min() and every.max() < len(labels)
    again = partition(labels.copy(), None if kind is None else kind.copy(), clients, seed)
    assert all(np.array_equal(a, b) for a, b in zip(held, again, strict=True))
    assert np.array_equal(labels, before[0])
    if kind is not None and before[1] is not None:
        assert np.array_equal(kind, before[1])
    return held


# ---- random slicing: who holds what, and how much


@LIGHT
@given(
    half=st.integers(1, 4),
    groups=st.integers(1, 6),
    spare=st.integers(0, 20),
    seed=seeds,
    cuts=st.sampled_from(["random", "equal"]),
)
def test_label_skew_pairs_clients_with_complementary_halves(
    half: int, groups: int, spare: int, seed: int, cuts: Any
) -> None:
    labels = repeated(2 * half, groups + spare)
    held = promises(RandomSlicing(cuts=cuts), labels, None, 2 * groups, seed)
    found = types_of(held, labels)
    assert sum(map(len, held)) == len(labels)
    for a, b in zip(found[::2], found[1::2], strict=True):
        assert len(a) == len(b) == half and set(a) | set(b) == set(range(2 * half))
        assert len({*a.values(), *b.values()}) == 1  # one block length for all types of a group
    assert set(Counter(t for client in found for t in client).values()) == {groups}


@LIGHT
@given(
    superclasses=st.integers(1, 4),
    subclasses=st.integers(1, 4),
    groups=st.integers(1, 5),
    spare=st.integers(0, 20),
    seed=seeds,
)
def test_concept_drift_gives_every_subclass_once_per_group(
    superclasses: int, subclasses: int, groups: int, spare: int, seed: int
) -> None:
    labels, kind = drift(superclasses, subclasses, groups + spare)
    held = promises(RandomSlicing(skew="concepts"), labels, kind, subclasses * groups, seed)
    found = types_of(held, kind)
    assert sum(map(len, held)) == len(labels)
    above = dict(zip(kind.tolist(), labels.tolist(), strict=True))
    for group in range(groups):
        members = found[group * subclasses : (group + 1) * subclasses]
        assert all(sorted(above[t] for t in client) == list(range(superclasses)) for client in members)
        assert sorted(t for client in members for t in client) == list(range(superclasses * subclasses))
        assert len({n for client in members for n in client.values()}) == 1


@LIGHT
@given(classes=st.integers(1, 6), clients=st.integers(1, 8), spare=st.integers(0, 20), seed=seeds)
def test_without_skew_everyone_holds_equally_much_of_every_type(
    classes: int, clients: int, spare: int, seed: int
) -> None:
    kind = repeated(classes, clients + spare)
    held = promises(RandomSlicing(skew="none"), kind % 2, kind, clients, seed)
    assert sum(map(len, held)) == len(kind)
    for client in types_of(held, kind):
        assert set(client) == set(range(classes)) and len(set(client.values())) == 1


@LIGHT
@given(counts=st.lists(st.integers(3, 30), min_size=4, max_size=4), seed=seeds)
def test_unequal_types_are_cut_down_to_the_smallest(counts: list[int], seed: int) -> None:
    labels = np.repeat(np.arange(4), counts)
    held = promises(RandomSlicing(), labels, None, 6, seed)
    assert Counter(labels[np.concatenate(held)].tolist()) == dict.fromkeys(range(4), min(counts))
    assert np.array_equal(sizes(held)[::2], sizes(held)[1::2])


def test_steps_on_a_small_case() -> None:
    """The sheet's two steps spelled out: groups permute the labels, cuts are shared, the last block goes first."""
    labels = np.array([0, 1, 2, 3] * 5)
    random = stream(7, "types")
    hands = [half for _ in range(2) for half in np.split(random.permutation(4), 2)]
    random = stream(7, "slices")
    rows = [random.permutation(np.arange(label, 20, 4)) for label in range(4)]
    cut = int(random.choice(4, 1, replace=False)[0]) + 1
    expected = [
        *(np.concatenate([rows[t][cut:] for t in sorted(hand)]) for hand in hands[:2]),
        *(np.concatenate([rows[t][:cut] for t in sorted(hand)]) for hand in hands[2:]),
    ]
    found = RandomSlicing()(labels, None, 4, 7)
    assert [r.tolist() for r in found] == [r.tolist() for r in expected]


@pytest.mark.parametrize("clients", [50, 100, 200])
def test_cifar10(clients: int) -> None:
    labels = repeated(10, 5000)
    held = promises(RandomSlicing(), labels, None, clients, 42)
    n = sizes(held)
    assert (n.sum(), len(np.unique(n)) <= clients // 2) == (50_000, True)
    assert np.all(n % 5 == 0) and np.array_equal(n[::2], n[1::2])
    assert {len(client) for client in types_of(held, labels)} == {5}


@pytest.mark.parametrize("clients", [50, 100, 200])
def test_cifar100(clients: int) -> None:
    labels, kind = drift(20, 5, 500)
    held = promises(RandomSlicing(skew="concepts"), labels, kind, clients, 42)
    n = sizes(held)
    assert n.sum() == 50_000 and np.all(n % 20 == 0)
    assert np.all(n.reshape(-1, 5) == n[::5, None])
    assert all(set(Counter(labels[rows].tolist()).values()) == {len(rows) // 20} for rows in held)
    assert {len(client) for client in types_of(held, kind)} == {20}


def test_sun397_sizes() -> None:
    labels, kind = drift(3, 50, 80)
    partition = RandomSlicing(skew="concepts")
    assert set(sizes(partition(labels, kind, 50, 42))) == {240}
    for seed in range(42, 47):
        n = sizes(promises(partition, labels, kind, 100, seed)).reshape(2, 50)
        assert np.all(n == n[:, :1]) and n[0, 0] + n[1, 0] == 240 and n[0, 0] % 3 == 0
    assert sizes(partition(labels, kind, 200, 42)).sum() == 12_000


def test_homogeneous_cifar100() -> None:
    labels, kind = drift(20, 5, 500)
    held = promises(RandomSlicing(skew="none"), labels, kind, 50, 42)
    assert {len(client) for client in types_of(held, kind)} == {100}
    assert len(np.unique(sizes(held))) > 20 and sizes(held).mean() == 1000


def test_equal_cuts() -> None:
    labels, kind = drift(20, 5, 500)
    assert set(sizes(RandomSlicing(skew="concepts", cuts="equal")(labels, kind, 50, 42))) == {1000}
    few = repeated(2, 11)
    assert Counter(sizes(RandomSlicing(cuts="equal")(few, None, 8, 0)).tolist()) == {3: 6, 2: 2}


@pytest.mark.parametrize(("rows", "mean"), [(5_000, 50), (10_000, 100)])
def test_limited_data(rows: int, mean: int) -> None:
    labels = repeated(10, 5000)
    held = promises(RandomSlicing(rows=rows), labels, None, 100, 42)
    assert sizes(held).mean() == mean
    assert Counter(labels[np.concatenate(held)].tolist()) == dict.fromkeys(range(10), rows // 10)


def test_limited_data_keep_the_types_and_are_nested() -> None:
    labels = repeated(10, 400)
    small, large, whole = (RandomSlicing(rows=rows)(labels, None, 20, 3) for rows in (500, 1000, None))
    assert set(np.concatenate(small)) < set(np.concatenate(large)) < set(np.concatenate(whole))
    assert [set(c) for c in types_of(small, labels)] == [set(c) for c in types_of(whole, labels)]


@pytest.mark.parametrize("skew", ["labels", "concepts", "none"])
def test_seeds_differ(skew: Any) -> None:
    labels, kind = drift(4, 2, 30)
    a, b = (RandomSlicing(skew=skew)(labels, kind, 8, seed) for seed in (0, 1))
    assert not np.array_equal(np.concatenate(a), np.concatenate(b))
    if skew != "none":
        assert types_of(a, kind) != types_of(b, kind)


def test_groups_divide_the_types_differently() -> None:
    labels, kind = drift(4, 3, 30)
    found = types_of(RandomSlicing(skew="concepts")(labels, kind, 30, 0), kind)
    assert len({frozenset(client) for client in found[::3]}) > 5


def test_global_random_state_is_neither_read_nor_written() -> None:
    labels, kind = pairs([[40] * 4] * 3)
    before = repr(np.random.get_state())  # noqa: NPY002
    held = [p(labels, kind, 8, 0) for p in (RandomSlicing(), PairSlicing())]
    assert repr(np.random.get_state()) == before  # noqa: NPY002
    np.random.random(7)  # noqa: NPY002
    again = [p(labels, kind, 8, 0) for p in (RandomSlicing(), PairSlicing())]
    assert all(np.array_equal(np.concatenate(a), np.concatenate(b)) for a, b in zip(held, again, strict=True))


# ---- the law of the sizes

# Types per client, types' rows, holders, then the sheet's mean, sd and 5/25/50/75/95 % quantiles.
TABLE = {
    "fmnist-50": (5, 6000, 25, 1200, 1150, (65, 360, 855, 1685, 3515)),
    "fmnist-100": (5, 6000, 50, 600, 586, (35, 175, 420, 835, 1775)),
    "fmnist-200": (5, 6000, 100, 300, 295, (20, 90, 210, 415, 890)),
    "cifar10-50": (5, 5000, 25, 1000, 958, (55, 300, 710, 1400, 2930)),
    "cifar10-100": (5, 5000, 50, 500, 488, (30, 150, 350, 695, 1480)),
    "cifar10-200": (5, 5000, 100, 250, 245, (15, 75, 175, 345, 740)),
    "cifar100-50": (20, 500, 10, 1000, 895, (60, 320, 740, 1420, 2820)),
    "cifar100-100": (20, 500, 20, 500, 466, (40, 160, 360, 700, 1440)),
    "cifar100-200": (20, 500, 40, 250, 234, (20, 80, 180, 340, 720)),
    "sun397-50": (3, 80, 1, 240, 0, (240, 240, 240, 240, 240)),
    "sun397-100": (3, 80, 2, 120, 68, (12, 60, 120, 180, 228)),
    "sun397-200": (3, 80, 4, 60, 45, (6, 24, 51, 87, 150)),
}


def quantile(law: np.ndarray, q: float) -> int:
    return int(np.searchsorted(np.cumsum(law), q - 1e-12)) + 1


@pytest.mark.parametrize(("each", "n_type", "holders", "mean", "sd", "quantiles"), TABLE.values(), ids=TABLE.keys())
def test_law_is_the_sheets_table(
    each: int, n_type: int, holders: int, mean: int, sd: int, quantiles: tuple[int, ...]
) -> None:
    law = size_law(n_type, holders)
    n = each * np.arange(1, len(law) + 1)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert law @ n == pytest.approx(mean, abs=1e-6)
    assert math.sqrt(max(0.0, law @ (n - mean) ** 2)) == pytest.approx(sd, abs=0.6)  # 1150 stands for 1150.52
    assert tuple(each * quantile(law, q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)) == quantiles


@pytest.mark.parametrize(("rows", "mean", "median"), [(5_000, 50, 35), (10_000, 100, 70)])
def test_law_of_limited_data(rows: int, mean: int, median: int) -> None:
    law = size_law(rows // 10, 50)
    assert 5 * law @ np.arange(1, len(law) + 1) == pytest.approx(mean)
    assert 5 * quantile(law, 0.5) == median


@given(data=st.data(), n_type=st.integers(1, 60))
def test_law_is_the_ratio_of_binomials(data: st.DataObject, n_type: int) -> None:
    holders = data.draw(st.integers(1, n_type))
    law = size_law(n_type, holders)
    if holders == 1:
        exact = [Fraction(int(k == n_type)) for k in range(1, n_type + 1)]
    else:
        whole = math.comb(n_type - 1, holders - 1)
        exact = [Fraction(math.comb(n_type - k - 1, holders - 2), whole) for k in range(1, n_type - holders + 2)]
    assert law.dtype == np.float64
    assert law == pytest.approx([float(p) for p in exact], rel=1e-12)


def test_law_of_large_counts_is_finite() -> None:
    law = size_law(60_000, 2_000)
    assert np.isfinite(law).all() and law.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("holders", [0, 11])
def test_law_of_impossible_cuts(holders: int) -> None:
    with pytest.raises(UsageError, match="cannot be cut"):
        size_law(10, holders)


@pytest.mark.parametrize("client", [0, 5, 9])
def test_sizes_follow_the_law(client: int) -> None:
    """Chi-square over 1500 partitions. One client of each: the sizes within a partition depend on each other."""
    labels, n_type, holders = repeated(2, 40), 40, 5
    blocks = [len(RandomSlicing()(labels, None, 2 * holders, seed)[client]) for seed in range(1500)]
    assert_follows(blocks, size_law(n_type, holders))


def test_sizes_of_pairs_follow_the_law() -> None:
    labels, kind = pairs([[40, 40]])
    # One source, clients hold one of two labels: given how many hold it, a block follows that number's law.
    found: dict[int, list[int]] = {}
    for seed in range(1500):
        held = PairSlicing()(labels, kind, 6, seed)
        mine = labels[held[0][0]]
        found.setdefault(sum(labels[rows[0]] == mine for rows in held), []).append(len(held[0]))
    for holders in (2, 3, 4):
        assert_follows(found[holders], size_law(40, holders))


def assert_follows(blocks: list[int], law: np.ndarray) -> None:
    observed = np.bincount(blocks, minlength=len(law) + 1)[1:]
    expected = len(blocks) * law
    # Neighboring lengths together until at least 20 are expected of each bin.
    bins = (np.cumsum(expected) - expected) // 20
    seen, due = (np.bincount(np.unique(bins, return_inverse=True)[1], weights=w) for w in (observed, expected))
    assert len(due) > 8
    assert stats.chisquare(seen, due).pvalue > 0.01


# ---- pairs of source and label


@LIGHT
@given(
    sources=st.integers(1, 4), half=st.integers(1, 3), clients=st.integers(1, 10), spare=st.integers(0, 10), seed=seeds
)
def test_a_client_holds_half_of_one_sources_labels(
    sources: int, half: int, clients: int, spare: int, seed: int
) -> None:
    counts = [[clients + spare + source + label for label in range(2 * half)] for source in range(sources)]
    labels, kind = pairs(counts)
    held = promises(PairSlicing(), labels, kind, clients, seed)
    found = types_of(held, kind)
    for client in found:
        assert len(client) == half and len({t // (2 * half) for t in client}) == 1
    # Pairs that somebody holds are used up, the others not touched.
    used = Counter(kind[np.concatenate(held)].tolist())
    assert used == {t: np.ravel(counts)[t] for client in found for t in client}


def test_digit_five() -> None:
    counts = [[2500] * 10] * 4 + [[740, 700, 650, 600, 560, 542, 660, 640, 540, 640]]
    labels, kind = pairs(counts)
    for clients in (50, 100, 200):
        held = promises(PairSlicing(), labels, kind, clients, 42)
        found = types_of(held, kind)
        assert {len(client) for client in found} == {5}
        each = Counter(next(iter(client)) // 10 for client in found)
        assert set(each) == set(range(5))
        assert stats.chisquare([each[s] for s in range(5)]).pvalue > 0.001
    # Cuts of a pair's own: the blocks of one client differ.
    assert np.mean([len(set(client.values())) > 1 for client in found]) > 0.9


def test_seeds_of_pairs_differ() -> None:
    labels, kind = pairs([[30] * 4] * 3)
    a, b = (PairSlicing()(labels, kind, 10, seed) for seed in (0, 1))
    assert types_of(a, kind) != types_of(b, kind)


def test_kinds_choose_the_pairs_not_their_order_in_the_pool() -> None:
    """The same seed gives the same types whatever the rows' order: they come from a stream of their own."""
    labels, kind = pairs([[30] * 4] * 3)
    a = PairSlicing()(labels, kind, 10, 0)
    b = PairSlicing()(labels[::-1].copy(), kind[::-1].copy(), 10, 0)
    assert types_of(a, kind) == types_of(b, kind[::-1])


# ---- impossible requests

LABELS, KIND = drift(2, 3, 10)
ODD = repeated(5, 10)


@pytest.mark.parametrize(
    ("partition", "labels", "kind", "clients", "says"),
    [
        (RandomSlicing(), repeated(4, 10), None, 0, "cannot be divided"),
        (RandomSlicing(), repeated(4, 10), None, 41, "cannot be divided"),
        (RandomSlicing(), repeated(4, 10), None, 5, "must both be even"),
        (RandomSlicing(), ODD, None, 4, "5 labels must both be even"),
        (RandomSlicing(), repeated(4, 10), None, 22, "11 clients share every type.*10 rows"),
        (RandomSlicing(skew="none"), repeated(4, 10), None, 11, "11 clients share every type"),
        (RandomSlicing(rows=20), repeated(4, 10), None, 12, "6 clients share every type.*5 rows"),
        (RandomSlicing(rows=21), repeated(4, 10), None, 4, "multiple of 4 up to 40"),
        (RandomSlicing(rows=44), repeated(4, 10), None, 4, "multiple of 4 up to 40"),
        (RandomSlicing(skew="concepts"), LABELS, None, 3, "subclasses, such as cifar100"),
        (RandomSlicing(skew="concepts"), LABELS, KIND, 4, "groups of 3"),
        (RandomSlicing(skew="concepts"), LABELS, KIND // 2, 3, "several labels"),
        (RandomSlicing(skew="concepts"), np.minimum(repeated(5, 10) // 3, 1), repeated(5, 10), 3, "not 2 to 3"),
        (PairSlicing(), LABELS, None, 3, "several sources"),
        (PairSlicing(), LABELS, KIND, 3, r"source \* 2 \+ label"),
        (PairSlicing(), ODD, ODD, 3, "even number of them, not 5"),
        (PairSlicing(), *pairs([[9, 9], [9, 9]]), 36, "use fewer clients"),
        (PairSlicing(), *pairs([[9, 9, 0, 9]]), 9, "which has 0 rows"),
        (PairSlicing(), LABELS, KIND, 0, "cannot be divided"),
    ],
)
def test_impossible_requests_end_with_a_message(
    partition: Partition, labels: np.ndarray, kind: np.ndarray | None, clients: int, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        partition(labels, kind, clients, 0)
