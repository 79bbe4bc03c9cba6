"""Jobs of a cluster (`--executor slurm`, `ray`): each is a process that shares the runs of one results folder.

A job does what a terminal does: it takes the longest run on which no other has a lease (`store.leases`), and ends when
nothing is left. Its input is JSON text, since it starts in another process. It writes results into the folder, where
this process sees them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from signal import Signals

from pydantic import TypeAdapter

from pflbench import trust
from pflbench.output import plain
from pflbench.running import stopping, training
from pflbench.running.events import Event, Training
from pflbench.running.execution import Execution
from pflbench.running.follow import absolute
from pflbench.running.local import Progress
from pflbench.running.task import Done, Task, headline
from pflbench.store.store import Store
from pflbench.units import Interval, count

CHECKPOINTS = Interval(seconds=600)
"""Default interval of checkpoints."""
INPUT = TypeAdapter(tuple[training.Work, Path, Execution])


def job_text(handed: training.Handed, *, wait: bool) -> str:
    """Input of a job as JSON; `wait`: it waits for runs that other jobs train, and takes them over if these die."""
    execution = handed.execution
    inside = replace(
        execution,
        executor="local",
        slots=None,
        gpus_per_task=None,
        slurm_partition=None,
        slurm={},
        ray_address=None,
        wait=wait,
        shard=None,  # taken before
        jobs=execution.jobs or (None if execution.gpus_per_task else 1),
        checkpoint_every=execution.checkpoint_every or CHECKPOINTS,
        follow=absolute(str(execution.follow)) if execution.follow else None,
        data_dir=Path(execution.data_dir).expanduser().absolute() if execution.data_dir else None,
    )
    return INPUT.dump_json((handed.work, handed.results.absolute(), inside)).decode()


def drain(text: str, *ends: Signals) -> tuple[int, list[str]]:
    """Train, in a job, the runs on which no other has a lease. `text`: of `job_text`.

    SIGTERM and the signals `ends` end the round that is under way; its checkpoint is written.

    Returns:
        The number of the signal that ended it (0: none), and what went wrong, in sentences.

    Raises:
        UsageError: What is to be trained cannot be built here.
        StoreError: The results cannot be written.
    """
    work, results, execution = INPUT.validate_json(text)
    for places in work.places.values():
        trust.grant_places(places)  # by whoever submitted the job, to train it
    with stopping.heeding(*ends):
        outcome = training.train(work, results, execution, _say)
        signal = stopping.heard()
    _say(outcome)
    return signal, [*outcome.problems, *outcome.failures()]


def _say(event: Event | training.Outcome) -> None:
    if not isinstance(event, Progress):
        with contextlib.suppress(OSError):  # a full disk of the log ends no training
            print(plain(str(event)), flush=True)


def watch(handed: training.Handed, where: str, is_over: Callable[[], bool], pause: float) -> list[Done]:
    """Report the runs that jobs finish, until all are finished or the jobs have ended.

    `where`: the jobs, in words; `pause`: seconds between two looks at the results folder.
    """
    work, store = handed.work, Store(handed.results, fresh=True)
    tasks = tuple(Task((spec,), work.places.get(spec.id, {})) for spec in work.specs)
    handed.on_event(Training(tasks, work.names, where))
    remaining, dones = dict.fromkeys(work.specs), list[Done]()
    while remaining:
        over = is_over()  # before the look at the results, of which the last comes before the end
        for spec in tuple(remaining):
            if done := handed.settled(spec):
                dones.append(_stored(done, store))
                handed.on_event(dones[-1])
                del remaining[spec]
        if over:
            break
        if remaining:
            time.sleep(pause)
    return dones


def _stored(done: Done, store: Store) -> Done:
    """Add the outcome of the stored run."""
    result = store.read(done.spec.id)
    seconds = float(result.provenance.get("wall_seconds") or 0.0)
    resumed = int(result.provenance.get("resumed") or 0)
    return replace(done, elsewhere=False, headline=headline(result.scores), seconds=seconds, resumed=resumed)


def ended(number: int, name: str, complaints: list[str]) -> list[str]:
    """Sentence on runs without a result after all jobs of this name ended; none where all have one."""
    has = "run has" if number == 1 else "runs have"
    return [" ".join([f"All {name}s ended, and {count(number, has)} no result.", *complaints])] if number else []
