"""A user's own split: every form of its file, what a federation makes of it, and what is wrong with damaged ones."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pflbench.data import content
from pflbench.data.federation import Federation, build
from pflbench.data.partition import Dealer
from pflbench.data.partitions.given import Given
from pflbench.data.source import Source
from pflbench.data.splits import read_split, write_split
from pflbench.errors import DataMissing, PflbenchError, UsageError
from pflbench.rng import stream

OWN, TEST = 20, 10
"""Training and test rows of the pool below."""
TRAIN = [[3, 1, 2], [10, 4]]
BOTH = [{"train": [3, 1, 2], "test": [20, 5]}, {"train": [10, 4], "test": [29]}]


def pool(own: int = OWN, test: int = TEST) -> Source:
    labels = np.arange(own + test) % 5
    return Source(torch.zeros(own + test, 1, 2, 2, dtype=torch.uint8), labels, None, 5, "0" * 16, test=test)


def made(file: Path, query: Any, *, clients: int = 2, test: int = TEST, **options: Any) -> Federation:
    return build(
        pool(test=test), Given(file, **options), clients=clients, training_clients=clients, query=query, seed=3
    )


def written(folder: Path, value: Any, name: str = "split.json") -> Path:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def arrays(folder: Path, **held: Any) -> Path:
    np.savez(folder / "split.npz", **held)
    return folder / "split.npz"


def rows(federation: Federation) -> list[tuple[list[int], list[int]]]:
    parts = zip(federation.support, federation.query, strict=True)
    return [(sorted(support.tolist()), sorted(query.tolist())) for support, query in parts]


# ---- what it makes


def test_rows_per_client_are_divided_by_a_share(tmp_path: Path) -> None:
    federation = made(written(tmp_path, TRAIN), 0.5)
    assert [sorted([*a, *b]) for a, b in rows(federation)] == [[1, 2, 3], [4, 10]]
    assert [len(query) for query in federation.query] == [1, 1]


def test_rows_per_client_with_the_test_split(tmp_path: Path) -> None:
    federation = made(written(tmp_path, TRAIN), "test-split")
    assert [a for a, _ in rows(federation)] == [[1, 2, 3], [4, 10]]
    assert [b for _, b in rows(federation)] == [[21, 22, 23, 26, 27, 28], [20, 24, 25, 29]]


def test_train_and_test_rows_per_client(tmp_path: Path) -> None:
    federation = made(written(tmp_path, BOTH), "partition")
    assert rows(federation) == [([1, 2, 3], [5, 20]), ([4, 10], [29])]
    assert federation.query[0].tolist() == [20, 5]
    order = stream(3, "query", 0).permutation(3)
    assert federation.support[0].tolist() == np.array([3, 1, 2])[order].tolist()


@pytest.mark.parametrize("value", [BOTH, TRAIN])
def test_an_npz_file_says_the_same(value: list[Any], tmp_path: Path) -> None:
    if value is BOTH:
        path = arrays(
            tmp_path, train=[3, 1, 2, 10, 4], train_offsets=[0, 3, 5], test=[20, 5, 29], test_offsets=[0, 2, 3]
        )
    else:
        path = arrays(tmp_path, train=np.array([3, 1, 2, 10, 4], dtype=np.uint16), train_offsets=[0, 3, 5])
    query: Any = "partition" if value is BOTH else 0.5
    a, b = made(path, query), made(written(tmp_path, value), query)
    for mine, other in zip((*a.support, *a.query), (*b.support, *b.query), strict=True):
        assert np.array_equal(mine, other) and mine.dtype == np.int64


def per_row(nobody: Any, first: Any, second: Any, length: int = OWN) -> list[Any]:
    held = {3: first, 1: first, 2: first, 10: second, 4: second, 20: first, 25: first, 29: second}
    return [held.get(row, nobody) for row in range(length)]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (5, 17), ("ann", "bob")])
@pytest.mark.parametrize("form", ["json", "npz"])
def test_a_client_for_each_row(first: Any, second: Any, form: str, tmp_path: Path) -> None:
    def file(length: int) -> Path:
        nobody: Any = None if form == "json" else "" if isinstance(first, str) else -1
        every = per_row(nobody, first, second, length)
        return written(tmp_path, every) if form == "json" else arrays(tmp_path, client=every)

    assert [a for a, _ in rows(made(file(OWN), "test-split"))] == [[1, 2, 3], [4, 10]]
    assert rows(made(file(OWN + TEST), "partition")) == [([1, 2, 3], [20, 25]), ([4, 10], [29])]


def test_clients_of_rows_are_in_ascending_order_and_training_rows_may_be_all_that_somebody_has(tmp_path: Path) -> None:
    path = written(tmp_path, [10, 9, None, 10] + [None] * 26)
    assert [a for a, _ in rows(made(path, "test-split"))] == [[1], [0, 3]]


def test_everybody_may_be_tested_on_the_same_rows(tmp_path: Path) -> None:
    path = written(tmp_path, [{"train": [0], "test": [20, 21]}, {"train": [1], "test": [21, 20]}])
    assert rows(made(path, "partition")) == [([0], [20, 21]), ([1], [20, 21])]


def test_overlaps_only_if_allowed(tmp_path: Path) -> None:
    trained = written(tmp_path, [{"train": [0, 1], "test": [20]}, {"train": [1], "test": [20]}], "a.json")
    tested = written(tmp_path, [{"train": [0, 1], "test": [20]}, {"train": [2], "test": [1]}], "b.json")
    with pytest.raises(UsageError, match=r"a\.json gives row 1 to client 0 and to client 1 \(overlap = true"):
        made(trained, "partition")
    with pytest.raises(UsageError, match=r"b\.json: client 1 is tested on row 1, on which client 0 trains"):
        made(tested, "partition")
    assert rows(made(trained, "partition", overlap=True)) == [([0, 1], [20]), ([1], [20])]
    assert made(tested, "partition", overlap=True).shared == 1


def test_it_is_both_a_partition_and_a_dealer_and_declares_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, TRAIN)
    partition = Given(path)
    assert callable(partition) and isinstance(partition, Dealer)
    assert list(partition.files(tmp_path)) == [path]
    before = content.of_partition(partition, tmp_path, pool, 2, 0)
    written(tmp_path, TRAIN[::-1])
    assert content.of_partition(partition, tmp_path, pool, 2, 0) != before


# ---- what does not fit


@pytest.mark.parametrize(
    ("value", "query", "says"),
    [
        (BOTH, 0.2, r'split\.json says which rows each client is tested on: write query = "partition"'),
        (BOTH, "test-split", 'query = "partition"'),
        (per_row(None, 0, 1, OWN + TEST), 0.2, 'query = "partition"'),
        (TRAIN, "partition", r"does not say which rows each client is tested on: give a share.*query = 0\.2"),
        (per_row(None, 0, 1), "partition", "does not say which rows"),
        ([[0], [1], [2]], 0.2, r"split\.json has 3 clients and the suite 2: write clients = 3"),
        ([[0, 1], [2, 3], []], 0.2, "has 3 clients"),
        ([[0, 1], []], 0.2, "client 1 has no rows"),
        ([{"train": [], "test": [20]}, BOTH[1]], "partition", "client 0 has no train rows"),
        ([0, 1, *[None] * 18, 0, *[None] * 9], "partition", "client 1 has no test rows"),
        ([[0, 1], [2, 20]], 0.5, r"rows of client 1 have row 20; the dataset has 20 training rows, 0 to 19"),
        ([BOTH[0], {"train": [20], "test": [21]}], "partition", "train rows of client 1 have row 20"),
        (
            [BOTH[0], {"train": [10], "test": [30]}],
            "partition",
            "test rows of client 1 have row 30; the dataset has 30",
        ),
        ([[0, 1, 0], [2, 3]], 0.5, "rows of client 0 have row 0 twice"),
        ([[0, 1], [2, 1]], 0.5, "gives row 1 to client 0 and to client 1"),
        ([{"train": [0, 1], "test": [1]}, BOTH[1]], "partition", "client 0 trains and is tested on row 1"),
        (per_row(None, 0, 1, 19), 0.5, "gives a client for 19 rows, and the dataset has 20 training rows"),
        (per_row(None, 0, 1, 29), "partition", "29 rows, and the dataset has 20 training rows and 10 test rows"),
        (per_row(None, 0, 1, 27), "partition", "27 rows"),
    ],
)
def test_a_split_that_does_not_fit(value: Any, query: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        made(written(tmp_path, value), query)


def test_a_share_of_what_nobody_is_tested_on_takes_no_overlap(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="overlap = true goes with"):
        made(written(tmp_path, TRAIN), 0.5, overlap=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not readable JSON"),
        ("[[0, 1], [2", "not readable JSON"),
        ("[" * 100_000, "not readable JSON"),
        (f"[[{'9' * 5000}]]", "not readable JSON"),
        ("\xff\x00", "not readable JSON|a number"),
        ('[{"train": [0], "train": [1]}]', "a key is there twice"),
        ("{}", "holds an object, no list"),
        ("3", "holds a number"),
        ("true", "holds true or false"),
        ("null", "holds null"),
        ('"rows"', "holds a text"),
        ("[]", "an empty list"),
        ("[[0, 1], 2]", "begins with a list and has a number as entry 1"),
        ('[[0, 1], {"train": [2]}]', "begins with a list and has an object as entry 1"),
        ("[0, [1]]", "begins with a number and has a list as entry 1"),
        ("[[[0]], [1]]", r"client 0's rows hold \[0\], which is no row number"),
        ("[[0, true]]", "client 0's rows hold true"),
        ("[[0, 1.0]]", r"client 0's rows hold 1\.0"),
        ("[[0, NaN]]", "client 0's rows hold NaN"),
        ('[[0, "1"]]', 'client 0\'s rows hold "1"'),
        ("[[0, null]]", "client 0's rows hold null"),
        ("[[0], [-1]]", "client 1's rows hold -1, which is outside"),
        (f"[[{2**63}]]", "hold a huge number, which is outside"),
        (f'[["{"x" * 99}"]]', "x…, which is no row number"),
        ("[true, false]", "names a client true"),
        ("[0, 1.5]", r"names a client 1\.5"),
        ("[0, -1]", "names a client -1: numbers of clients begin at 0, and nobody is null"),
        ('[0, "a"]', "by numbers and by texts"),
        ("[null, null]", "gives no row to a client"),
        ('[{"test": [1]}]', 'client 0 has "test"; it must have "train"'),
        ('[{"train": [1], "val": []}]', 'client 0 has "train", "val"'),
        ("[{}]", "client 0 has no keys"),
        ('[{"train": 3}]', "client 0's train rows are a number"),
        ('[{"train": [0], "test": [[1]]}]', r"client 0's test rows hold \[1\]"),
        ('[{"train": [0], "test": [1]}, {"train": [2], "test": []}]', "client 1 has no test rows and others have"),
    ],
)
def test_damaged_json(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(PflbenchError, match=says) as caught:
        read_split(written(tmp_path, text))
    assert "split.json" in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ({}, "holds nothing; it must hold train and train_offsets"),
        ({"train": [0]}, "holds train; it must"),
        ({"train": [0], "train_offsets": [0, 1], "extra": [0]}, "holds extra, train, train_offsets"),
        ({"client": [0], "train": [0]}, "holds client, train;"),
        ({"train": [0.5], "train_offsets": [0, 1]}, "train is float64"),
        ({"train": [True], "train_offsets": [0, 1]}, "train is bool"),
        ({"train": [[0]], "train_offsets": [0, 1]}, r"train is int64 \(1, 1\)"),
        ({"train": ["a"], "train_offsets": [0, 1]}, "train is <U1"),
        ({"train": 3, "train_offsets": [0, 1]}, r"train is int64 \(\)"),
        ({"train": [0], "train_offsets": [0, 2]}, "train_offsets must ascend from 0 to 1"),
        ({"train": [0], "train_offsets": [1]}, "train_offsets must ascend"),
        ({"train": [0, 1], "train_offsets": [0, 2, 1, 2]}, "train_offsets must ascend"),
        ({"train": [-1], "train_offsets": [0, 1]}, "train holds -1"),
        ({"train": np.array([2**64 - 1], dtype=np.uint64), "train_offsets": [0, 1]}, "outside of every dataset"),
        ({"train": [0], "train_offsets": [0, 1], "test": [1, 2], "test_offsets": [0, 1, 2]}, "test rows of 2"),
        ({"client": [-1, -1]}, "gives no row to a client"),
        ({"client": [0, -2]}, "names a client -2: .*nobody is -1"),
        ({"client": [0.0]}, "client is float64"),
    ],
)
def test_damaged_npz(held: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(PflbenchError, match=says):
        read_split(arrays(tmp_path, **held))


def test_files_that_are_no_npz_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"no file .*split\.json"):
        read_split(tmp_path / "split.json")
    with pytest.raises(DataMissing, match="no file"):
        read_split(tmp_path)
    (tmp_path / "split.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(PflbenchError, match=r"Cannot read .*split\.npz as an \.npz file"):
        read_split(tmp_path / "split.npz")
    np.savez(tmp_path / "split.npz", train=np.array([{"code": 1}], dtype=object), train_offsets=[0, 1])
    with pytest.raises(PflbenchError, match=r"split\.npz: train holds Python objects"):
        read_split(tmp_path / "split.npz")
    whole = arrays(tmp_path, train=np.arange(99), train_offsets=[0, 99]).read_bytes()
    for cut in (1, 30, len(whole) // 2, len(whole) - 5):
        (tmp_path / "split.npz").write_bytes(whole[:cut])
        with pytest.raises(PflbenchError, match=r"Cannot read .*split\.npz as an \.npz file"):
            read_split(tmp_path / "split.npz")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", b"mine"),
        ("train", b"\x93NUMPY"),
        ("train.npy", b""),
        ("train.npy", b"\x93NUMPY\x03\x00" + bytes(20)),
        ("train.npy", b"\x93NUMPY\x01\x00\x76\x00" + f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({10**12},), }}".ljust(118).encode()),
        ("a/../../train.npy", b"x"),
    ],
)  # fmt: skip
def test_an_npz_file_with_a_strange_member_is_one_sentence(name: str, content: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "split.npz", "w") as file:
        file.writestr(name, content)
    with pytest.raises(PflbenchError, match=r"split\.npz") as refused:
        read_split(tmp_path / "split.npz")
    message = str(refused.value)
    assert "\n" not in message and message.endswith(".") and len(message) < 500


# ---- written and read


hands = st.lists(
    st.tuples(*[st.lists(st.integers(0, 2**40), min_size=1, max_size=9, unique=True)] * 2), min_size=1, max_size=6
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hands=hands, form=st.sampled_from(["json", "npz", "NPZ"]))
def test_what_is_written_is_read(hands: list[tuple[list[int], list[int]]], form: str, tmp_path: Path) -> None:
    path = tmp_path / f"split.{form}"
    write_split(path, [(np.array(train, dtype=np.int64), np.array(test, dtype=np.int64)) for train, test in hands])
    split = read_split(path)
    assert split.test is not None
    assert [(a.tolist(), b.tolist()) for a, b in zip(split.train, split.test, strict=True)] == hands


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["train", "test", "x"]), inner),
    max_leaves=12,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=json_values, query=st.sampled_from([0.5, "test-split", "partition"]))
def test_whatever_a_file_holds_is_a_federation_or_one_message(value: Any, query: Any, tmp_path: Path) -> None:
    path = written(tmp_path, value)
    try:
        federation = made(path, query)
    except PflbenchError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
    else:
        assert len(federation.support) == 2


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 400), flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_damaged_bytes_are_one_message(cut: int, flips: list[tuple[int, int]], tmp_path: Path) -> None:
    path = tmp_path / "split.npz"
    write_split(path, [(np.arange(5), np.arange(5, 7)), (np.arange(7, 9), np.arange(9, 12))])
    data = bytearray(path.read_bytes()[: cut + 200])
    for at, value in flips:
        data[at % len(data)] = value
    path.write_bytes(bytes(data))
    try:
        made(path, "partition")
    except PflbenchError as error:
        assert "\n" not in str(error)


def test_nobody_is_no_empty_text(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text('["ann", "", "bob"]', encoding="utf-8")
    with pytest.raises(PflbenchError, match="names a client with an empty text: nobody is null"):
        read_split(tmp_path / "split.json")
