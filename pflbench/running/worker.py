"""Worker loop: the results folder is the queue.

Every way of training runs `work`: this process, local worker processes, Slurm jobs and Ray tasks. A worker takes the
first job whose leases are free, looks once more whether it is done, trains it, stores it and gives the leases back. An
attempt that ends without a stored result adds a line to `claims/RUN.errors`, which all workers of the folder read: a
run has two attempts in all.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pflbench.running import stopping
from pflbench.running.again import often_enough
from pflbench.running.allocator import tune_allocator
from pflbench.running.events import Progress, Waiting
from pflbench.running.execution import Execution
from pflbench.running.job import Done, Job, run_job
from pflbench.spec import RunSpec
from pflbench.store import leases
from pflbench.store.files import fresh
from pflbench.store.leases import Leases
from pflbench.store.store import Store

ATTEMPTS = 2
"""Attempts at a run that end without a stored result."""
TURN = 30.0
"""Seconds in which another worker of the command may take a run that failed here."""
ROUND_INTERVAL = 0.2
"""Seconds between two progress messages."""
Say = Callable[["Progress | Waiting | Done"], None]
Find = Callable[[Job, RunSpec], "Done | None"]


class Board(ctypes.Structure):
    """Numbers that a command shares with its workers, if need be in shared memory.

    `busy`: workers that train; `alive`: worker processes; `halted`: 1 if nothing more is to start.
    """

    _fields_ = [("busy", ctypes.c_int), ("alive", ctypes.c_int), ("halted", ctypes.c_int)]


def work(jobs: Sequence[Job], execution: Execution, say: Say, board: Board) -> None:
    """Train jobs until none remains, or nothing more is to start.

    Jobs that others train are awaited, and taken over if their holders die. Without `execution.wait` only those of this
    command's workers are awaited.

    Args:
        jobs: The jobs, the first to take first.
        execution: Where and how to train; one device. `jobs`: number of cores of all workers of the command.
        say: Hears what starts, moves and ends; also what other processes made of a run.
        board: Shared with the command's other workers.

    Raises:
        StoreError: The results folder cannot be read or written.
    """
    tune_allocator()
    is_waiting = False
    with Leases(execution.results) as taken:
        outcomes = Outcomes(execution)
        queue = Queue(jobs, taken, outcomes.find, say)
        while not (board.halted or stopping.heard()):
            is_idle = board.busy == 0  # before the look: what a sibling gave back until now is free
            avoided = queue.avoided if board.alive > 1 else set[str]()
            job = queue.take(avoided)
            if job is None and (not queue.remaining or (is_idle and not execution.wait and not avoided)):
                return
            if job is None:
                if not is_waiting:
                    say(Waiting(len(queue.remaining), tuple(taken.holders([spec.id for spec in queue.remaining]))))
                is_waiting = True
                time.sleep(leases.PACE.poll)
                continue
            is_waiting = False
            say(Progress(job, None))
            for done in run_job(job, execution, _throttled(job, say), partial(_lanes, execution, board)):
                if outcomes.conclude(job, done):
                    say(done)
                else:
                    queue.put_back(job.of([done.spec]))
            taken.release([spec.id for spec in job.specs])


def _lanes(execution: Execution, board: Board) -> int:
    """Cores of a run: its own, and its share of those of workers that train nothing."""
    busy: int = board.busy
    return max(1, (execution.jobs or 1) // max(1, busy))


def _throttled(job: Job, say: Say) -> Callable[[int], None]:
    """Say at most one round number per interval."""
    last = 0.0

    def heard(rounds: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= ROUND_INTERVAL:
            last = now
            say(Progress(job, rounds))

    return heard


class Outcomes:
    """Outcomes of runs since the command began, as the results folder has them."""

    def __init__(self, execution: Execution) -> None:
        self.execution, self.store = execution, Store(execution.results, fresh=True)

    def find(self, job: Job, spec: RunSpec) -> Done | None:
        """Return the outcome of a run, by another process; None if it is still to do. Raises `StoreError`."""
        fresh(self.store.runs)
        stored = self.store.find(spec.id)
        if stored is not None and stored.finished != job.stored.get(spec.id):
            if stored.failure is not None:
                return Done(spec, "failed", stored.failure, elsewhere=True)
            if often_enough(stored.provenance, spec, self.execution.evaluate_every or job.every):
                return Done(spec, "done", elsewhere=True)
        errors = read_errors(self.execution.results, spec.id)
        return Done(spec, "error", errors[-1], elsewhere=True) if len(errors) >= ATTEMPTS else None

    def conclude(self, job: Job, done: Done) -> bool:
        """Count an attempt that ends without a stored result; True if the run is not to be tried again."""
        if done.fatal or (done.status != "error" and self.find(job, done.spec)):
            clear_errors(self.execution.results, [done.spec.id])
            return True
        is_last = done.status != "error" or self.execution.fail_fast or stopping.heard()
        errors = note_error(self.execution.results, done.spec.id, done.message, ATTEMPTS if is_last else 1)
        if is_last or errors >= ATTEMPTS:
            return True
        warnings.warn(f"{job}: {done.message.rstrip('.')}. It is tried once more.", stacklevel=2)
        return False


class Queue:
    """Jobs still to do, of which several processes take those that no other has.

    `find`: looks up the outcome of a run by another process, which `say` hears.
    """

    def __init__(self, jobs: Iterable[Job], leases: Leases, find: Find, say: Callable[[Done], None]) -> None:
        self.jobs, self.leases, self.find, self.say = list(jobs), leases, find, say
        self.over: set[str] = set()
        """Ids of runs that have an outcome, or were taken."""
        self._failed: dict[str, float] = {}
        """By run, the time at which it was put back."""

    @property
    def remaining(self) -> list[RunSpec]:
        """Runs that were not taken and have no outcome."""
        return [spec for job in self.jobs for spec in job.specs if spec.id not in self.over]

    @property
    def avoided(self) -> set[str]:
        """Ids of runs that were put back a short time ago."""
        since = time.monotonic() - TURN
        return {id for id, at in self._failed.items() if at > since and id not in self.over}

    def take(self, avoided: Collection[str] = ()) -> Job | None:
        """Take the first job that nobody else has, with its leases; None if there is none now. Raises `StoreError`.

        Seeds of one stack are taken together, or if nothing else is free, as many as are free. Runs whose ids are
        `avoided` stay.
        """
        self.jobs = self._unfinished()
        has_stacks = any(len(job.specs) > 1 for job in self.jobs)
        for partly in (False, True)[: 1 + has_stacks]:
            for job in self.jobs:
                if (taken := self._take(job, partly, avoided)) is not None:
                    return taken
        return None

    def _unfinished(self) -> list[Job]:
        return [job for job in self.jobs if any(spec.id not in self.over for spec in job.specs)]

    def put_back(self, job: Job) -> None:
        """Have a job that was taken come last."""
        self.jobs = [*self._unfinished(), job]
        ids = {spec.id for spec in job.specs}
        self.over -= ids
        self._failed |= dict.fromkeys(ids, time.monotonic())

    def _take(self, job: Job, partly: bool, avoided: Collection[str]) -> Job | None:
        ids = [spec.id for spec in self._open(job) if spec.id not in avoided]
        if not ids or not (taken := self.leases.take(ids, partly)):
            return None
        # Only now is it sure that no other stores one of them meanwhile.
        specs = [spec for spec in self._open(job) if spec.id in taken]
        self.over.update(spec.id for spec in specs)
        self.leases.release(set(taken) - {spec.id for spec in specs})
        return job.of(specs) if specs else None

    def _open(self, job: Job) -> list[RunSpec]:
        """Runs of a job that are still to do; says the outcome of the others."""
        for spec in job.specs:
            if spec.id not in self.over and (done := self.find(job, spec)):
                self.over.add(spec.id)
                self.say(done)
        return [spec for spec in job.specs if spec.id not in self.over]


def longest_first(jobs: Iterable[Job], work: Mapping[str, float]) -> list[Job]:
    """Sort jobs by their work, the longest first, so that no long one ends alone. Equal ones stay in their order.

    `work`: relative cost of each run, by its id.
    """
    return sorted(jobs, key=lambda job: -sum(work[spec.id] for spec in job.specs))


def _errors_path(results: Path, id: str) -> Path:
    return results / "claims" / f"{id}.errors"


def read_errors(results: Path, id: str) -> list[str]:
    """Return the messages of a run's attempts that ended without a stored result, a line each."""
    with contextlib.suppress(OSError):
        return _errors_path(results, id).read_text("utf-8", errors="replace").splitlines()
    return []


def note_error(results: Path, id: str, message: str, times: int = 1) -> int:
    """Count an attempt at a run as so many that ended without a stored result; return the number of all.

    An attempt that cannot be noted is the last.
    """
    path, line = _errors_path(results, id), f"{' '.join(message.split())}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(times * line.encode(errors="replace"))
    except OSError:
        return ATTEMPTS
    return len(read_errors(results, id)) or ATTEMPTS


def clear_errors(results: Path, ids: Iterable[str]) -> None:
    """Count the attempts at these runs from zero again."""
    for id in ids:
        with contextlib.suppress(OSError):
            _errors_path(results, id).unlink(missing_ok=True)
