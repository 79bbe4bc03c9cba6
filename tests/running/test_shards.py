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
from pflbench.running.executors import run
from pflbench.running.shards import in_shard
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.testing import tiny_spec
from pflbench.units import Shard, parse_shard

OWN = "mine.py:Mine"


def spec(setting: int, seed: int) -> RunSpec:
    info = describe("fedavg")
    hyper = complete(info, {"lr": 0.05, "epochs": 1})
    return tiny_spec(seed, info.name, version=info.version, hyper=hyper, rounds=setting + 1)


work = st.dictionaries(st.integers(0, 30), st.one_of(st.none(), st.floats(1e-3, 1e12)), min_size=1, max_size=20)


@given(costs=work, seeds=st.integers(1, 5), of=st.integers(1, 7), order=st.randoms())
@settings(max_examples=60, deadline=None)
def test_shards_are_disjoint_and_complete_and_keep_stacks(
    costs: dict[int, float | None], seeds: int, of: int, order: object
) -> None:
    specs = [spec(setting, seed) for setting in costs for seed in range(seeds)]

    def counting(one: RunSpec, reference: str) -> float | None:
        return costs[one.rounds - 1]

    parts = [in_shard(specs, {}, Shard(k, of), counting) for k in range(1, of + 1)]
    assert sorted(one.id for part in parts for one in part) == sorted(one.id for one in specs)
    for part in parts:
        assert [one for one in specs if one in set(part)] == part, "in their order"
        held = [one.group() for one in part]
        assert all(held.count(group) == seeds for group in held), "a stack stays together"
    mixed = list(specs)
    order.shuffle(mixed)  # type: ignore[attr-defined]
    assert [set(in_shard(mixed, {}, Shard(k, of), counting)) for k in range(1, of + 1)] == [set(p) for p in parts]


def test_work_is_shared_evenly_and_what_cannot_be_counted_by_its_number() -> None:
    costs = [9.0, 7.0, 6.0, 5.0, 5.0, 4.0, 3.0, 1.0]
    specs = [spec(setting, 0) for setting in range(8)]
    parts = [in_shard(specs, {}, Shard(k, 2), lambda one, _: costs[one.rounds - 1]) for k in (1, 2)]
    assert [sum(costs[one.rounds - 1] for one in part) for part in parts] == [21.0, 19.0]
    own = {one.id: {"methods": OWN} for one in specs}
    seen = []

    def none(one: RunSpec, reference: str) -> None:
        seen.append(reference)

    thirds = [in_shard(specs, own, Shard(k, 3), none) for k in (1, 2, 3)]  # type: ignore[arg-type]
    assert sorted(map(len, thirds)) == [2, 3, 3]
    assert in_shard(specs, {}, None) == specs


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
