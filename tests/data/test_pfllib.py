"""PFLlib's splits: the published sizes, an oracle that follows its program line by line, and the real labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from pflbench.data.datasets.cifar import CIFAR10, CIFAR100
from pflbench.data.datasets.mnist import FashionMNIST
from pflbench.data.federation import build
from pflbench.data.partition import Hand, Rows
from pflbench.data.partitions.pfllib import PFLlib
from pflbench.data.root import data_root
from pflbench.data.source import HALF, Source
from pflbench.errors import UsageError

FMNIST, CIFAR_100, CIFAR_10 = [7_000] * 10, [600] * 100, [6_000] * 10
MNIST = [6_903, 7_877, 6_990, 7_141, 6_824, 6_313, 6_876, 7_293, 6_825, 6_958]
DIR, PAT = "dirichlet", "pathological"
PUBLISHED: list[tuple[list[int], PFLlib, str, tuple[int, int], tuple[int, int]]] = [
    (
        FMNIST, PFLlib(DIR),
        "82 320 875 2603 1455 5473 4385 4461 5560 3556 6170 6803 8551 626 1328 195 2937 4832 5090 4698",
        (52_493, 17_507), (6, 641),
    ),
    (
        FMNIST, PFLlib(PAT, classes=2),
        "2316 1300 2293 8091 2059 1002 1893 9046 2933 1909 2564 6594 2332 1925 1000 8743 1913 1683 3116 7288",
        (52_493, 17_507), (75, 678),
    ),
    (
        CIFAR_100, PFLlib(DIR),
        "3020 3053 2753 3029 2640 2877 3120 3047 2807 3211 2761 3359 3290 2971 3301 3132 3345 2642 3035 2607",
        (44_992, 15_008), (195, 251),
    ),
    (
        CIFAR_100, PFLlib(DIR, alpha=0.01),
        "3282 3385 3141 3396 1900 2599 3106 2596 3511 3492 1812 3248 3564 1380 3137 3589 3380 2698 3264 3520",
        (44_995, 15_005), (103, 269),
    ),
    (
        CIFAR_100, PFLlib(DIR, alpha=0.5),
        "2600 3093 3005 3119 3093 3003 3000 3001 3002 3083 2838 3044 3010 2706 2993 3181 3008 3000 3096 3125",
        (44_992, 15_008), (195, 238),
    ),
    (
        CIFAR_100, PFLlib(DIR, alpha=5.0),
        "2985 2958 3010 3021 2935 2904 2981 3001 2879 3005 3039 3020 3039 3011 3013 3058 3013 3009 3085 3034",
        (44_990, 15_010), (215, 231),
    ),
    (
        CIFAR_100, PFLlib(PAT, classes=10),
        "1816 4184 1941 4059 1426 4574 952 5048 1654 4346 2060 3940 1890 4110 1364 4636 1960 4040 1899 4101",
        (44_995, 15_005), (71, 378),
    ),
    (
        MNIST, PFLlib(DIR),
        "2630 499 1630 2541 1917 6189 1256 1269 3600 4006 3116 3772 3613 2134 5730 5448 3628 5653 5266 6103",
        (52_492, 17_508), (37, 464),
    ),
    (
        CIFAR_10, PFLlib(DIR),
        "1621 1814 1211 2080 5128 4264 1440 2622 2974 3236 1164 1964 5994 1527 3100 4325 4252 3175 5449 2660",
        (44_995, 15_005), (87, 449),
    ),
]  # fmt: skip
"""Images of each class, the split, and what PFLlib's files hold: sizes, training and test rows, batches of 10."""
FLOORS = {"fmnist dir": 76.47, "fmnist pat": 57.67, "cifar100 dir": 14.30, "cifar100 pat": 13.21, "cifar10 dir": 74.47}
"""Accuracy in % where each client answers its commonest training label."""


def made_up(counts: list[int]) -> Rows:
    """Labels of these counts in a random order: sizes depend on nothing else."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))


@pytest.mark.parametrize(
    ("counts", "split", "sizes", "rows", "batches"), PUBLISHED, ids=lambda one: one.kind if hasattr(one, "kind") else ""
)
def test_the_published_splits_come_out(
    counts: list[int], split: PFLlib, sizes: str, rows: tuple[int, int], batches: tuple[int, int]
) -> None:
    hands = split.deal(made_up(counts), None, 0, 20, seed=7)
    assert [len(support) + len(query) for support, query in hands] == list(map(int, sizes.split()))
    assert tuple(sum(map(len, part)) for part in zip(*hands, strict=True)) == rows
    whole = [len(support) // 10 for support, _ in hands]
    assert (min(whole), max(whole)) == batches


def slow(split: PFLlib, labels: Rows, clients: int) -> list[Hand]:
    """PFLlib's program by the sheet, in plain lists, with scikit-learn's split."""
    random, names = np.random.RandomState(split.split_seed), int(labels.max()) + 1
    held: list[list[int]] = [[] for _ in range(clients)]
    if split.kind == PAT:
        left = [split.classes] * clients
        for k in range(names):
            rows = [row for row, label in enumerate(labels) if label == k]
            chosen = [c for c in range(clients) if left[c] > 0][: int(np.ceil(clients / names * split.classes))]
            per = len(rows) / len(chosen)
            sizes = random.randint(max(per / 10, split.minimum / names), per, len(chosen) - 1).tolist()  # type: ignore[arg-type]
            for c, size in zip(chosen, [*sizes, len(rows) - sum(sizes)], strict=True):
                held[c] += rows[:size]
                rows = rows[size:]
                left[c] -= 1
    else:
        while min(map(len, held)) < split.minimum:
            held = [[] for _ in range(clients)]
            for k in range(names):
                rows_of = np.where(labels == k)[0]
                random.shuffle(rows_of)
                p = random.dirichlet(np.repeat(split.alpha, clients))
                p = np.array([q * (len(mine) < len(labels) / clients) for q, mine in zip(p, held, strict=True)])
                cuts = (np.cumsum(p / p.sum()) * len(rows_of)).astype(int)[:-1]
                held = [mine + more.tolist() for mine, more in zip(held, np.split(rows_of, cuts), strict=True)]
    hands = []
    for mine in held:
        support, query = train_test_split(np.array(mine), train_size=split.train_ratio, random_state=random)
        hands.append((support, query))
    return hands


@pytest.mark.parametrize(
    "split",
    [
        PFLlib(DIR, minimum=10),
        PFLlib(DIR, alpha=0.5, split_seed=3, minimum=25, train_ratio=0.6),
        PFLlib(PAT, minimum=10),
        PFLlib(PAT, classes=3, split_seed=2),
    ],
    ids=["dirichlet", "dirichlet drawn again", "pathological", "three classes"],
)
def test_every_row_stands_where_pfllibs_program_puts_it(split: PFLlib) -> None:
    labels = made_up([160, 220, 190, 230, 200])
    for (support, query), (train, test) in zip(
        split.deal(labels, None, 0, 10, 0), slow(split, labels, 10), strict=True
    ):
        assert support.tolist() == train.tolist() and query.tolist() == test.tolist()


def test_a_federation_keeps_the_order_and_does_not_ask_the_runs_seed() -> None:
    labels = made_up([200] * 5)
    source = Source.of(np.zeros((1000, 1, 2, 2), np.uint8), labels, 5)
    settings: dict[str, Any] = {"clients": 5, "training_clients": 5, "query": "partition"}
    first, second = (build(source, PFLlib(DIR, minimum=10), seed=seed, **settings) for seed in (0, 1))
    for dealt, mine, again in zip(
        PFLlib(DIR, minimum=10).deal(labels, None, 0, 5, 0), first.support, second.support, strict=True
    ):
        assert dealt[0].tolist() == mine.tolist() == again.tolist()


def test_the_first_rows_are_those_of_the_whole_split() -> None:
    labels = made_up([700] * 4)
    whole = PFLlib(DIR, alpha=1.0).deal(labels, None, 0, 6, 0)
    few = PFLlib(DIR, alpha=1.0, first=100).deal(labels, None, 0, 6, 0)
    assert {(len(support), len(query)) for support, query in few} == {(100, 33)}
    assert all((a[0][:100] == b[0]).all() and (a[1][:33] == b[1]).all() for a, b in zip(whole, few, strict=True))


@pytest.mark.parametrize("first", [None, 5])
def test_support_rows_are_counted_without_dealing(first: int | None) -> None:
    split = PFLlib(alpha=100.0, minimum=20, first=first)
    held = sum(len(support) for support, _ in split.deal(np.arange(1000) % 4, None, 0, 10, 0))
    assert split.divided(1000, 10) == pytest.approx(held, abs=10)


def test_first_rows_keep_the_share_of_the_query() -> None:
    labels = made_up([700] * 4)
    for ratio, first, tested in ((0.8, 40, 10), (0.8, 80, 20), (0.9, 90, 10), (0.75, 300, 100)):
        hands = PFLlib(DIR, alpha=5.0, train_ratio=ratio, first=first).deal(labels, None, 0, 4, 0)
        assert {(len(support), len(query)) for support, query in hands} == {(first, tested)}


def test_a_class_of_one_holder_is_all_its_own_and_one_that_nobody_lacks_is_nobodys() -> None:
    labels = np.repeat(np.arange(9), [9] * 8 + [100])
    hands = PFLlib(PAT, classes=1).deal(labels, None, 0, 9, 0)
    assert [len(support) + len(query) for support, query in hands] == [9] * 8 + [100]
    dealt = PFLlib(PAT, classes=1, minimum=5).deal(made_up([40] * 5), None, 0, 7, 0)
    assert sum(len(support) + len(query) for support, query in dealt) == 160


@pytest.mark.parametrize(
    ("split", "test", "clients", "message"),
    [
        (PFLlib(DIR), 10, 5, "merged = true"),
        (PFLlib(DIR, minimum=150), 0, 10, "10 clients with at least 150 rows each need 1500"),
        (PFLlib(DIR, minimum=120), 0, 10, "never gave each of 10 clients 120 rows"),
        (PFLlib(PAT, classes=4), 0, 500, "too few for sizes from"),
    ],
)
def test_a_split_that_is_impossible_is_one_message(split: PFLlib, test: int, clients: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        split.deal(made_up([300] * 4), None, test, clients, 0)


@pytest.mark.data
@pytest.mark.parametrize("name", FLOORS)
def test_the_commonest_label_has_the_printed_accuracy(name: str) -> None:
    made = {
        "fmnist": FashionMNIST(merged=True, normalize="half"),
        "cifar100": CIFAR100(merged=True, fine=True, normalize="half"),
        "cifar10": CIFAR10(merged=True, normalize="half"),
    }
    dataset = made[name.split()[0]]
    if not dataset.status(data_root()).startswith("ready"):
        pytest.skip(dataset.status(data_root()))
    source = dataset.load(data_root(), 0)
    assert source.test == 0 and source.normalization == HALF and len(source.labels) == dataset.examples
    split = PFLlib(DIR) if name.endswith(DIR[:3]) else PFLlib(PAT, classes=10 if source.classes == 100 else 2)
    hands = split.deal(source.labels, None, 0, 20, 0)
    right = sum(
        (source.labels[query] == np.bincount(source.labels[support]).argmax()).sum() for support, query in hands
    )
    assert round(100 * right / sum(len(query) for _, query in hands), 2) == FLOORS[name]
    if name == "fmnist dir":
        counts = [np.bincount(source.labels[np.concatenate(hand)], minlength=10) for hand in hands[:3]]
        assert [{k: n for k, n in enumerate(one.tolist()) if n} for one in counts] == [
            {0: 67, 1: 1, 6: 2, 8: 5, 9: 7},
            {1: 157, 3: 19, 6: 35, 7: 15, 9: 94},
            {0: 14, 5: 29, 7: 318, 8: 514},
        ]
