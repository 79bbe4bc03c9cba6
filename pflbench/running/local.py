"""Training on this machine: in this process, or in single-threaded worker processes that end with it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from pflbench.errors import PflbenchError, UsageError
from pflbench.running import stopping
from pflbench.running.events import OnEvent, Progress, Training, Waiting
from pflbench.running.execution import Execution, choose_devices
from pflbench.running.job import Done, Job
from pflbench.running.process import cause_of_death, serving
from pflbench.running.provenance import device_name
from pflbench.running.worker import Board, Outcomes, longest_first, work
from pflbench.spec import RunSpec
from pflbench.store.leases import Leases
from pflbench.units import count


def cores() -> int:
    """Number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def train(jobs: Sequence[Job], execution: Execution, on_event: OnEvent) -> list[Done]:
    """Train jobs on the devices of this machine: single runs on a CPU, all seeds of a cell together on a GPU.

    Raises:
        UsageError: A device or its precision is missing.
        StoreError: The results folder cannot be read or written.
        KeyboardInterrupt: Passes through; finished runs are stored.
    """
    devices = choose_devices(execution.device)
    on_gpu = devices[0].startswith("cuda")
    if not on_gpu and any(job.specs[0].precision == "tf32" for job in jobs):
        raise UsageError("--precision tf32 needs a GPU; on a CPU there are fp32, bf16 and fp64.")
    number = execution.jobs or (len(devices) if on_gpu else cores())
    execution = replace(execution, device=devices[0], jobs=number)
    if execution.client_map == "vectorized":
        jobs = stacks(jobs)
    with_cores = "" if on_gpu else f", {count(number, 'core')}"
    training = Training(jobs, f"{', '.join(devices)} ({device_name(devices[0])}{with_cores})")
    on_event(training)
    return execute(longest_first(jobs, training.work), execution, on_event, devices)


def stacks(jobs: Iterable[Job]) -> list[Job]:
    """Join jobs whose runs differ by seed only."""
    groups: dict[tuple[str, int | None], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.specs[0].group(), job.every), []).append(job)
    return [
        replace(
            several[0],
            specs=tuple(spec for job in several for spec in job.specs),
            requests={id: requests for job in several for id, requests in job.requests.items()},
            stored={id: finished for job in several for id, finished in job.stored.items()},
        )
        for several in groups.values()
    ]


def execute(jobs: Sequence[Job], execution: Execution, on_event: OnEvent, devices: Sequence[str] = ()) -> list[Done]:
    """Train jobs in their order on `execution.jobs` cores; a finished run is in the store before its `Done` is heard.

    Several cores are for as many worker processes; once fewer train, each run uses several cores for its clients. Of
    several `devices` each worker sees one, in turn. Warnings of workers are repeated here.
    """
    parent = _Parent(jobs, execution, on_event, devices)
    number = min(execution.jobs or 1, len(jobs))
    if number <= 1 and execution.executor == "local":  # in a cluster, a worker's death must not end the task
        work(jobs, execution, partial(parent.hear, None), parent.board)
    else:
        parent.serve(number)
    return parent.dones


@dataclass(eq=False)
class _Worker:
    slot: int
    process: BaseProcess
    pipe: Connection
    job: Job | None = None


class _Parent:
    """Hears workers, reports each run once, and starts a dead worker again."""

    def __init__(self, jobs: Sequence[Job], execution: Execution, on_event: OnEvent, devices: Sequence[str]) -> None:
        self.jobs, self.execution, self.on_event, self.devices = jobs, execution, on_event, devices
        self.board: Board = multiprocessing.get_context("spawn").RawValue(Board)
        self.outcomes = Outcomes(execution)
        self.dones: list[Done] = []
        self.unreported = {spec.id: spec for job in jobs for spec in job.specs}
        self.workers: list[_Worker] = []

    def hear(self, worker: _Worker | None, message: object) -> None:
        """Pass a worker's message on. `worker`: None for this process. Raises the error that ended the worker."""
        if isinstance(message, PflbenchError):
            raise message
        if isinstance(message, str):
            warnings.warn(message, stacklevel=2)
        elif isinstance(message, Done):
            if not message.elsewhere or not self._is_siblings(worker, message.spec):
                self._report(message)  # else the sibling's message is, which has its scores
        elif isinstance(message, Progress | Waiting):
            if worker is not None:
                worker.job = message.job if isinstance(message, Progress) else None
            if isinstance(message, Progress) or (self.execution.wait and not any(one.job for one in self.workers)):
                self.on_event(message)

    def _is_siblings(self, worker: _Worker | None, spec: RunSpec) -> bool:
        """True if another worker than this one trains a run."""
        return any(one.job and spec in one.job.specs for one in self.workers if one is not worker)

    def _report(self, done: Done) -> None:
        if self.unreported.pop(done.spec.id, None) is None:
            return
        self.dones.append(done)
        self.on_event(done)
        if done.fatal or (self.execution.fail_fast and done.status != "done"):
            self.board.halted = 1

    def serve(self, number: int) -> None:
        """Run worker processes until all runs are reported, or all workers have ended."""
        # Leases of killed workers are given back after the workers have ended.
        with Leases(self.execution.results), contextlib.ExitStack() as self.running:
            self.workers = [self._start(slot) for slot in range(number)]
            while self.workers and self.unreported:
                readable = wait([worker.pipe for worker in self.workers], 1.0)  # Ray's cancelling wakes no system call
                for worker in [one for one in self.workers if one.pipe in readable]:
                    self._read(worker)
                self.board.busy = sum(worker.job is not None for worker in self.workers)

    def _read(self, worker: _Worker) -> None:
        messages, is_gone = list[object](), False
        try:
            while worker.pipe.poll():
                messages.append(worker.pipe.recv())
        except (EOFError, OSError):
            is_gone = True
        for message in messages:
            if message is None:
                worker.job = None
            else:
                self.hear(worker, message)
        if is_gone:
            worker.process.join()
            self.workers.remove(worker)
            self.board.alive -= 1
            if worker.job is not None or worker.process.exitcode:
                self._bury(worker)

    def _bury(self, worker: _Worker) -> None:
        """Count the attempt of a worker that died, and start another one in its slot, unless it trained nothing.

        A run that it stored before it died is done.
        """
        job, reason = worker.job, cause_of_death(worker.process.exitcode or 0)
        for one in [job.of([spec]) for spec in job.specs] if job else []:
            done = self.outcomes.find(one, one.specs[0]) or Done(one.specs[0], "error", reason)
            if done.spec.id in self.unreported and self.outcomes.conclude(one, done):
                self._report(done)
        if stopping.heard():
            return
        if job is not None:
            self.workers.append(self._start(worker.slot))
        elif not self.workers:
            for spec in tuple(self.unreported.values()):
                self._report(Done(spec, "error", reason))

    def _start(self, slot: int) -> _Worker:
        device = self.devices[slot % len(self.devices)] if len(self.devices) > 1 else ""
        arguments = (self.jobs, self.execution, self.board, stopping.flag, device)
        pipe, process = self.running.enter_context(serving(serve, *arguments))
        self.board.alive += 1
        return _Worker(slot, process, pipe)


def serve(
    pipe: Connection, jobs: Sequence[Job], execution: Execution, board: Board, stop: Any, device: str = ""
) -> None:
    """Work in a worker process, and send what it says and warns of, at its end None. `device`: the only GPU it sees."""
    if device:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible(device)
        execution = replace(execution, device="cuda:0")
    stopping.flag = stop
    one_at_a_time = threading.Lock()  # any thread may warn

    def send(message: object) -> None:
        try:
            with one_at_a_time:
                pipe.send(message)
        except OSError:  # the parent is gone, which is no fault of the run
            os._exit(1)

    warnings.showwarning = lambda message, *_, **__: send(str(message))
    try:
        work(jobs, execution, send, board)
        send(None)
    except PflbenchError as error:
        send(error)


def visible(device: str) -> str:
    """Name of a GPU for `CUDA_VISIBLE_DEVICES`; `device` counts among those that are visible here."""
    index, names = device.partition(":")[2], os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return names.split(",")[int(index)] if names else index
