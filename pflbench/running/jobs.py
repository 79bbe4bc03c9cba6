"""Jobs of a cluster (`--executor slurm`, `ray`): processes on other machines that share one results folder.

Each runs the same worker loop as a terminal (`running.worker`). Its input is JSON text. It writes results into the
folder, where this process sees them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from signal import Signals

from pydantic import TypeAdapter

from pflbench.output import plain
from pflbench.running import local, stopping
from pflbench.running.events import Event, OnEvent, Progress, Training
from pflbench.running.execution import Execution
from pflbench.running.follow import destination
from pflbench.running.job import Done, Job, done_of
from pflbench.running.worker import Outcomes
from pflbench.units import Interval, count

CHECKPOINTS = Interval(seconds=600)
"""Default interval of checkpoints."""
INPUT = TypeAdapter(tuple[list[Job], Execution])


def job_text(jobs: Sequence[Job], execution: Execution, *, wait: bool) -> str:
    """Input of a cluster's job as JSON; `wait`: it waits for runs that others train, and takes them over."""
    inside = replace(
        execution,
        results=execution.results.absolute(),
        wait=wait,
        jobs=execution.jobs or (None if execution.gpus_per_task else 1),
        checkpoint_every=execution.checkpoint_every or CHECKPOINTS,
        follow=_absolute(str(execution.follow)) if execution.follow else None,
        data_dir=Path(execution.data_dir).expanduser().absolute() if execution.data_dir else None,
    )
    return INPUT.dump_json((list(jobs), inside)).decode()


def _absolute(follow: str) -> str:
    is_board, path = destination(follow)
    return f"{'tensorboard:' * is_board}{path}"


def drain(text: str, *ends: Signals) -> int:
    """Work in a cluster's job. `text`: of `job_text`.

    SIGTERM and the signals `ends` end the round that is under way; its checkpoint is written.

    Returns:
        The number of the signal that ended it (0: none).

    Raises:
        UsageError: A device or its precision is missing here.
        StoreError: The results folder cannot be read or written.
    """
    jobs, execution = INPUT.validate_json(text)
    with stopping.heeding(*ends):
        local.train(jobs, execution, say)
        return stopping.heard()


def say(event: Event) -> None:
    """Print an event other than progress into the job's log."""
    if not isinstance(event, Progress):
        with contextlib.suppress(OSError):  # a full disk of the log ends no training
            print(plain(str(event)), flush=True)


def watch(
    jobs: Sequence[Job], execution: Execution, on_event: OnEvent, where: str, is_over: Callable[[], bool], pause: float
) -> tuple[list[Done], int]:
    """Report the runs that a cluster's jobs finish, until all are finished or these jobs have ended.

    `where`: the cluster's jobs, in words; `pause`: seconds between two looks at the results folder.

    Returns:
        What is finished, and the number of runs without a result.
    """
    outcomes, dones = Outcomes(execution), list[Done]()
    on_event(Training(jobs, where))
    remaining = {spec: job for job in jobs for spec in job.specs}
    while remaining:
        over = is_over()  # before the look at the results, of which the last comes before the end
        for spec, job in tuple(remaining.items()):
            if done := outcomes.find(job, spec):
                dones.append(done if done.status == "error" else done_of(outcomes.store.read(spec.id)))
                on_event(dones[-1])
                del remaining[spec]
        if over:
            break
        if remaining:
            time.sleep(pause)
    return dones, len(remaining)


def problems(number: int, name: str, complaints: Iterable[str]) -> list[str]:
    """Sentence on runs without a result after all jobs of this name ended; none if each run has one."""
    ended = f"All {name}s ended; without a result: {count(number, 'run')}."
    return [" ".join([ended, *complaints])] if number else []
