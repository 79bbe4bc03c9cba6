"""`--executor slurm`: an array of Slurm jobs that share the runs of one results folder (`jobs`), through submitit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pflbench.data.root import cache_folder
from pflbench.errors import UsageError
from pflbench.running import jobs, training
from pflbench.running.events import Notice
from pflbench.running.execution import Execution
from pflbench.running.task import Done
from pflbench.units import count, duration

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
class Jobs:
    """Submitted jobs. `folder`: submitit's folder of their input and logs."""

    several: Sequence[Any]
    folder: Path
    ask: Callable[[Sequence[str]], subprocess.CompletedProcess[str]] = field(
        default=lambda command: subprocess.run(command, capture_output=True, text=True, check=False)
    )

    @property
    def name(self) -> str:
        """The number of the array, or of the only job."""
        return str(self.several[0].job_id).partition("_")[0]

    @property
    def over(self) -> bool:
        """True if none of them runs or waits any more; False while Slurm does not answer."""
        if CLUSTER != "slurm":
            return all(job.done() for job in self.several)
        # submitit asks `sacct`, which not every cluster has, and only every ten minutes.
        told = self.ask(["squeue", "--noheader", f"--jobs={self.name}"])
        return "Invalid job id" in told.stderr or (told.returncode == 0 and not told.stdout.strip())

    def complaints(self) -> list[str]:
        """The last line that each kind of failure left in the jobs' logs."""
        found: dict[str, None] = {}
        for job in self.several:
            with contextlib.suppress(OSError):
                lines = (job.stderr() or "").splitlines()
                found |= dict.fromkeys(line for line in lines[-1:] if "Error" in line or "error" in line)
        return list(found)


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
    heard, _ = jobs.drain(text, ends)
    if heard == ends and callable(put_back):
        put_back(heard, None)
    if heard:
        raise SystemExit(128 + heard)


def _again(text: str) -> Any:
    """Return the same call for a job that is put back."""
    import submitit

    return submitit.helpers.DelayedSubmission(drain, text)


drain.checkpoint = _again  # type: ignore[attr-defined]  # where submitit looks for it


def submit(handed: training.Handed) -> Jobs:
    """Submit the jobs that train this work.

    Raises:
        UsageError: submitit is not installed, there is no Slurm here, or it does not take these settings.
    """
    folder = cache_folder() / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # submitit runs what lies in it
    executor = _executor(folder, handed.execution)
    number = min(handed.execution.slots or JOBS, len(handed.work.specs))
    try:
        return Jobs(executor.map_array(drain, [jobs.job_text(handed, wait=False)] * number), folder)
    except Exception as error:  # whatever sbatch says
        raise UsageError(f"Slurm does not take the jobs: {str(error).strip().splitlines()[-1]}") from error


def jobs_text(runs: int, execution: Execution) -> str:
    """Number and size of the jobs that so many runs are submitted as, in a sentence. Raises `UsageError`."""
    settings, slots = _settings(execution), execution.slots or JOBS
    each = [
        f"partition {execution.slurm_partition}" if execution.slurm_partition else "the default partition",
        count(settings["cpus_per_task"], "core"),
        *([count(settings["slurm_gpus_per_task"], "GPU")] if "slurm_gpus_per_task" in settings else []),
        f"at most {duration(60 * settings['timeout_min'])}, then the next job goes on",
    ]
    return f"{count(min(slots, runs), 'Slurm job')} (--slots {slots}) for {count(runs, 'run')}: {', '.join(each)}."


def _settings(execution: Execution) -> dict[str, Any]:
    """Submitit's settings of these jobs. Raises `UsageError`."""
    settings: dict[str, Any] = {"name": "pflbench", "cpus_per_task": execution.jobs or 1, "timeout_min": MINUTES}
    settings |= {"slurm_signal_delay_s": 120}
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


def train(handed: training.Handed) -> tuple[list[Done], list[str]]:
    """Submit jobs, and tell what they finish until nothing is left or all have ended.

    Interrupted, this ends; the jobs go on.

    Returns:
        What is finished, and what to say where the jobs ended before that.

    Raises:
        UsageError: As `submit`.
    """
    submitted = submit(handed)
    number = count(len(submitted.several), "Slurm job")
    handed.on_event(Notice(f"Submitted {number}; `scancel {submitted.name}` ends them. Logs: {submitted.folder}"))
    if not handed.execution.wait:
        return [], []
    try:
        dones = jobs.watch(handed, f"{number}, {submitted.name}", lambda: submitted.over, PAUSE)
    except KeyboardInterrupt:
        handed.on_event(Notice(f"The jobs go on; `scancel {submitted.name}` ends them."))
        raise
    remaining = len(handed.work.specs) - len(dones)
    logs = f"Logs: {str(submitted.folder)!r}."
    return dones, jobs.ended(remaining, "job", [logs, *submitted.complaints()] if remaining else [])
