"""`--executor slurm` on a Slurm of one node: an array, a job that is put back into its queue, and one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_kit import METHOD, start

from pflbench.store import Store

pytestmark = pytest.mark.slow

pytest.importorskip("submitit")
if "ONE_NODE_SLURM" not in os.environ:
    pytest.skip("not under tools/machines/slurm.sh, which sets a Slurm of one node up", allow_module_level=True)
RUN = (
    "run",
    "-s",
    "tiny.toml",
    "--column",
    "shards",
    "-m",
    "foo.py:Foo",
    "--seeds",
    "0-5",
    "--rounds",
    "40",
    "--unchecked",
)


def scores(results: Path) -> dict[str, object]:
    store = Store(results)
    return {run.spec.id: store.read(run.spec.id).scores for run in store.list()}


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def job_process(number: int) -> int:
    """The process in which this task of the array trains."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if (
            f"SLURM_ARRAY_TASK_ID={number}".encode() in environment
            and command.count(b"submitit.core._submit")
            and b"srun" not in command
        ):
            return int(path.name)
    raise AssertionError(f"task {number} of the array has no process")


def wait_for(met, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_an_array_with_a_job_put_back_and_one_killed(folder: Path) -> None:
    slow = METHOD.replace(
        "        (batches,) = taken", "        import time\n        time.sleep(0.1)\n        (batches,) = taken"
    )
    (folder / "foo.py").write_text(slow)
    here = start(*RUN, "-r", "here", cwd=folder)
    _, err = here.communicate(timeout=300)
    assert here.returncode == 0, err
    process = start(*RUN, "--executor", "slurm", "--slots", "2", "--slurm", "time=30", "-r", "jobs", cwd=folder)
    claims, stored = folder / "jobs" / "claims", folder / "jobs" / "runs"
    wait_for(lambda: len(list(claims.glob("*.claim"))) == 2)
    wait_for(lambda: len(list(stored.glob("*.parquet"))) >= 1)
    (job,) = {line.split("_")[0] for line in slurm("squeue", "--noheader", "--array", "--format=%i").split()}
    time.sleep(2)
    slurm("scancel", "--signal=USR2", f"{job}_0")
    wait_for(lambda: list((folder / "jobs" / "checkpoints").glob("*.safetensors")))
    os.kill(job_process(1), signal.SIGKILL)
    out, err = process.communicate(timeout=400)
    logs = "\n".join(
        path.read_text() for path in (Path(os.environ["XDG_CACHE_HOME"]) / "pflbench" / "slurm").glob("*_log.*")
    )
    assert process.returncode == 0, (out, err, logs)
    assert (
        f"Submitted 2 Slurm jobs; `scancel {job}` ends them." in out
        and "6 runs finished, 0 failed, 0 not started" in out
    )
    assert f"Requeued job {job}_0" in logs
    assert scores(folder / "jobs") == scores(folder / "here") and len(scores(folder / "here")) == 6
    assert sum(run.provenance.get("resumed", 0) for run in Store(folder / "jobs").list()) >= 1
    assert not slurm("squeue", "--noheader") or process.returncode == 0
