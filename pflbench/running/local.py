"""Run tasks on this machine: in this process, or in single-threaded worker processes, one task at a time each.

Of a worker that dies (killed, out of memory) the task is tried once more, by another; the parent's death ends them all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from pflbench.running import stopping
from pflbench.running.allocator import tune_allocator
from pflbench.running.process import cause_of_death, serving
from pflbench.running.sharing import Shared
from pflbench.running.task import Done, Environment, Task, run_task
from pflbench.store import leases
from pflbench.units import count

ROUND_INTERVAL = 0.2  # seconds between two progress messages of one worker


@dataclass(frozen=True)
class Progress:
    """A task moved: so many rounds are finished. `rounds` is None when it has just started."""

    task: Task
    rounds: int | None

    def __str__(self) -> str:
        if self.rounds is None:
            return f"{self.task}: started"
        return f"{self.task}: round {self.rounds} of {self.task.specs[0].rounds}"


@dataclass(frozen=True)
class Waiting:
    """All `runs` that are left are trained by others: `holders`, in words."""

    runs: int
    holders: tuple[str, ...]

    def __str__(self) -> str:
        by = f" ({', '.join(self.holders)})" if self.holders else ""
        return f"Waiting for {count(self.runs, 'run')} that others train{by}."


OnEvent = Callable[["Progress | Waiting | Done"], None]


def cores() -> int:
    """Processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def execute(
    tasks: Sequence[Task] | Shared,
    env: Environment,
    *,
    jobs: int,
    on_event: OnEvent,
    fail_fast: bool = False,
    waits: bool = True,
    devices: Sequence[str] = (),
) -> list[Done]:
    """Run all tasks on `jobs` cores; every finished run is in the store before its `Done` is reported.

    Each core takes a task; once fewer tasks than cores are left, they share the cores for several clients at a time.
    Of tasks that are shared with other processes, those are taken that no other has, and then the others awaited,
    unless `waits` is False. With several `devices` the processes are dealt to them in turn.

    No further task starts once results cannot be written, or with `fail_fast` after the first run that is not done, or
    when an end was asked for (`stopping`).
    KeyboardInterrupt passes through after the workers were stopped. What a worker warns of is warned of here.
    """
    shared = tasks if isinstance(tasks, Shared) else Shared(tasks)
    dones: list[Done] = []

    def on_done(done: Done) -> None:
        dones.append(done)
        on_event(done)

    shared.on_done = on_done
    envs = [replace(env, device=device) for device in devices] or [env]
    if jobs <= 1 or len(shared.waiting) <= 1:
        _in_process(shared, dones, envs[0], jobs, on_event, fail_fast, waits)
    else:
        _Pool(shared, dones, envs, jobs, on_event, fail_fast, waits).run()
    return dones


def _in_process(
    shared: Shared,
    dones: list[Done],
    env: Environment,
    jobs: int,
    on_event: OnEvent,
    fail_fast: bool,
    waits: bool,
) -> None:
    tune_allocator()
    says = _Says(on_event)
    while shared.waiting and not is_over(dones, fail_fast):
        task = shared.take()
        if task is None:
            if not waits:
                return
            says.waiting(shared)
            continue
        says.trains(task)
        throttle = Throttle(lambda n, task=task: on_event(Progress(task, n)))  # type: ignore[misc]
        for done in run_task(task, env, throttle, lambda: jobs):
            shared.on_done(done)
        shared.release(task)


class _Says:
    """Tells what starts, and in one line that all that is left is others'."""

    def __init__(self, on_event: OnEvent):
        self.on_event, self.told = on_event, False

    def trains(self, task: Task) -> None:
        self.told = False
        self.on_event(Progress(task, None))

    def waiting(self, shared: Shared, wait: Callable[[float], object] = time.sleep) -> None:
        """Wait for a while, if there is something to wait for."""
        if shared.waiting:
            if not self.told:
                self.on_event(Waiting(shared.runs, tuple(shared.holders())))
            self.told = True
            wait(leases.PACE.poll)


def is_over(dones: list[Done], fail_fast: bool) -> bool:
    """True if nothing more is to start."""
    return stopping.end_requested() or any(d.fatal or (fail_fast and d.status != "done") for d in dones)


class Throttle:
    """Passes on at most one round number per interval; called with each."""

    def __init__(self, send: Callable[[int], None]):
        self.send, self.last = send, 0.0

    def __call__(self, rounds: int) -> None:
        """Pass it on, or not."""
        now = time.monotonic()
        if now - self.last >= ROUND_INTERVAL:
            self.last = now
            self.send(rounds)


@dataclass
class _Worker:
    slot: int
    process: BaseProcess
    pipe: Connection
    task: Task | None = None


class _Pool:
    def __init__(
        self,
        shared: Shared,
        dones: list[Done],
        envs: Sequence[Environment],
        jobs: int,
        on_event: OnEvent,
        fail_fast: bool,
        waits: bool,
    ):
        self.shared, self.dones, self.envs, self.jobs = shared, dones, envs, jobs
        self.on_event, self.fail_fast, self.waits, self.says = on_event, fail_fast, waits, _Says(on_event)
        self.died: dict[Task, int] = {}
        """Tasks whose worker died, and in which slot it was."""
        self.lanes = multiprocessing.get_context("spawn").Value("i", 1)
        """Cores for each task; workers read it before every round."""

    def run(self) -> None:
        with contextlib.ExitStack() as self.running:
            self._serve([self._start(slot) for slot in range(min(self.jobs, len(self.shared.waiting)))])

    def _serve(self, workers: list[_Worker]) -> None:
        while True:
            self._hand_out(workers)
            busy = {w.pipe: w for w in workers if w.task is not None}
            if not busy and (not self.shared.waiting or not self.waits):
                return
            if not busy:
                self.says.waiting(self.shared)
                continue
            self.lanes.value = max(1, self.jobs // len(busy))
            # Where others have what is left, it is looked at again: they may have died.
            idle = self.shared.waiting and len(busy) < len(workers)
            for pipe in wait(list(busy), leases.PACE.poll if idle else None):
                self._hear(busy[pipe], workers)  # type: ignore[index]

    def _hand_out(self, workers: list[_Worker]) -> None:
        """A task for each idle worker, as far as there are any to be had."""
        to_be_had = True
        for worker in workers:
            if is_over(self.dones, self.fail_fast):
                self.shared.give_up()
            if worker.task is not None:
                continue
            worker.task = self._once_more(worker) or (self.shared.take() if to_be_had else None)
            if worker.task is None:
                to_be_had = False
                continue
            with contextlib.suppress(OSError):  # dead already: heard of below, like any other death
                worker.pipe.send(worker.task)
            self.says.trains(worker.task)

    def _once_more(self, worker: _Worker) -> Task | None:
        """A task whose first worker died in another slot: that one's device may be the cause."""
        task = next((task for task in self.shared.again if self.died[task] != worker.slot), None)
        if task is not None:
            self.shared.again.remove(task)
        return task

    def _hear(self, worker: _Worker, workers: list[_Worker]) -> None:
        assert worker.task is not None
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            reason = cause_of_death(worker.process.exitcode or 0)
            workers[workers.index(worker)] = self._start(worker.slot)
            if worker.task not in self.died and not stopping.end_requested():
                self.died[worker.task] = worker.slot
                self.shared.again.append(worker.task)
                warnings.warn(f"{worker.task}: {reason} It is tried once more.", stacklevel=2)
                return
            message = [Done(spec, "error", reason) for spec in worker.task.specs]
        if isinstance(message, int):
            self.on_event(Progress(worker.task, message))
        elif isinstance(message, str):
            warnings.warn(message, stacklevel=2)
        else:
            for done in message:
                self.shared.on_done(done)
            self.shared.release(worker.task)
            worker.task = None

    def _start(self, slot: int) -> _Worker:
        env = self.envs[slot % len(self.envs)]
        pipe, process = self.running.enter_context(serving(_serve_tasks, env, self.lanes, stopping.flag()))
        return _Worker(slot, process, pipe)


def _serve_tasks(pipe: Connection, env: Environment, lanes: Synchronized[int], stop: Any) -> None:
    """Loop of a worker: receive a task, send round numbers and warnings, send the list of `Done`."""
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
            send(run_task(task, env, Throttle(send), lambda: lanes.value))
