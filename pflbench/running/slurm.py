"""Slurm: jobs that share the runs of one results folder (`--executor slurm`).

Every job of an array does what a terminal does: it takes the longest run on which no other has a lease
(`store.leases`), and ends when nothing is left to take. What is submitted is one function with JSON text: a job starts
in another process. Results reach the folder as Parquet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pflbench import trust
from pflbench.data.root import cache_folder
from pflbench.errors import UsageError
from pflbench.output import plain
from pflbench.running import stopping, training
from pflbench.running.events import Event, Notice, Training
from pflbench.running.execution import Execution
from pflbench.running.follow import absolute
from pflbench.running.local import Progress
from pflbench.running.task import Done, Task, headline
from pflbench.spec import RunSpec
from pflbench.store.store import Store
from pflbench.units import Interval, count, duration

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
CHECKPOINTS = Interval(seconds=600)
"""Default interval of checkpoints."""


@dataclass(frozen=True)
class JobInput:
    """Input of a job: the fields of `training.Work`, the results folder, and the execution.

    `before`: by run id, the provenance of what was stored when the jobs were submitted: what differs from it was made
    by one of them, also of one that starts for the second time.
    """

    specs: list[RunSpec]
    places: dict[str, dict[str, str]]
    names: dict[str, str]
    asked: dict[str, list[dict[str, Any]]]
    before: dict[str, Any]
    every: dict[str, int]
    results: Path
    execution: Execution


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
    """Train, in a job, the runs on which no other has a lease. `text`: an `Order` as JSON.

    SIGUSR2, which Slurm sends before a job's time is up, and SIGTERM, before it takes a machine back, end the round
    that is under way; its checkpoint is written. After SIGUSR2 submitit puts the job back into the queue.

    Raises:
        SystemExit: It was stopped.
        UsageError: What is to be trained cannot be built here.
        StoreError: The results cannot be written.
    """
    order = TypeAdapter(JobInput).validate_json(text)
    ends = _ends()
    put_back = signal.getsignal(ends)
    for places in order.places.values():
        trust.grant_places(places)  # by whoever submitted the job, to train it
    work = training.Work(order.specs, order.places, order.names, order.asked, order.before, order.every)
    with stopping.heeding(ends):
        outcome = training.train(work, order.results, order.execution, _say)
        heard = stopping.heard()
    with contextlib.suppress(OSError):
        print(plain(str(outcome)), flush=True)
    if heard == ends and callable(put_back):
        put_back(heard, None)
    if heard:
        raise SystemExit(128 + heard)


def _again(text: str) -> Any:
    """Return the same call for a job that is put back."""
    import submitit

    return submitit.helpers.DelayedSubmission(drain, text)


drain.checkpoint = _again  # type: ignore[attr-defined]  # where submitit looks for it


def _ends() -> signal.Signals:
    """The signal that submitit has Slurm send before a job's time is up."""
    return signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]


def _say(event: Event) -> None:
    if not isinstance(event, Progress):
        with contextlib.suppress(OSError):  # a full disk of the log ends no training
            print(plain(str(event)), flush=True)


def submit(work: training.Work, before: Mapping[str, Any], results: Path, execution: Execution) -> Jobs:
    """Submit the jobs that train this work.

    Raises:
        UsageError: submitit is not installed, there is no Slurm here, or it does not take these settings.
    """
    folder = cache_folder() / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # submitit runs what lies in it
    executor = _executor(folder, execution)
    order = JobInput(
        list(work.specs),
        {id: dict(one) for id, one in work.places.items()},
        dict(work.names),
        {id: [dict(one) for one in several] for id, several in work.asked.items()},
        dict(before),
        dict(work.every),
        results.absolute(),
        _in_job(execution),
    )
    text = TypeAdapter(JobInput).dump_json(order).decode()
    number = min(execution.slots or JOBS, len(work.specs))
    try:
        return Jobs(executor.map_array(drain, [text] * number), folder)
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


def _in_job(execution: Execution) -> Execution:
    """Execution of a job: that of a terminal which does not wait for others. The shard is taken before submitting."""
    return replace(
        execution,
        executor="local",
        slots=None,
        gpus_per_task=None,
        slurm_partition=None,
        slurm={},
        wait=False,
        shard=None,
        jobs=execution.jobs or (None if execution.gpus_per_task else 1),
        checkpoint_every=execution.checkpoint_every or CHECKPOINTS,
        follow=absolute(str(execution.follow)) if execution.follow else None,
        data_dir=Path(execution.data_dir).absolute() if execution.data_dir else None,
    )


def train(handed: training.Handed) -> tuple[list[Done], list[str]]:
    """Submit jobs, and tell what they finish until nothing is left or all have ended.

    Interrupted, this ends; the jobs go on.

    Returns:
        What is finished, and what to say where the jobs ended before that.

    Raises:
        UsageError: As `submit`.
    """
    work, results, execution, on_event, before, settled = handed
    jobs = submit(work, before, results, execution)
    number = count(len(jobs.several), "Slurm job")
    on_event(Notice(f"Submitted {number}; `scancel {jobs.name}` ends them. Logs: {jobs.folder}"))
    if not execution.wait:
        return [], []
    tasks = tuple(Task((spec,), work.places.get(spec.id, {})) for spec in work.specs)
    on_event(Training(tasks, work.names, f"{number}, {jobs.name}"))
    left, dones = dict.fromkeys(work.specs), list[Done]()
    store = Store(results, fresh=True)
    try:
        while left:
            over = jobs.over  # before the look at the results, of which the last comes before the end
            for spec in tuple(left):
                if done := settled(spec):
                    dones.append(_told(done, store))
                    on_event(dones[-1])
                    del left[spec]
            if over:
                break
            if left:
                time.sleep(PAUSE)
    except KeyboardInterrupt:
        on_event(Notice(f"The jobs go on; `scancel {jobs.name}` ends them."))
        raise
    if not left:
        return dones, []
    has = "run has" if len(left) == 1 else "runs have"
    ended = f"All jobs ended, and {len(left)} {has} no result; their logs are in {str(jobs.folder)!r}."
    return dones, [" ".join([ended, *jobs.complaints()])]


def _told(done: Done, store: Store) -> Done:
    """Add the outcome of the stored run."""
    result = store.read(done.spec.id)
    seconds = float(result.provenance.get("wall_seconds") or 0.0)
    resumed = int(result.provenance.get("resumed") or 0)
    return replace(done, elsewhere=False, headline=headline(result.scores), seconds=seconds, resumed=resumed)
