"""One task: groups of seeds, and what becomes of a run that something keeps from finishing."""

import gc
import weakref
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pflbench import names, trust
from pflbench.catalog import complete, describe
from pflbench.data import content
from pflbench.data.datasets.digits import Digits, RotatedDigits
from pflbench.data.source import Source
from pflbench.engine.simulate import Simulation
from pflbench.errors import StoreError, UsageError
from pflbench.running import build
from pflbench.running import job as module
from pflbench.running.events import unheard
from pflbench.running.execution import Execution
from pflbench.running.job import Done, Job, run_job
from pflbench.running.local import execute
from pflbench.running.worker import clear_errors
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import Store
from pflbench.testing import tiny_spec


def spec(name: str = "fedavg", seed: int = 0, **changes: object) -> RunSpec:
    info = describe(name)
    fields = {
        "dataset": "digits",
        "partition": Named(name="shards", options={"shards": 180}),
        "model": "cnn2",
        "clients": 90,
        "cohort": 2,
        "query": 0.2,
        "batch": 10,
        "tail": "drop",
        "rounds": 1,
        "scoring": Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=1, lr=0.05)),
    }
    method = MethodSpec(name=info.name, version=info.version, hyper=complete(info, {}))
    return tiny_spec(seed, **{"method": method} | fields | changes)


def task(*specs: RunSpec) -> Job:
    return Job(specs)


@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_a_group_of_seeds_stores_what_single_runs_store(tmp_path: Path, method: str) -> None:
    specs = [spec(method, seed) for seed in (0, 1, 2)]
    single, grouped = (
        Execution(results=tmp_path / "single", data_dir=tmp_path),
        Execution(results=tmp_path / "grouped", data_dir=tmp_path, stacked=True),
    )
    for one in specs:
        assert [d.status for d in run_job(task(one), single)] == ["done"]
    assert [d.status for d in run_job(task(*specs), grouped)] == ["done"] * 3
    for one in specs:
        loop, vectorized = Store(single.results).read(one.id), Store(grouped.results).read(one.id)
        assert loop.provenance["execution"] == "loop" and vectorized.provenance["execution"] == "vectorized"
        assert len(loop.scores) == len(vectorized.scores) > 0
        for a, b in zip(loop.scores, vectorized.scores, strict=True):
            assert a._replace(loss_sum=0) == b._replace(loss_sum=0)
            assert a.loss_sum == pytest.approx(b.loss_sum, rel=1e-9, abs=1e-9)


def statuses(dones: list[Done]) -> list[tuple[str, str]]:
    return [(done.status, done.message) for done in dones]


def test_what_is_no_fault_of_the_method_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Execution(results=tmp_path / "results", data_dir=tmp_path)
    impossible = spec(partition=Named(name="shards", options={"shards": 91}))
    ((status, message),) = statuses(run_job(task(impossible), place))
    assert status == "error" and "91 shards cannot be dealt evenly to 90 clients" in message

    for error, expected in (
        (OSError(5, "Input/output error"), "Input/output error"),
        (MemoryError(), "out of memory"),
        (KeyError("x"), "test_task.py, line"),
    ):

        def load(self: Digits, root: Path, seed: int, error: Exception = error) -> None:
            raise error

        build._latest.clear()
        monkeypatch.setattr(Digits, "load", load)
        ((status, message),) = statuses(run_job(task(spec()), place))
        assert status == "error" and expected in message
    assert not Store(place.results).list()


def test_running_out_of_memory_in_training_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def simulate(*_: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("pflbench.running.job.Simulation.run", simulate)
    ((status, message),) = statuses(run_job(task(spec()), Execution(results=tmp_path / "results", data_dir=tmp_path)))
    assert status == "error" and message.startswith("out of memory: ")


def test_nothing_starts_once_results_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("full")

    monkeypatch.setattr(Store, "write", full)
    dones = execute([task(spec(seed=seed)) for seed in (0, 1)], Execution(results=tmp_path, data_dir=tmp_path), unheard)
    assert [(d.status, d.fatal) for d in dones] == [("error", True)]


def test_an_error_is_tried_once_more_and_counted_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By all workers of a results folder; a `--fail-fast` tries nothing again."""
    loads: list[int] = []

    def load(self: Digits, root: Path, seed: int) -> None:
        loads.append(seed)
        raise MemoryError

    build._latest.clear()
    monkeypatch.setattr(Digits, "load", load)
    jobs, execution = [task(spec(seed=seed)) for seed in (0, 1)], Execution(results=tmp_path, data_dir=tmp_path)
    with pytest.warns(UserWarning, match="out of memory. It is tried once more"):
        dones = execute(jobs, execution, unheard)
    assert statuses(dones) == [("error", "out of memory")] * 2 and len(loads) == 4
    dones = execute(jobs, execution, unheard)
    assert [done.elsewhere for done in dones] == [True, True] and len(loads) == 4, "another process, at the same time"
    clear_errors(tmp_path, [job.specs[0].id for job in jobs])
    assert len(execute(jobs, replace(execution, fail_fast=True), unheard)) == 1 and len(loads) == 5
    errors = tmp_path / "claims" / f"{jobs[0].specs[0].id}.errors"
    errors.write_bytes(b"\xff torn\n")
    assert statuses(execute(jobs[:1], execution, unheard)) == [("error", "out of memory")] and len(loads) == 6
    errors.unlink()
    errors.mkdir()  # an attempt that cannot be counted is the last
    assert statuses(execute(jobs[:1], execution, unheard)) == [("error", "out of memory")] and len(loads) == 7


def test_a_result_that_differs_from_the_stored_one_is_not_trained_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, execution = task(spec()), Execution(results=tmp_path, data_dir=tmp_path)
    assert [done.status for done in execute([job], execution, unheard)] == ["done"]
    result = Store(tmp_path).read(job.specs[0].id)
    Store(tmp_path).write(replace(result, scores=tuple(score._replace(accuracy=0.99) for score in result.scores)))
    again = replace(job, stored={job.specs[0].id: str(result.provenance["finished"])})
    (done,) = execute([again], replace(execution, evaluate_every=1), unheard)
    assert done.status == "failed" and "stored result is kept" in done.message


def test_check_finds_what_cannot_be_built() -> None:
    good = (spec(), build.NOWHERE)
    build.check_all([good])
    for wrong in (
        spec(dataset=Named(name="digits", options={"size": 20})),
        spec(partition=Named(name="dirichlet", options={"alpha": -1.0})),
        spec(method=MethodSpec(name="fedavg", version="1", hyper={"epoch": 3})),
    ):
        with pytest.raises(UsageError):
            build.check_all([good, (wrong, build.NOWHERE)])


def test_a_file_that_changed_since_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "foo.py"
    text = (
        "from dataclasses import dataclass\nfrom pflbench.methods import fedavg\n\n\n"
        "@dataclass(frozen=True)\nclass Foo(fedavg.FedAvg):\n    pass\n"
    )
    file.write_text(text)
    trust.grant(f"{file}:Foo")
    info = describe(f"{file}:Foo")
    planned = spec(method=MethodSpec(name=info.name, version=info.version, hyper=complete(info, {})))
    build.check_all([(planned, {"methods": info.reference})])
    file.write_text(text.replace("pass", "version = 2"))
    with pytest.raises(UsageError, match="changed while the suite was running"):
        build.check_all([(planned, {"methods": info.reference})])


def test_a_pool_that_was_read_meanwhile_is_not_taken_for_another(tmp_path: Path) -> None:
    file, places = tmp_path / "mine.npz", {"datasets.file": str(tmp_path / "mine.npz")}
    np.savez(file, train_images=np.zeros((40, 4, 4), dtype=np.uint8), train_labels=np.arange(40) % 2)
    data, black = Named(name="arrays", options={"file": "mine.npz"}), file.read_bytes()
    read = content.of_dataset(build.dataset(data, places), tmp_path, 0)
    division = Named(name="dirichlet-equal", options={"alpha": 1.0})
    planned = spec(dataset=data.model_copy(update={"content": read}), partition=division, clients=2, training_clients=2)
    np.savez(file, train_images=np.full((40, 4, 4), 255, dtype=np.uint8), train_labels=np.arange(40) % 2)
    with pytest.raises(UsageError, match="changed while the suite was running"):
        build.federation(planned, tmp_path, places)
    file.write_bytes(black)
    assert not build.federation(planned, tmp_path, places).x.any()


def test_one_seed_that_cannot_be_does_not_cost_the_others(tmp_path: Path) -> None:
    """The smallest clients of seeds 0, 1, 2 have 12, 15, 15 support rows; a batch of 14 is too much for the first."""
    settings = {
        "partition": Named(name="dirichlet", options={"alpha": 1.0, "minimum": 5}),
        "clients": 60,
        "training_clients": 58,
        "tiny_client": "error",
        "batch": 14,
    }
    specs = [spec(seed=seed, **settings) for seed in range(3)]
    alone, together = (
        Execution(results=tmp_path / "alone", data_dir=tmp_path),
        Execution(results=tmp_path / "together", data_dir=tmp_path, stacked=True),
    )
    expected = [done.status for one in specs for done in run_job(task(one), alone)]
    assert {"error", "done"} == set(expected), "this test needs seeds with and without a tiny client"
    assert [done.status for done in run_job(task(*specs), together)] == expected


def test_test_rows_that_are_missing_are_told_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every round is trained, and the run ends in a division by zero, or with an accuracy of NaN."""
    monkeypatch.setattr(Simulation, "step", lambda _: pytest.fail("a round was trained"))
    place = Execution(results=tmp_path / "results", data_dir=tmp_path)
    for average in ("examples", "batches"):
        scoring = Scoring(global_on="test-set", average=average)  # type: ignore[arg-type]
        (done,) = run_job(task(spec(scoring=scoring)), place)
        assert done.status == "error" and 'global_on = "test-set"' in done.message and "digits" in done.message
    assert not list(Store(place.results).list())
    split = Named(name="digits", options={"size": 8, "test": 100})
    assert len(build.federation(spec(scoring=scoring, dataset=split), tmp_path).test) == 100
    assert len(build.federation(spec(scoring=scoring, validation=0.2), tmp_path).test) > 0


def test_a_method_that_needs_a_clients_rows_is_not_scored_on_the_test_set() -> None:
    """Refused before training. Without that score it runs: also after a run of the same method that is not scored."""
    at_end = Scoring(stages=("global",), global_on="test-set")
    kept, finetune = "cafeme/variants/cafeme.py:KeptContext", Finetune(steps=1, lr=0.1)
    for name, scoring, runs in (
        (kept, at_end, False),
        ("cafeme/variants/cafeme.py:Labels", at_end, False),
        ("cafeme", at_end, True),
        (kept, Scoring(stages=("global",)), True),
        (kept, Scoring(stages=("finetuned",), finetune=finetune), True),
    ):
        info = describe(name)
        method = MethodSpec(name=name, version=info.version, hyper=complete(info, {}))
        finetuned = spec(method=method, scoring=Scoring(stages=("finetuned",), finetune=finetune))
        with nullcontext() if runs else pytest.raises(UsageError):
            build.check_all((one, {}) for one in (finetuned, spec(method=method, scoring=scoring)))
    info = describe("ifca")
    for clusters in (1, 2):
        method = MethodSpec(name=info.name, version=info.version, hyper=complete(info, {"clusters": clusters}))
        with pytest.raises(UsageError) if clusters > 1 else nullcontext():
            build.check_all([(spec(method=method, scoring=at_end), {})])


NETWORK = """
from torch import nn

def plain(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, classes))

def normed(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))
"""


def test_seeds_share_a_pool_that_does_not_depend_on_them(tmp_path: Path) -> None:
    first, second = (build.federation(spec(seed=seed), tmp_path) for seed in (0, 1))
    assert first.x is second.x
    rotated = Named(name="rotated-digits", options={})
    first, second = (build.federation(spec(seed=seed, dataset=rotated), tmp_path) for seed in (0, 1))
    assert first.x is not second.x and not first.x.equal(second.x)


def test_a_process_holds_one_pool_and_lets_go_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the next one is loaded: the one before is gone by then, and all that its run held."""
    held: list[weakref.ref[object]] = []
    load = RotatedDigits.load

    def loaded(self: RotatedDigits, root: Path, seed: int) -> Source:
        assert [one() for one in held] == [None] * len(held)
        source = load(self, root, seed)
        held.append(weakref.ref(source.images))
        return source

    def simulated(*args: Any) -> Simulation:
        made = Simulation(*args)
        held.append(weakref.ref(made))
        return made

    monkeypatch.setattr(RotatedDigits, "load", loaded)
    monkeypatch.setattr(module, "Simulation", simulated)
    rotated = Named(name="rotated-digits", options={})
    gc.disable()
    try:
        for seed in (0, 1, 2):
            (done,) = run_job(
                task(spec(seed=seed, dataset=rotated)), Execution(results=tmp_path / "results", data_dir=tmp_path)
            )
            assert done.status == "done"
    finally:
        gc.enable()
    assert len(held) == 6


@pytest.mark.parametrize("follow", [False, True])
def test_a_group_lets_go_of_its_memory_before_its_runs_are_tried_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    groups: list[weakref.ref[Simulation]] = []
    train = Simulation.run

    def run(self: Simulation) -> Any:
        if len(self.runs) > 1:
            groups.append(weakref.ref(self))
            raise torch.OutOfMemoryError
        assert [group() for group in groups] == [None]
        return train(self)

    monkeypatch.setattr(Simulation, "run", run)
    gc.disable()
    try:
        file = str(tmp_path / "rounds.jsonl") if follow else None
        place = Execution(results=tmp_path / "results", data_dir=tmp_path, stacked=True, follow=file)
        dones = run_job(task(spec(seed=0), spec(seed=1)), place)
    finally:
        gc.enable()
    assert [(done.status, done.message) for done in dones] == [("done", "")] * 2


def test_what_loading_leaves_is_given_back_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order, load, train = [], build.federation, Simulation.run
    monkeypatch.setattr(build, "federation", lambda *args: order.append("load") or load(*args))
    monkeypatch.setattr(module, "tidy", lambda: order.append("tidy"))
    monkeypatch.setattr(Simulation, "run", lambda self: order.append("train") or train(self))
    run_job(task(spec()), Execution(results=tmp_path, data_dir=tmp_path))
    assert order == ["load", "tidy", "train"]


def test_fp32_never_means_tf32(tmp_path: Path) -> None:
    torch.backends.cudnn.allow_tf32 = True
    run_job(task(spec(precision="fp32")), Execution(results=tmp_path, data_dir=tmp_path))
    assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("raises", [False, True])
def test_a_method_file_that_vanishes_while_it_runs_costs_nothing(tmp_path: Path, raises: bool) -> None:
    file = tmp_path / "foo.py"
    source = (
        "from dataclasses import dataclass\nfrom pathlib import Path\n"
        "from pflbench.methods.base import Draw, Method\n\n\n"
        "@dataclass(frozen=True)\nclass Foo(Method):\n"
        "    def draws(self, round):\n        return (Draw(steps=1),)\n\n"
        "    def client(self, f, server, state, *taken, round):\n"
        "        Path(__file__).unlink(missing_ok=True)\n"
        + ("        raise KeyError('gone')\n" if raises else "        return server, state\n")
    )
    file.write_text(source)
    method = MethodSpec(name="foo.py:Foo", version=names.code(f"{file}:Foo").version)
    place = Execution(results=tmp_path / "results", data_dir=tmp_path)
    (done,) = run_job(Job((spec(method=method),), {"methods": f"{file}:Foo"}), place)
    assert not file.exists() and done.status == ("failed" if raises else "done")
    assert Store(place.results).read(done.spec.id).provenance["method_source"] == source
    assert not raises or (done.message.startswith("KeyError: 'gone'") and "foo.py, line 13" in done.message)


USERS = """from dataclasses import dataclass

from pflbench.methods.base import Draw, Method


@dataclass(frozen=True)
class Foo(Method):
    def draws(self, round):
        return (Draw(steps=1),)

    def init(self, new, clients):
        {init}

    def client(self, f, server, state, *taken, round):
        {client}
"""


@pytest.mark.parametrize(
    ("init", "client", "message"),
    [
        ("return new.part('heart')", "return server, state", "This network has no part 'heart'"),
        ("raise ValueError('no init')", "return server, state", "ValueError: no init ("),
        ("return new(0)", "server", "Foo.client()"),
        ("return new(0)", "return server", "Foo.client()"),
        ("return new(0)", "return None, state", "the upload of client() is None"),
        ("return new(0)", "return server, None", "the state of client() is None"),
        ("return new(0)", "return server.float(), state", "the upload of client() is float32"),
        ("return new(0)", "return server[:5], state", "the upload of client() is float64[5]"),
        ("new(0)", "return server, state", "the state of init() is None"),
    ],
)
def test_what_is_wrong_with_a_method_is_said_in_its_own_terms(
    tmp_path: Path, init: str, client: str, message: str
) -> None:
    """Also where it raises before the first round, when there is no cost to tell of yet."""
    file = tmp_path / "foo.py"
    file.write_text(USERS.format(init=init, client=client))
    method = MethodSpec(name="foo.py:Foo", version=names.code(f"{file}:Foo").version)
    (done,) = run_job(
        Job((spec(method=method),), {"methods": f"{file}:Foo"}),
        Execution(results=tmp_path / "results", data_dir=tmp_path),
    )
    assert done.status in ("failed", "error") and "UnboundLocalError" not in done.message
    assert message in done.message
