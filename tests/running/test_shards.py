"""Shards are disjoint and complete, and know nothing of the store or the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.catalog import complete, describe
from pflbench.errors import UsageError
from pflbench.result import RunResult, Score
from pflbench.running.execution import Execution
from pflbench.running.shards import in_shard
from pflbench.running.training import run
from pflbench.selection import Selection
from pflbench.spec import MethodSpec, Named, RunSpec
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.testing import tiny_spec
from pflbench.units import Shard, parse_shard


def spec(rounds: int, seed: int) -> RunSpec:
    info = describe("fedavg")
    hyper = complete(info, {"lr": 0.05, "epochs": 1})
    setting = {
        "rounds": rounds,
        "model": "mlp",
        "dataset": "digits",
        "partition": Named(name="shards", options={"shards": 40}),
    }
    return tiny_spec(seed, MethodSpec(name=info.name, version=info.version, hyper=hyper), **setting)


def shard(specs: list[RunSpec], number: int, of: int) -> list[RunSpec]:
    return [*in_shard({one: {} for one in specs}, Shard(number, of))]


@given(
    lengths=st.sets(st.integers(1, 30), min_size=1, max_size=20),
    seeds=st.integers(1, 5),
    of=st.integers(1, 7),
    order=st.randoms(),
)
@settings(max_examples=60, deadline=None)
def test_shards_are_disjoint_and_complete_and_keep_stacks(
    lengths: set[int], seeds: int, of: int, order: object
) -> None:
    specs = [spec(rounds, seed) for rounds in lengths for seed in range(seeds)]
    parts = [shard(specs, k, of) for k in range(1, of + 1)]
    assert sorted(one.id for part in parts for one in part) == sorted(one.id for one in specs)
    for part in parts:
        assert [one for one in specs if one in set(part)] == part, "in their order"
        held = [one.group() for one in part]
        assert all(held.count(group) == seeds for group in held), "a stack stays together"
    mixed = list(specs)
    order.shuffle(mixed)  # type: ignore[attr-defined]
    assert [set(shard(mixed, k, of)) for k in range(1, of + 1)] == [set(p) for p in parts]


def test_work_is_shared_evenly() -> None:
    specs = [spec(rounds, 0) for rounds in (9000, 7000, 6000, 5000, 5001, 4000, 3000, 1000)]
    parts = [shard(specs, k, 2) for k in (1, 2)]
    assert sorted(round(sum(one.rounds for one in part), -3) for part in parts) == [19_000, 21_000]
    users = {one: {"methods": "mine.py:Mine"} for one in specs}
    assert sorted(len(in_shard(users, Shard(k, 3))) for k in (1, 2, 3)) == [2, 3, 3]
    assert [*in_shard(users, None)] == specs


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "1/0", "1", "a/b", "1/3/5", "-1/3", "1.0/2"])
def test_a_bad_shard_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no shard: write K/N with K from 1 to N, as 1/3, 2/3 and 3/3\.$"):
        parse_shard(text)
    assert parse_shard(" 2/3 ") == Shard(2, 3) and str(Shard(2, 3)) == "2/3"


@given(stored=st.sets(st.integers(0, 2**16)), of=st.integers(1, 4))
@settings(max_examples=4, deadline=None)
def test_the_same_shard_whatever_is_stored(tmp_path_factory: pytest.TempPathFactory, stored: set[int], of: int) -> None:
    """What a shard has to do is its part of the whole, less what is stored."""
    results: Path = tmp_path_factory.mktemp("store")
    part = Selection(suites=("cafeme-table1",), profile="smoke", seeds=(0, 1, 2))
    runs = expand(load("cafeme-table1"), part, profile="smoke").runs
    there = {runs[number % len(runs)] for number in stored}
    for one in there:
        Store(results).write(RunResult(one, (Score("global", 1, 0, 0, 1, 2, 1.0, 0.5),), {"data_hash": "d"}))
    shards = [Execution(device="cpu", shard=Shard(k, of)) for k in range(1, of + 1)]
    todo = [run(part, results, one, dry=True).runnable for one in shards]
    empty = [run(part, results / "empty", one, dry=True).runnable for one in shards]
    assert sorted(one.id for shard in empty for one in shard) == sorted(one.id for one in runs)
    assert [[one for one in shard if one not in there] for shard in empty] == todo
