"""Run tasks on this machine: in this process, or in single-threaded worker processes, one task at a time each.

A worker that dies (killed, out of memory) costs its task only; the parent's death ends the workers.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from pflbench.executor import stopping
from pflbench.executor.allocator import tune_allocator
from pflbench.executor.process import cause_of_death, serving
from pflbench.executor.task import Done, Place, Task, run_task

ROUND_INTERVAL = 0.2  # seconds between two progress messages of one worker


@dataclass(frozen=True)
class Progress:
    """A task moved: so many rounds are finished. `rounds` is None when it has just started."""

    task: Task
    rounds: int | None

    def __str__(self) -> str:
        if self.rounds is None:
            return f"{self.task}: started"
        return f"{self.task}: round {self.rounds} of {self.task.specs[0].total_rounds}"


OnEvent = Callable[["Progress | Done"], None]


def cores() -> int:
    """Processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def execute(
    tasks: Sequence[Task], place: Place, *, jobs: int, on_event: OnEvent, fail_fast: bool = False
) -> list[Done]:
    """Run all tasks on `jobs` cores; every finished run is in the store before its `Done` is reported.

    Each core takes a task; once fewer tasks than cores are left, they share the cores for several clients at a time.

    No further task starts once results cannot be written, or with `fail_fast` after the first run that is not done, or
    when an end was asked for (`stopping`).
    KeyboardInterrupt passes through after the workers were stopped. What a worker warns of is warned of here.
    """
    if jobs <= 1 or len(tasks) <= 1:
        return _in_process(tasks, place, jobs, on_event, fail_fast)
    return _Pool(place, jobs, on_event, fail_fast).run(list(tasks))


def _in_process(tasks: Sequence[Task], place: Place, jobs: int, on_event: OnEvent, fail_fast: bool) -> list[Done]:
    tune_allocator()
    dones: list[Done] = []
    for task in tasks:
        on_event(Progress(task, None))
        throttle = _Throttle(lambda n, task=task: on_event(Progress(task, n)))  # type: ignore[misc]
        for done in run_task(task, place, throttle, lambda: jobs):
            on_event(done)
            dones.append(done)
        if _is_over(dones, fail_fast):
            break
    return dones


def _is_over(dones: list[Done], fail_fast: bool) -> bool:
    return stopping.requested() or any(d.fatal or (fail_fast and d.status != "done") for d in dones)


class _Throttle:
    """Passes on at most one round number per interval."""

    def __init__(self, send: Callable[[int], None]):
        self.send, self.last = send, 0.0

    def __call__(self, rounds: int) -> None:
        now = time.monotonic()
        if now - self.last >= ROUND_INTERVAL:
            self.last = now
            self.send(rounds)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    task: Task | None = None


class _Pool:
    def __init__(self, place: Place, jobs: int, on_event: OnEvent, fail_fast: bool):
        self.place, self.jobs, self.on_event, self.fail_fast = place, jobs, on_event, fail_fast
        self.dones: list[Done] = []
        self.lanes = multiprocessing.get_context("spawn").Value("i", 1)
        """Cores for each task; workers read it before every round."""

    def run(self, waiting: list[Task]) -> list[Done]:
        with contextlib.ExitStack() as self.running:
            self._serve([self._start() for _ in range(min(self.jobs, len(waiting)))], waiting)
        return self.dones

    def _serve(self, workers: list[_Worker], waiting: list[Task]) -> None:
        while True:
            if _is_over(self.dones, self.fail_fast):
                waiting.clear()
            for worker in workers:
                if worker.task is None and waiting:
                    worker.task = waiting.pop(0)
                    with contextlib.suppress(OSError):  # dead already: heard of below, like any other death
                        worker.pipe.send(worker.task)
                    self.on_event(Progress(worker.task, None))
            busy = {w.pipe: w for w in workers if w.task is not None}
            if not busy:
                return
            self.lanes.value = max(1, self.jobs // len(busy))
            for pipe in wait(list(busy)):
                self._hear(busy[pipe], workers)  # type: ignore[index]

    def _hear(self, worker: _Worker, workers: list[_Worker]) -> None:
        assert worker.task is not None
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            reason = cause_of_death(worker.process.exitcode or 0)
            message = [Done(spec, "error", reason) for spec in worker.task.specs]
            workers[workers.index(worker)] = self._start()
        if isinstance(message, int):
            self.on_event(Progress(worker.task, message))
        elif isinstance(message, str):
            warnings.warn(message, stacklevel=2)
        else:
            worker.task = None
            for done in message:
                self.dones.append(done)
                self.on_event(done)

    def _start(self) -> _Worker:
        pipe, process = self.running.enter_context(serving(_serve_tasks, self.place, self.lanes, stopping.flag()))
        return _Worker(process, pipe)


def _serve_tasks(pipe: Connection, place: Place, lanes: Synchronized[int], stop: Any) -> None:
    """What a worker does: receive a task, send round numbers and warnings, send the list of `Done`, and again."""
    tune_allocator()
    stopping.heed(stop)
    one_at_a_time = threading.Lock()  # any thread may warn

    def send(message: object) -> None:
        try:
            with one_at_a_time:
                pipe.send(message)
        except OSError:  # the parent is gone, which is no fault of the run
            os._exit(1)

    warnings.showwarning = lambda message, *_, **__: send(str(message))
    with contextlib.suppress(EOFError, OSError):
        while True:
            task: Task = pipe.recv()
            send(run_task(task, place, _Throttle(send), lambda: lanes.value))
