"""`pflbench plan --sbatch`: the array script, run here as Slurm would run it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_kit import METHOD, stored

PLAN = ("plan", "-s", "tiny.toml", "--column", "shards", "--sbatch")


@pytest.mark.slow
def test_the_script_trains_what_is_asked_for(cli, folder: Path) -> None:
    text = cli(*PLAN).out
    (folder / "jobs.sh").write_text(text)
    assert "and --jobs below." in text and " --jobs 1 " in text
    assert "#SBATCH --array=1-8" in text and "--signal=B:TERM@120" in text
    both = [subprocess.Popen(["bash", "jobs.sh"], cwd=folder, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [one.wait(120) for one in both] == [0, 0]
    assert len(stored(folder / "results")) == 4


@pytest.mark.slow
def test_a_job_whose_time_is_up_is_put_back(cli, folder: Path) -> None:
    """SIGTERM ends the round; the checkpoint is written, and the array's task is put back into the queue."""
    slow = METHOD.replace(
        "        (batches,) = taken", "        import time\n        time.sleep(0.2)\n        (batches,) = taken"
    )
    (folder / "foo.py").write_text(slow)
    command = (*PLAN, "-m", "foo.py:Foo", "--seeds", "0", "--rounds", "200")
    (folder / "jobs.sh").write_text(cli(*command).out.replace("--no-wait", "--no-wait --unchecked"))
    (folder / "scontrol").write_text('#!/bin/bash\necho "$@" > put_back\n')
    (folder / "scontrol").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "3",
    }
    job = subprocess.Popen(["bash", "jobs.sh"], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    while not list((folder / "results" / "claims").glob("*.claim")):
        assert job.poll() is None
        time.sleep(0.1)
    time.sleep(1)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) == 75
    assert (folder / "put_back").read_text() == "requeue 7_3\n"
    assert list((folder / "results" / "checkpoints").glob("*/*/checkpoint.json"))


def test_what_is_unknown_is_no_script(cli) -> None:
    result = cli(*PLAN, "-m", "nothing")
    assert result.code == 2 and "#SBATCH" not in result.out and "nothing" in result.err
