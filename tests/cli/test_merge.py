"""`pflbench merge`: runs and packs of several folders into one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import stored

from pflbench.result import RunResult, Score
from pflbench.store import ShownStore, Store
from pflbench.store.verbs import difference, pack
from pflbench.testing import tiny_spec

SHARDS = ("run", "-s", "tiny.toml", "--seeds", "0-2")


def content(results: Path) -> dict[str, object]:
    store = ShownStore(results)
    return {run.spec.id: store.read(run.spec.id) for run in store.list()}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def scores(results: Path) -> dict[str, object]:
    return {id: result.scores for id, result in content(results).items()}  # type: ignore[attr-defined]


def test_three_shards_merged_are_the_whole(cli, folder: Path) -> None:
    assert cli(*SHARDS, "-r", "whole").code == 0
    numbers = []
    for k in (1, 2, 3):
        planned = cli("plan", "-s", "tiny.toml", "--seeds", "0-2", "--shard", f"{k}/3").out
        ran = cli(*SHARDS, "--shard", f"{k}/3", "-r", f"part{k}")
        assert ran.code == 0
        numbers.append(len(stored(folder / f"part{k}")))
        assert f"{numbers[-1]} runs finished" in ran.out
        assert f"{numbers[-1]} runs to do" in planned
    assert sum(numbers) == 12 and all(number % 3 == 0 for number in numbers)
    merged = cli("merge", "part1", "part2", "part3", "--into", "all")
    assert merged == (0, "12 runs merged into 'all', 0 were there.\n", "")
    assert scores(folder / "all") == scores(folder / "whole")
    assert cli("merge", "part1", "part2", "part3", "--into", "all").out == "0 runs merged into 'all', 12 were there.\n"
    csv = ("report", "-s", "tiny.toml", "--seeds", "0-2", "--format", "csv", "-r")
    assert cli(*csv, "all").out == cli(*csv, "whole").out


@pytest.mark.parametrize("text", ["4/3", "x"])
def test_a_bad_shard(cli, text: str) -> None:
    for verb in ("run", "plan"):
        result = cli(verb, "-s", "tiny.toml", "--shard", text)
        (line,) = result.err.splitlines()
        assert result.code == 2 and line.endswith("is no shard: write K/N with K from 1 to N, as 1/3, 2/3 and 3/3.")


def test_a_shard_without_runs_is_merged(cli, folder: Path) -> None:
    assert cli(*SHARDS, "--shard", "9/9", "-r", "part9").out.startswith("0 runs: 0 done")
    assert cli("plan", *SHARDS[1:], "--shard", "9/9").out == "Nothing to run: the shard is empty.\n"
    assert cli("merge", "part9", "--into", "all").code == 0


def test_packs_are_copied_and_sources_stay(cli, results: Path, folder: Path) -> None:
    pack(Store(results))
    before, there = files(results), content(results)
    assert cli("merge", "results", "--into", "all") == (0, "8 runs merged into 'all', 0 were there.\n", "")
    assert files(results) == before and content(folder / "all") == there
    assert not stored(folder / "all") and len(list((folder / "all" / "packs").iterdir())) == 2
    one = next(iter(there))
    Store(folder / "some").write(there[one])  # type: ignore[arg-type]
    assert cli("merge", "results", "--into", "some") == (0, "7 runs merged into 'some', 1 was there.\n", "")
    assert content(folder / "some") == there


def test_what_a_killed_merge_left_goes(cli, results: Path, folder: Path) -> None:
    pack(Store(results))
    for name in ("runs", "packs"):
        (folder / "all" / name).mkdir(parents=True)
        half = folder / "all" / name / ".x.ab12.tmp"
        half.write_bytes(b"half")
        os.utime(half, (0, 0))
    assert cli("merge", "results", "--into", "all").code == 0
    assert list((folder / "all").rglob("*.tmp")) == []


def test_other_scores_are_said_and_not_taken(cli, results: Path, folder: Path) -> None:
    store, other = Store(results), Store(folder / "other")
    for run in store.list():
        result = store.read(run.spec.id)
        if result.scores:
            last = result.scores[-1]._replace(accuracy=0.123)
            result = replace(result, scores=(*result.scores[:-1], last))
        other.write(result)
    kept = content(results)
    merged = cli("merge", "other", "--into", "results")
    lines = merged.err.splitlines()
    assert merged.code == 1 and len(lines) == 7 and content(results) == kept
    assert all("has other scores in 'other/runs/" in line and line.endswith("stays.") for line in lines)
    assert "(1 of 8)" in lines[0]
    assert merged.out == "0 runs merged into 'results', 1 was there.\n"  # the one that failed in both


def test_a_finished_run_goes_before_a_failed_one(cli, results: Path, folder: Path) -> None:
    store = Store(results)
    (failed,) = [run for run in store.list() if run.failure]
    scores = [score._replace(client=0) for score in store.read(store.list()[0].spec.id).scores]
    finished = replace(store.read(failed.spec.id), failure=None, scores=tuple(scores))
    Store(folder / "other").write(finished)
    assert cli("merge", "other", "--into", "results").out.startswith("1 run merged")
    assert Store(results).status(failed.spec.id) == "done"


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_damaged_run_with_other_scores_costs_no_other(cli, results: Path, folder: Path, side: str) -> None:
    id, *_ = (run.spec.id for run in Store(results).list() if not run.failure)
    sound = Store(results).read(id)
    other = replace(sound, scores=tuple(score._replace(loss_sum=9.0) for score in sound.scores))
    Store(folder / "all").write(other)
    path = Store(results if side == "source" else folder / "all").path(id)
    damaged = bytearray(path.read_bytes())
    damaged[60] ^= 0xFF
    path.write_bytes(damaged)
    merged = cli("merge", "results", "--into", "all")
    assert merged.code == 1 and path.name in merged.err and path.read_bytes() == bytes(damaged)
    assert len(stored(folder / "all")) == 8
    if side == "source":
        assert Store(folder / "all").read(id) == other


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("deep", [False, True])
def test_a_damaged_source_is_named_and_costs_no_other(
    cli, results: Path, folder: Path, deep: bool, packed: bool
) -> None:
    if packed:
        pack(Store(results))
    path = min((results / ("packs" if packed else "runs")).glob("*.parquet"))
    damaged = bytearray(path.read_bytes())
    damaged[60 if deep else -5] ^= 0xFF
    path.write_bytes(damaged)
    before = files(results)
    merged = cli("merge", "results", "--into", "all")
    assert merged.code == 1 and files(results) == before
    assert f"Error: Not merged, or not whole: '{path.relative_to(folder)}'." in merged.err.splitlines()
    lost = (1 if deep else 4) if packed else 1
    assert (
        merged.out == f"{8 - lost} runs merged into 'all', 0 were there.\n" and len(content(folder / "all")) == 8 - lost
    )


def test_what_is_no_source(cli, results: Path) -> None:
    for source in ("nowhere", "results/runs"):
        result = cli("merge", source, "--into", "all")
        assert result.code == 2 and result.err.startswith(
            f"Error: {source!r} is no results folder: it has neither runs/"
        )
    assert cli("merge", "results", "--into", "results") == (0, "0 runs merged into 'results', 8 were there.\n", "")
    assert cli("merge", "--into", "all").code == 2 and cli("merge", "results").code == 2


def test_scores_at_other_moments_are_not_equal_ones() -> None:
    none = RunResult(tiny_spec(), (), {})
    some = RunResult(tiny_spec(), (Score("global", 2, 0, 0, 5, 10, 1.0, 0.5),), {})
    assert difference(none, some) == difference(some, none) == "at no moment that both have"
    assert difference(none, none) == difference(some, some) == ""
