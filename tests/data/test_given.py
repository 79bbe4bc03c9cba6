"""The partition `given`: what a federation makes of its file, and what is wrong with other files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pflbench.data import content
from pflbench.data.federation import Federation, build
from pflbench.data.partitions.given import Given, read_clients
from pflbench.data.source import Source
from pflbench.errors import DataMissing, PflbenchError, UsageError
from pflbench.rng import stream

TRAINING, TEST = 20, 10
"""Training and test rows of the pool."""
CLIENTS = [{"train": [3, 1, 2], "test": [20, 5]}, {"train": [10, 4], "test": [29]}]


def made(file: Path, query: Any = "partition", **options: Any) -> Federation:
    labels = np.arange(TRAINING + TEST) % 5
    images = torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8)
    source = Source(images, labels, None, 5, "0" * 16, test=TEST)
    return build(source, Given(file, **options), clients=2, training_clients=2, query=query, seed=3)


def written(folder: Path, value: Any) -> Path:
    path = folder / "split.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_rows_are_those_of_the_file_and_the_seed_orders_the_support(tmp_path: Path) -> None:
    federation = made(written(tmp_path, CLIENTS))
    order = stream(3, "query", 0).permutation(3)
    assert federation.support[0].tolist() == np.array([3, 1, 2])[order].tolist()
    assert sorted(federation.support[1].tolist()) == [4, 10]
    assert [rows.tolist() for rows in federation.query] == [[20, 5], [29]]
    assert all(rows.dtype == np.int64 for rows in (*federation.support, *federation.query))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_byte_order_mark_is_no_content_of_the_list(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_text(json.dumps(CLIENTS), encoding=encoding)
    assert [rows.tolist() for rows in read_clients(path)[0]] == [[3, 1, 2], [20, 5]]


def test_clients_may_be_tested_on_the_same_rows(tmp_path: Path) -> None:
    federation = made(written(tmp_path, [{"train": [0], "test": [20, 21]}, {"train": [1], "test": [21, 20]}]))
    assert [rows.tolist() for rows in federation.query] == [[20, 21], [21, 20]]


@pytest.mark.parametrize("second", [{"train": [0, 1], "test": [21]}, {"train": [1], "test": [0]}])
def test_training_rows_of_others_need_overlap(second: dict[str, list[int]], tmp_path: Path) -> None:
    path = written(tmp_path, [{"train": [0], "test": [20]}, second])
    with pytest.raises(UsageError, match="overlap = true"):
        made(path)
    assert made(path, overlap=True).query[1].tolist() == second["test"]


@pytest.mark.parametrize("query", [0.5, "test-split"])
def test_another_query_is_refused(query: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='query = "partition"'):
        made(written(tmp_path, CLIENTS), query)


WRONG_ROWS = {
    "3 clients and the suite 2": [*CLIENTS, {"train": [6], "test": [7]}],
    "support rows of client 0": [{"train": [20], "test": [21]}, CLIENTS[1]],  # a test row
    "query rows of client 0": [{"train": [0], "test": [30]}, CLIENTS[1]],
    "rows of client 0": [{"train": [-1], "test": [20]}, CLIENTS[1]],
    "row 0, and it occurs a second time": [{"train": [0, 0], "test": [20]}, CLIENTS[1]],
    "a second time": [{"train": [0], "test": [0]}, CLIENTS[1]],
}


@pytest.mark.parametrize("named", WRONG_ROWS)
def test_rows_that_cannot_be(named: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=named):
        made(written(tmp_path, WRONG_ROWS[named]))


WRONG_FORMS: dict[str, Any] = {
    "rows of each client": [[0, 1], [2]],
    "the client of each row": ["ann", "bob", None],
    "an object": {"train": [0], "test": [1]},
    "no client": [],
    "no test rows": [{"train": [0]}],
    "empty test rows": [{"train": [0], "test": []}],
    "another key": [{"train": [0], "test": [1], "val": [2]}],
    "floats": [{"train": [0.0], "test": [1]}],
    "booleans": [{"train": [True], "test": [1]}],
    "texts": [{"train": ["0"], "test": [1]}],
    "half": '[{"train": [0',
    "deep": "[" * 100_000,
    "a long number": '[{"train": [' + "9" * 5000 + '], "test": [1]}]',
    "arrays of NumPy": "PK\x03\x04",
}


@pytest.mark.parametrize("form", WRONG_FORMS)
def test_another_form_is_refused_with_the_form_that_is_read(form: str, tmp_path: Path) -> None:
    with pytest.raises(PflbenchError) as refused:
        read_clients(written(tmp_path, WRONG_FORMS[form]))
    message = str(refused.value)
    assert message.startswith(str(tmp_path / "split.json")) and "\n" not in message
    assert '[{"train": [0, 5], "test": [7]}, …]' in message


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"split\.json"):
        read_clients(tmp_path / "split.json")


def test_its_content_is_that_of_the_file(tmp_path: Path) -> None:
    def hash() -> str | None:
        return content.of_partition(Given(path), tmp_path, lambda: pytest.fail("the pool is not needed"), 2, 0)

    path = written(tmp_path, CLIENTS)
    first = hash()
    written(tmp_path, CLIENTS[::-1])
    assert first != hash() and Given(path).files(tmp_path) == [path]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_json_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["train", "test"]), inner),
        max_leaves=8,
    )
    try:
        clients = read_clients(written(tmp_path, data.draw(anything)))
    except PflbenchError:
        return
    assert all(rows.dtype == np.int64 and len(rows) for hand in clients for rows in hand)
