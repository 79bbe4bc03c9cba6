"""`--executor slurm`: an array of Slurm jobs that share the runs of one results folder (`jobs`), through submitit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pflbench.data.root import cache_folder
from pflbench.errors import UsageError
from pflbench.running import jobs
from pflbench.running.events import Notice, OnEvent
from pflbench.running.execution import Execution
from pflbench.running.job import Done, Job
from pflbench.units import count

JOBS = 8
"""Default number of jobs."""
MINUTES = 240
"""Default time of a job; then it is put back into the queue, and goes on from its checkpoints."""
CLUSTER = "slurm"
"""Submitit's name of what takes the jobs."""
PAUSE = 10.0
"""Seconds between two looks at what the jobs did."""
TIMEOUTS = 100
"""Number of times that it may run out of time."""


@dataclass
class Array:
    """Submitted jobs. `folder`: submitit's folder of their input and logs."""

    jobs: Sequence[Any]
    folder: Path

    @property
    def name(self) -> str:
        """The number of the array, or of the only job."""
        return str(self.jobs[0].job_id).partition("_")[0]

    @property
    def is_over(self) -> bool:
        """True if none of them runs or waits any more; False while Slurm does not answer."""
        if CLUSTER != "slurm":
            return all(job.done() for job in self.jobs)
        # submitit asks `sacct`, which not every cluster has, and only every ten minutes.
        command = ["squeue", "--noheader", f"--jobs={self.name}"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return "Invalid job id" in answer.stderr or (answer.returncode == 0 and not answer.stdout.strip())


def drain(text: str) -> None:
    """Train in a Slurm job (`jobs.drain`).

    SIGUSR2, which Slurm sends before a job's time is up, and SIGTERM, before it takes a machine back, end it after the
    round. After SIGUSR2 submitit puts the job back into the queue.

    Raises:
        SystemExit: It was stopped.
        UsageError: What is to be trained cannot be built here.
        StoreError: The results cannot be written.
    """
    ends = signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]
    put_back = signal.getsignal(ends)
    heard = jobs.drain(text, ends)
    if heard == ends and callable(put_back):
        put_back(heard, None)
    if heard:
        raise SystemExit(128 + heard)


def _again(text: str) -> Any:
    """Return the same call for a job that is put back."""
    import submitit

    return submitit.helpers.DelayedSubmission(drain, text)


drain.checkpoint = _again  # type: ignore[attr-defined]  # where submitit looks for it


def submit(work: Sequence[Job], execution: Execution) -> Array:
    """Submit jobs that train this work.

    Raises:
        UsageError: submitit is not installed, there is no Slurm here, or it does not take these settings.
    """
    folder = cache_folder() / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # submitit runs what lies in it
    executor = _executor(folder, execution)
    number = min(execution.slots or JOBS, len(work))
    try:
        return Array(executor.map_array(drain, [jobs.job_text(work, execution, wait=False)] * number), folder)
    except Exception as error:  # whatever sbatch says
        raise UsageError(f"Slurm does not take the jobs: {str(error).strip().splitlines()[-1]}") from error


def jobs_text(runs: int, execution: Execution) -> str:
    """Number and size of the jobs that so many runs are submitted as, in a sentence. Raises `UsageError`."""
    slots, settings = execution.slots or JOBS, _settings(execution)
    each = ", ".join(f"{name} {value}" for name, value in settings.items())
    return f"{count(min(slots, runs), 'Slurm job')} (--slots {slots}) for {count(runs, 'run')}: {each}."


def _settings(execution: Execution) -> dict[str, Any]:
    """Submitit's settings of these jobs. Raises `UsageError`."""
    settings: dict[str, Any] = {"name": "pflbench", "cpus_per_task": execution.jobs or 1, "slurm_signal_delay_s": 120}
    if execution.slurm_partition:
        settings["slurm_partition"] = execution.slurm_partition
    if execution.gpus_per_task:
        if execution.gpus_per_task != int(execution.gpus_per_task):
            raise UsageError("--gpus-per-task: a Slurm job has whole GPUs.")
        settings["slurm_gpus_per_task"] = int(execution.gpus_per_task)
    numbers = {name: int(value) if value.isdecimal() else value for name, value in execution.slurm.items()}
    if isinstance(minutes := numbers.pop("time", MINUTES), str):
        raise UsageError(f"--slurm time={minutes}: write minutes, as time=240.")
    return settings | {"timeout_min": minutes} | {f"slurm_{name}": value for name, value in numbers.items()}


def _executor(folder: Path, execution: Execution) -> Any:
    """Submitit's executor, with the settings of these jobs. Raises `UsageError`."""
    try:
        import submitit
    except ImportError as error:
        raise UsageError("--executor slurm needs submitit: pip install 'pflbench[slurm]'.") from error
    settings = _settings(execution)
    if CLUSTER == "slurm" and shutil.which("srun") is None:
        raise UsageError(
            "--executor slurm: there is no Slurm on this machine (no srun). Run this on a node that submits jobs."
        )
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=CLUSTER, slurm_max_num_timeout=TIMEOUTS)
        executor.update_parameters(**settings)
    except (RuntimeError, NameError, ValueError, TypeError) as error:
        raise UsageError(f"--executor slurm: {str(error).strip()}") from error
    return executor


def train(work: Sequence[Job], execution: Execution, on_event: OnEvent) -> tuple[list[Done], list[str]]:
    """Submit jobs, and report what they finish until nothing remains or all have ended.

    Interrupted, this ends; the jobs go on.

    Returns:
        What is finished, and in a sentence why other runs have no result.

    Raises:
        UsageError: As `submit`.
    """
    array = submit(work, execution)
    number = count(len(array.jobs), "Slurm job")
    on_event(Notice(f"Submitted {number}; `scancel {array.name}` ends them. Logs: {array.folder}"))
    if not execution.wait:
        return [], []
    try:
        dones, remaining = jobs.watch(
            work, execution, on_event, f"{number}, {array.name}", lambda: array.is_over, PAUSE
        )
    except KeyboardInterrupt:
        on_event(Notice(f"The jobs go on; `scancel {array.name}` ends them."))
        raise
    return dones, jobs.problems(remaining, "job", [f"Logs: {str(array.folder)!r}."])
