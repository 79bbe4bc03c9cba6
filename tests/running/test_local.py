"""Runs on several cores give what they give on one; and what is recorded beside them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pflbench.catalog import complete, describe
from pflbench.result import RunResult
from pflbench.running import stopping
from pflbench.running.events import Progress
from pflbench.running.execution import Execution
from pflbench.running.job import Done, Job, run_job
from pflbench.running.local import execute
from pflbench.spec import Finetune, MethodSpec, Named, Scoring
from pflbench.store import Store
from pflbench.testing import tiny_spec
from pflbench.units import Interval

ROUNDS = 5


def task(seed: int = 0, name: str = "fedavg", **hyper: Any) -> Job:
    info = describe(name)
    spec = tiny_spec(
        seed,
        MethodSpec(name=info.name, version=info.version, hyper=complete(info, hyper)),
        dataset="digits",
        partition=Named(name="shards", options={"shards": 180}),
        model="cnn2",
        clients=90,
        query=0.2,
        batch=10,
        tail="drop",
        rounds=ROUNDS,
        scoring=Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=1, lr=0.05)),
        precision="fp32",
    )
    return Job((spec,))


def quick(seed: int = 0) -> Job:
    return task(seed, epochs=1, lr=0.05)


def executed(tasks: list[Job], place: Execution, jobs: int) -> tuple[list[RunResult], list[Progress | Done]]:
    events: list[Progress | Done] = []
    dones = execute(tasks, replace(place, jobs=jobs), events.append)
    assert [done.status for done in dones] == ["done"] * len(tasks), dones
    return [Store(place.results).read(t.specs[0].id) for t in tasks], events


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[RunResult]:
    """Three runs on one core."""
    folder = tmp_path_factory.mktemp("one")
    return executed([quick(seed) for seed in range(3)], Execution(results=folder, data_dir=folder), jobs=1)[0]


def test_one_task_on_two_cores_trains_clients_together_and_is_the_same(
    results: list[RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    class Watched(ThreadPoolExecutor):
        def __init__(self, lanes: int, **options: Any):
            used.append(lanes)
            super().__init__(lanes, **options)

    monkeypatch.setattr("pflbench.engine.client_map.ThreadPoolExecutor", Watched)
    ((found,), events) = executed([quick()], Execution(results=tmp_path, data_dir=tmp_path), jobs=2)
    assert found.scores == results[0].scores and set(used) == {2}
    assert isinstance(events[0], Progress) and events[0].rounds is None and isinstance(events[-1], Done)


def test_three_tasks_on_two_cores_are_the_same(results: list[RunResult], tmp_path: Path) -> None:
    """In worker processes; the last of three has both cores."""
    tasks = [quick(seed) for seed in range(3)]
    found, events = executed(tasks, Execution(results=tmp_path, data_dir=tmp_path), jobs=2)
    assert [run.scores for run in found] == [run.scores for run in results]
    moved = [event for event in events if isinstance(event, Progress)]
    assert {event.job for event in moved if event.rounds is None} == set(tasks)
    assert all(0 <= event.rounds <= ROUNDS for event in moved if event.rounds is not None)


def test_a_run_says_what_it_took_and_how_it_was_computed(results: list[RunResult], tmp_path: Path) -> None:
    found = results[0].provenance
    assert found["padding"] == 1.0 and found["execution"] == "loop" and found["seeds_together"] == "0"
    assert found["deterministic"] is False and found["evaluate_every"] is None
    assert found["wall_seconds"] > 0 and found["peak_device_memory"] is None
    group = Job(tuple(quick(seed).specs[0] for seed in (0, 1)))
    place = Execution(results=tmp_path, data_dir=tmp_path, stacked=True, evaluate_every=2)
    assert [done.status for done in run_job(group, place)] == ["done"] * 2
    for spec in group.specs:
        run = Store(tmp_path).read(spec.id)
        assert run.provenance["execution"] == "vectorized" and run.provenance["seeds_together"] == "0,1"
        assert run.provenance["evaluate_every"] == 2 and {s.round for s in run.scores} == {2, 4, 5}
        assert 1.0 <= run.provenance["padding"] <= 1.25


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`deterministic` is a setting of the whole process."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ":4096:8"))
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_deterministic_runs_are_the_same_twice_and_as_without(execution: Any, tmp_path: Path) -> None:
    places = [
        Execution(results=tmp_path / str(i), data_dir=tmp_path, stacked=execution == "vectorized", deterministic=i > 0)
        for i in range(3)
    ]
    found = [executed([quick()], place, jobs=1)[0][0] for place in places]
    assert found[0].scores == found[1].scores == found[2].scores
    assert [run.provenance["deterministic"] for run in found] == [False, True, True]


@pytest.mark.usefixtures("restored")
def test_deterministic_is_of_its_own_runs_only(tmp_path: Path) -> None:
    place = Execution(results=tmp_path, data_dir=tmp_path, deterministic=True)
    run_job(quick(), place)
    assert torch.are_deterministic_algorithms_enabled()
    run_job(quick(), replace(place, deterministic=False))
    assert not torch.are_deterministic_algorithms_enabled()


LIMITED = """
import json, sys
from pathlib import Path
import torch
from test_local import quick
from pflbench.running.allocator import in_use
from pflbench.running.execution import Execution
from pflbench.running.job import run_job
from pflbench.store import Store

torch.set_num_threads(1)
folder, execution, more = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
run_job(quick(1), Execution(results=folder / "before", data_dir=folder))
limit = in_use() + (more << 20)
(done,) = run_job(quick(), Execution(results=folder / "limited", data_dir=folder, stacked=execution == "vectorized", memory_limit=limit))
print(json.dumps([done.status, done.message, len(Store(folder / "limited").list())]))
"""


def limited(folder: Path, execution: str, more: int) -> list[Any]:
    """A run that may take so many MB more than the process has after another run: status, message, runs stored.

    In a process of its own, for Python itself may be harmed by want of memory.
    """
    command = [sys.executable, "-c", LIMITED, str(folder), execution, str(more)]
    done = subprocess.run(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, check=True, text=True)
    found: list[Any] = json.loads(done.stdout)
    return found


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a processor's memory is limited on Linux only")


@linux
def test_a_limit_far_above_what_is_used_stops_nothing(tmp_path: Path) -> None:
    """What counts is memory in use, not address space: libraries set some aside (pyarrow 1 GiB, once it has written)."""
    assert limited(tmp_path, "loop", 600) == ["done", "", 1]


@linux
def test_a_limit_that_is_too_low_is_no_failure_of_the_method(tmp_path: Path) -> None:
    """Whatever library meets the limit first: nothing is stored, so that the run is tried again."""
    status, message, stored = limited(tmp_path, "vectorized", 1)
    assert (status, stored) in {("error", 0), ("done", 1)}, message
    assert not message or message.startswith("out of memory")


def test_workers_that_stop_on_request_have_not_failed(tmp_path: Path) -> None:
    long = [Job((job.specs[0].model_copy(update={"rounds": 100_000}),)) for job in (quick(0), quick(1))]
    place = Execution(results=tmp_path, data_dir=tmp_path, jobs=2, checkpoint_every=Interval(seconds=1e6))
    heard: list[object] = []

    def hear(event: object) -> None:
        heard.append(event)
        if isinstance(event, Progress) and event.rounds:
            stopping.request(signal.SIGTERM, None)

    with stopping.heeding():
        assert execute(long, place, hear) == []
    assert not any(isinstance(event, Done) for event in heard)
    assert not list(tmp_path.glob("claims/*.errors"))


def test_an_error_of_the_listener_is_its_own(tmp_path: Path) -> None:
    def hear(event: object) -> None:
        raise BrokenPipeError

    place = Execution(results=tmp_path, data_dir=tmp_path, jobs=2)
    with pytest.raises(BrokenPipeError):
        execute([quick(seed) for seed in range(3)], place, hear)
