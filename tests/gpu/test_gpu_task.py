"""A task on the second of two made-up GPUs, as `pflbench run --device cuda:1 --memory-limit …` hands it to a worker."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pflbench.catalog import complete, describe
from pflbench.errors import UsageError
from pflbench.running import provenance
from pflbench.running.execution import Execution, choose_devices
from pflbench.running.job import Job, run_job
from pflbench.spec import MethodSpec, Named, RunSpec, Scoring
from pflbench.store.store import Store
from pflbench.testing import tiny_spec

from .pretend import pretended

LIMIT, ALL = 1 << 36, 1 << 40


def spec(seed: int) -> RunSpec:
    info = describe("fedavg")
    return tiny_spec(
        seed,
        MethodSpec(name=info.name, version=info.version, hyper=complete(info, {"epochs": 1})),
        dataset="digits",
        partition=Named(name="shards", options={"shards": 180}),
        model="mlp",
        clients=90,
        cohort=4,
        query=0.2,
        batch=10,
        tail="drop",
        rounds=2,
        scoring=Scoring(stages=("global",), first=3),
        precision="fp32",
    )


def task_on_the_second(folder: Path) -> None:
    """Two seeds together, under a limit; the limit is the process's own again afterwards."""
    specs = (spec(0), spec(1))
    place = Execution(results=folder / "gpu", data_dir=folder, device="cuda:1", stacked=True, memory_limit=LIMIT)
    with pretended(ALL, count=True) as gpu:
        done = run_job(Job(specs), place)
    assert [(d.status, d.message) for d in done] == [("done", "")] * 2, done
    assert gpu.chosen == ["cuda:1"], "graphs are captured on the device that is the process's current one"
    assert gpu.limits == [LIMIT, ALL], f"the limit holds for the run, and for the run alone: {gpu.limits}"
    records = [Store(place.results).read(one.id).provenance for one in specs]
    assert all(r["peak_device_memory"] >= gpu.memory.peak > 0 for r in records)
    assert all(r["device"] == "made-up GPU" for r in records)


def test_a_task_runs_on_its_own_gpu_under_its_limit(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(provenance.device_name.cache_clear)
    task_on_the_second(tmp_path)


def test_cuda_is_the_first_gpu() -> None:
    with pretended() as gpu:
        (device,) = choose_devices("cuda")
        torch.cuda.set_device(device)
        with pytest.raises(ValueError, match="specified index"):
            torch.cuda.set_device("cuda")
        with pytest.raises(UsageError, match="each named once"):
            choose_devices("cuda,cuda:0")
    assert gpu.chosen == ["cuda:0"]
