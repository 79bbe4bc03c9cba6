"""Mistakes in a user's split or test split are told in one sentence before anything is claimed or any worker starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pflbench.errors import PflbenchError
from pflbench.running.execution import Execution
from pflbench.running.training import run
from pflbench.selection import selection

SUITE = """
[suite]
name = "split"
title = "Split"
paper = "none"
protocol = "code"
seeds = [0, 1]
spread = { kind = "std", ddof = 0 }

[federation]
clients = 4
query = QUERY

[evaluation]
clients = "all"
average = "examples"

[[column]]
id = "own"
title = "Own"
dataset = { name = "arrays", file = "mine.npz" }
partition = { name = "given", file = "split.json" }
model = "mlp3"
rounds = 1
batch = 4

[[row]]
id = "fedavg"
title = "FedAvg"
method = "fedavg"
stages = ["global"]
hyper = { epochs = 1 }
"""
CLIENTS = [{"train": rows[:8], "test": rows[8:]} for rows in np.arange(40).reshape(4, 10).tolist()]
MISTAKES: dict[str, tuple[Any, str, str]] = {
    "too few clients": (CLIENTS[:3], '"partition"', "has 3 clients and the suite 4: write clients = 3"),
    "a row that is missing": (
        [*CLIENTS[:3], {"train": [999], "test": [39]}],
        '"partition"',
        "rows of client 3 are not integers in 0..39",
    ),
    "a row twice": (
        [*CLIENTS[:3], {"train": [30, 1], "test": [39]}],
        '"partition"',
        "trains on row 1, and it occurs a second time",
    ),
    "another query": (CLIENTS, "0.5", 'write query = "partition"'),
    "a test row that trains": (
        [*CLIENTS[:3], {"train": [30], "test": [30]}],
        '"partition"',
        "trains on row 30, and it occurs a second time",
    ),
    "no list": ({"a": 1}, '"partition"', "is no split: the file"),
}


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was handed to workers")

    monkeypatch.setattr("pflbench.running.local.train", never)


def lab(folder: Path, split: Any, query: str) -> str:
    random = np.random.default_rng(0)
    x, y = random.integers(256, size=(40, 8, 8), dtype=np.uint8), np.arange(40, dtype=np.int64) % 2
    np.savez(folder / "mine.npz", train_images=x, train_labels=y)
    (folder / "split.json").write_text(json.dumps(split))
    (folder / "split.toml").write_text(SUITE.replace("QUERY", query))
    return str(folder / "split.toml")


@pytest.mark.parametrize("dry", [False, True], ids=["run", "dry run"])
@pytest.mark.parametrize(("split", "query", "said"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.usefixtures("no_worker")
def test_a_mistake_in_a_split_is_told_before_workers_start(
    tmp_path: Path, split: Any, query: str, said: str, dry: bool
) -> None:
    suite, results = lab(tmp_path, split, query), tmp_path / "results"
    with pytest.raises(PflbenchError, match=said) as refused:
        run(selection(suites=[suite]), results, Execution(data_dir=str(tmp_path)), dry=dry)
    assert "\n" not in str(refused.value)
    assert not list(results.rglob("*.parquet")) and not list(results.rglob("*claim*"))


def test_a_good_split_is_trained(tmp_path: Path) -> None:
    done = run(
        selection(suites=[lab(tmp_path, CLIENTS, '"partition"')], seeds=[0]),
        tmp_path / "results",
        Execution(jobs=1, data_dir=str(tmp_path)),
    )
    assert done.good
