"""`--executor slurm` by submitit's local executor, which starts the same jobs as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_kit import METHOD, stored

from pflbench.running import slurm, training
from pflbench.store import Store

pytestmark = pytest.mark.slow

pytest.importorskip("submitit")
SHARDS = ("run", "-s", "tiny.toml", "--column", "shards")


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The jobs that were submitted."""
    submitted: list[Any] = []
    real = slurm.submit

    def submit(*order: Any) -> slurm.Array:
        made = real(*order)
        submitted.extend(made.jobs)
        return made

    monkeypatch.setattr(slurm, "CLUSTER", "local")
    monkeypatch.setattr(slurm, "PAUSE", 0.2)
    monkeypatch.setattr(slurm, "submit", submit)
    yield submitted
    for job in submitted:
        job._process.wait(60)


def interrupt(job: Any) -> None:
    """What Slurm does before a job's time is up, to its process.

    `job._interrupt()` of submitit 1.5.4 sends the signal to the process that looks after the job's, which dies of it.
    """
    children = Path(f"/proc/{job._process.pid}/task/{job._process.pid}/children")
    if not children.exists():
        pytest.skip("the system does not tell a process's children")
    for pid in children.read_text().split():
        os.kill(int(pid), signal.SIGUSR2)


def scores(results: Path) -> dict[str, object]:
    store = Store(results)
    return {run.spec.id: store.read(run.spec.id).scores for run in store.list()}


def test_jobs_train_what_one_process_trains(cli, folder: Path) -> None:
    result = cli(*SHARDS, "--executor", "slurm", "--slots", "2", "-r", "jobs")
    assert result.code == 0 and "Error" not in result.err
    assert "Submitted 2 Slurm jobs; `scancel" in result.out and "4 runs finished, 0 failed, 0 not started" in result.out
    assert "[4/4] shards" in result.out
    assert cli(*SHARDS, "-r", "here").code == 0
    assert scores(folder / "jobs") == scores(folder / "here")
    private = Path(os.environ["XDG_CACHE_HOME"]) / "pflbench" / "slurm"
    assert private.stat().st_mode & 0o777 == 0o700 and not list((folder / "jobs").rglob("*.pkl"))


def test_what_is_submitted_is_a_function_and_json(cli, folder: Path, monkeypatch) -> None:
    given: list[object] = []

    class Executor:
        def map_array(self, function, texts):
            given.extend([function, *texts])
            return []

    monkeypatch.setattr(slurm, "_executor", lambda folder, execution: Executor())
    monkeypatch.setattr(slurm.Array, "name", "7")
    assert cli(*SHARDS, "--executor", "slurm", "--no-wait").code == 0
    function, text, *more = given
    assert function is slurm.drain and len(more) == 3 and set(more) == {text}  # no more jobs than runs
    told = json.loads(str(text))
    work, execution = told
    assert execution["results"] == str(folder / "results") and len(work) == 4
    assert execution["checkpoint_every"] == [None, 600.0] and execution["wait"] is False


def test_a_job_that_is_interrupted_goes_on_from_its_checkpoint(cli, folder: Path, monkeypatch, jobs) -> None:
    """The signal that comes before a job's time is up: the checkpoint is written, and the job begins again."""
    slow = METHOD.replace(
        "        (batches,) = taken",
        "        import time\n        open('rounds.log', 'a').write('x')\n        time.sleep(0.1)\n        (batches,) = taken",
    )
    (folder / "foo.py").write_text(slow)
    command = (*SHARDS, "-m", "foo.py:Foo", "--seeds", "0", "--rounds", "30", "--unchecked")
    assert cli(*command, "-r", "whole").code == 0
    whole = len((folder / "rounds.log").read_text())
    (folder / "rounds.log").unlink()
    looks: list[bool] = []

    def over(self: slurm.Array) -> bool:
        log = folder / "rounds.log"
        if not looks and log.exists() and len(log.read_text()) > 3:
            looks.append(True)
            interrupt(jobs[0])
        return all(job.done() for job in self.jobs)

    monkeypatch.setattr(slurm.Array, "is_over", property(over))
    result = cli(*command, "--executor", "slurm", "--slots", "1", "-r", "jobs")
    logs = jobs[0].stdout() + jobs[0].stderr()
    assert result.code == 0 and looks, logs
    assert "Requeued job" in logs
    (run,) = Store(folder / "jobs").list()
    assert run.provenance["resumed"] == 1 and scores(folder / "jobs") == scores(folder / "whole")
    assert len((folder / "rounds.log").read_text()) < whole + 2  # no round, of two clients, was computed twice
    assert len(stored(folder / "jobs")) == 1 and not (folder / "jobs" / "checkpoints").exists()


def test_a_run_that_kills_its_process_costs_no_other(cli, folder: Path) -> None:
    doom = "        import os\n        open('log', 'a').write('x')\n        os.kill(os.getpid(), 9)\n"
    (folder / "foo.py").write_text(METHOD.replace("        (batches,) = taken", doom + "        (batches,) = taken"))
    part = ("-m", "foo.py:Foo", "-m", "ditto", "--seeds", "0", "--unchecked")
    result = cli(*SHARDS, *part, "--executor", "slurm", "--slots", "1")
    assert result.code == 1 and "1 run finished, 1 failed, 0 not started" in result.out
    assert "was killed" in result.err and (folder / "log").read_text() == "xx"  # two attempts


def test_a_shard_is_taken_once(cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs train all runs of the shard, not a shard of them."""
    texts: list[str] = []

    class Executor:
        def map_array(self, function, several):
            texts.extend(several)
            return []

    monkeypatch.setattr(slurm, "_executor", lambda folder, execution: Executor())
    monkeypatch.setattr(slurm.Array, "name", "7")
    command = (*SHARDS, "-m", "fedavg", "-m", "ditto", "--seeds", "0", "--shard", "1/2")
    assert cli(*command, "--executor", "slurm", "--no-wait").code == 0
    slurm.drain(texts[0])
    assert len(stored(folder / "results")) == 1
    assert "1 run: 1 done" in cli(*command).out


def test_a_dry_run_says_which_jobs_it_would_submit(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "submit", None)  # cannot be called
    options = ("--executor", "slurm", "--slots", "3", "--slurm-partition", "gpu", "--gpus-per-task", "1")
    result = cli(*SHARDS, "--dry-run", *options, "--slurm", "time=120")
    assert result.code == 0
    for text in (
        "3 Slurm jobs (--slots 3) for 4 runs",
        "partition gpu",
        "gpus_per_task 1",
        "timeout_min 120",
        "4 runs to do",
    ):
        assert text in result.out
    assert (
        "1 Slurm job (--slots 8) for 1 run"
        in cli(*SHARDS, "-m", "ditto", "--seeds", "0", "--dry-run", *options[:2]).out
    )


def test_the_hours_of_a_dry_run_are_those_of_the_runs_that_it_would_train(cli, monkeypatch) -> None:
    monkeypatch.setattr(training, "DataCheck", lambda root: SimpleNamespace(problems=lambda spec, code: []))
    part = "--suite cafeme-table1 --profile quick --column rmnist-shards -m fedavg --seeds 0".split()
    result = cli("run", *part, "--dry-run", "--fresh", "--executor", "slurm")
    assert "for 1 run:" in result.out and "1 run to do" in result.out


def test_why_jobs_end_without_results_is_said(cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "drain", lambda text: 0)  # a job that trains nothing
    result = cli(*SHARDS, "-m", "ditto", "--seeds", "0", "--executor", "slurm")
    assert result.code == 1 and "without a result: 1 run" in result.err


def test_where_no_slurm_is_that_is_said(cli, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(slurm, "CLUSTER", "slurm")
    monkeypatch.setattr("shutil.which", lambda name: None)
    result = cli(*SHARDS, "--executor", "slurm")
    told = " ".join(result.err.split())
    assert result.code == 2 and "there is no Slurm on this machine (no srun)" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--slots", "2"), "--slots goes with --executor slurm or ray."),
        (("--executor", "ray", "--slurm-partition", "gpu"), "--slurm-partition goes with --executor slurm."),
        (("--executor", "cloud"), "Unknown --executor 'cloud'; known: local, slurm, ray."),
        (("--executor", "slurm", "--slurm", "time"), "'time' is no setting: write name=value, as time=240."),
        (("--executor", "slurm", "--slurm", "time=4h"), "--slurm time=4h: write minutes, as time=240."),
        (("--executor", "slurm", "--gpus-per-task", "0.5"), "--gpus-per-task: a Slurm job has whole GPUs."),
    ],
)
def test_what_does_not_go_together_is_one_message(cli, folder: Path, options: tuple[str, ...], message: str) -> None:
    result = cli(*SHARDS, *options)
    assert result.code == 2 and message in " ".join(result.err.split()), result
