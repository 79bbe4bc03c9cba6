"""Runs that are stopped and taken up again: the same scores, and no checkpoint that would compute something else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pflbench.catalog import complete, describe
from pflbench.result import RunResult
from pflbench.running import checkpoint, stopping
from pflbench.running.execution import Execution
from pflbench.running.job import Job, run_job
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import Store
from pflbench.testing import tiny_spec
from pflbench.units import Interval

ROUNDS = 4


def spec(name: str = "ditto", seed: int = 0, **fields: Any) -> RunSpec:
    info = describe(name)
    usual: dict[str, Any] = {
        "dataset": "digits",
        "partition": Named(name="shards", options={"shards": 180}),
        "model": "cnn2",
        "clients": 90,
        "cohort": 2,
        "query": 0.2,
        "batch": 10,
        "tail": "drop",
        "rounds": ROUNDS,
        "scoring": Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=1, lr=0.05)),
        "precision": "fp32",
    }
    method = MethodSpec(name=info.name, version=info.version, hyper=complete(info, {}))
    return tiny_spec(seed, method, **usual | fields)


@pytest.fixture
def place(tmp_path: Path) -> Execution:
    return Execution(
        results=tmp_path / "results", data_dir=tmp_path, evaluate_every=1, checkpoint_every=Interval(rounds=1)
    )


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rounds are trained before the stop, once set."""
    left: list[int] = []

    def requested() -> bool:
        if left:
            left[0] -= 1
        if left == [0]:
            left.clear()
            return True
        return False

    monkeypatch.setattr(stopping, "heard", requested)
    return left


def result(place: Execution, one: RunSpec) -> RunResult:
    return Store(place.results).read(one.id)


def undisturbed(tmp_path: Path, one: RunSpec) -> RunResult:
    alone = Execution(results=tmp_path / "undisturbed", data_dir=tmp_path, evaluate_every=1)
    assert [(done.status, done.detail) for done in run_job(Job((one,)), alone)] == [("done", "")]
    return result(alone, one)


def files(place: Execution) -> list[str]:
    return sorted(path.name for path in (place.results / "checkpoints").glob("*"))


def name(one: RunSpec) -> str:
    return f"{one.id}.safetensors"


def test_without_the_option_a_checkpoint_is_taken_up_and_goes_with_the_run(place: Execution, stop: list[int]) -> None:
    one = spec()
    stop.append(2)
    assert run_job(Job((one,)), place) == [] and files(place) == [name(one)]
    (done,) = run_job(Job((one,)), replace(place, checkpoint_every=None))
    assert (done.status, done.resumed) == ("done", 1) and not (place.results / "checkpoints").exists()


def test_stopped_after_every_round_in_turn(tmp_path: Path, place: Execution, stop: list[int]) -> None:
    one = spec("ditto")
    expected, heard, total = undisturbed(tmp_path, one), list[int](), one.rounds
    stops = 0
    for _ in range(total + 1):
        stop[:] = [1]
        dones = run_job(Job((one,)), place, heard.append)
        if dones:
            break
        stops += 1
        assert files(place) == [name(one)]
    assert [done.status for done in dones] == ["done"]
    again = result(place, one)
    assert again.scores == expected.scores and again.metrics == expected.metrics
    assert again.provenance["resumed"] == stops == total, "also after the last, before it is scored"
    each = [rounds for first in range(total) for rounds in (first, first + 1)]
    assert heard == [*each, total], "each begins where the one before ended: no round was computed twice"
    assert not (place.results / "checkpoints").exists()


def test_a_stack_of_seeds_goes_on_to_rounding(tmp_path: Path, place: Execution, stop: list[int]) -> None:
    group, place = [spec("ditto", seed) for seed in (0, 1)], replace(place, stacked=True)
    stop[:] = [2]
    assert run_job(Job(tuple(group)), place) == []
    assert [done.status for done in run_job(Job(tuple(group)), place)] == ["done"] * 2
    for one in group:
        expected, again = undisturbed(tmp_path, one), result(place, one)
        assert again.provenance["resumed"] == 1
        assert [s.correct for s in again.scores] == [s.correct for s in expected.scores]


@pytest.mark.parametrize("changed", ["torch", "code", "evaluate_every"])
def test_what_would_compute_something_else_begins_anew(
    tmp_path: Path, place: Execution, stop: list[int], monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    one = spec()
    stop[:] = [2]
    assert run_job(Job((one,)), place) == []
    conditions = checkpoint.conditions
    if changed == "evaluate_every":
        place = replace(place, evaluate_every=2)
    else:
        monkeypatch.setattr(checkpoint, "conditions", lambda *how: conditions(*how) | {changed: "other"})
    with pytest.warns(UserWarning, match=f"is not used, and training begins anew: its {changed} is .*, now (other|2)"):
        assert [done.status for done in run_job(Job((one,)), place)] == ["done"]
    assert "resumed" not in result(place, one).provenance
    if changed != "evaluate_every":
        assert result(place, one).scores == undisturbed(tmp_path, one).scores


def flip(path: Path, at: int) -> None:
    """Change one bit of a file; `at`: the byte, from its end."""
    content = bytearray(path.read_bytes())
    content[-at] ^= 4
    path.write_bytes(content)


def sign(path: Path, text: bytes) -> None:
    """Write a checkpoint of other values, with their checksum."""
    tensors = {**load_file(path), checkpoint.VALUES: torch.frombuffer(bytearray(text), dtype=torch.uint8)}
    save_file(tensors, path, {checkpoint.CHECKSUM: checkpoint._checksum(tensors)})


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": lambda path: os.truncate(path, 500),
    "empty": lambda path: os.truncate(path, 0),
    "a bit of a tensor": lambda path: flip(path, 100),
    "no checksum": lambda path: save_file(load_file(path), path),
    "no JSON": lambda path: sign(path, b"{"),
    "deep JSON": lambda path: sign(path, b"[" * 100_000),
    "other JSON": lambda path: sign(path, b"[]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_training_begins_anew(
    tmp_path: Path, place: Execution, stop: list[int], damage: str
) -> None:
    """Never a failed run, nor other scores."""
    one = spec()
    stop[:] = [2]
    run_job(Job((one,)), place)
    DAMAGES[damage](place.results / "checkpoints" / name(one))
    with pytest.warns(UserWarning, match="is not used, and training begins anew"):
        (done,) = run_job(Job((one,)), place)
    assert (done.status, done.resumed) == ("done", 0)
    assert result(place, one).scores == undisturbed(tmp_path, one).scores


def test_a_full_disk_costs_the_checkpoint_only(place: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.warns(UserWarning, match="No checkpoint after round 1: .*No space left on device.*. Training goes on."):
        assert [done.status for done in run_job(Job((spec(),)), place)] == ["done"]


def test_a_stop_on_a_full_disk_claims_no_checkpoint(
    place: Execution, stop: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    stop[:] = [2]
    with pytest.warns(UserWarning) as warned:
        assert run_job(Job((spec(),)), place) == []
    first, last = (str(one.message) for one in warned)
    assert first.startswith("No checkpoint after round 1") and first.endswith("Training goes on.")
    assert last.startswith("No checkpoint after round 2: ") and "goes on" not in last
    assert files(place) == []


def test_seconds_add_up(place: Execution, stop: list[int]) -> None:
    one = spec()
    stop[:] = [2]
    run_job(Job((one,)), place)
    path = place.results / "checkpoints" / name(one)
    values = json.loads(load_file(path)[checkpoint.VALUES].numpy().tobytes())
    sign(path, json.dumps(values | {"seconds": values["seconds"] + 1000}).encode())
    (done,) = run_job(Job((one,)), place)
    assert done.resumed == 1
    assert 1000 < result(place, one).provenance["wall_seconds"] < 1500


COMMAND = (
    *(sys.executable, "-m", "pflbench", "run", "--suite", "cafeme-table1", "--profile", "smoke", "--quiet"),
    *("--column", "rmnist-shards", "--method", "fedavg", "--method", "ditto", "--rounds", "100000", "--device", "cpu"),
    *("--jobs", "2", "--checkpoint-every", "1"),
)


def checkpoints(results: Path) -> list[str]:
    return [path.name for path in results.glob("checkpoints/*.safetensors")]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("to_all", [False, True], ids=["to the first process", "to all"])
def test_sigterm_ends_after_the_round_with_75(tmp_path: Path, to_all: bool) -> None:
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen([*COMMAND, "--results", str(tmp_path)], stderr=said, start_new_session=True)
        try:
            while len(checkpoints(tmp_path)) < 2:  # both train
                assert process.poll() is None
                time.sleep(0.2)
            (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
            assert process.wait(60) == 75
        finally:
            process.kill()
    told = (tmp_path / "said").read_text()
    assert "Stopped by SIGTERM. The same command goes on" in told and "Error" not in told
    assert not list(tmp_path.glob("claims/*.errors"))  # a worker that stops has not failed
    assert len(checkpoints(tmp_path)) == 2 and not list(tmp_path.glob("runs/*.parquet"))
