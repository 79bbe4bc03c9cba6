"""`--executor ray`: tasks of a Ray cluster that share the runs of one results folder, which all nodes see (`jobs`)."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from pflbench.errors import UsageError
from pflbench.running import jobs, local, stopping
from pflbench.running.events import OnEvent
from pflbench.running.execution import Execution
from pflbench.running.job import Done, Job
from pflbench.store.files import error_text
from pflbench.units import count

PAUSE = 1.0
"""Seconds between two looks at the tasks."""
LOCALHOST = ("127.0.0.1", "::1")


def train(work: Sequence[Job], execution: Execution, on_event: OnEvent) -> tuple[list[Done], list[str]]:
    """Train on a Ray cluster until nothing remains, or with `checkpoint_every` until SIGTERM asks for an end.

    Returns:
        What is finished, and in sentences why other runs have no result.

    Raises:
        UsageError: Ray is not installed, there is no such cluster, or it has no room for a task.
        KeyboardInterrupt: Passes through; the tasks end, and what is finished is stored.
    """
    ray, is_ours = _connected(execution)
    try:
        tasks, where = _submit(ray, work, execution)

        def is_over() -> bool:
            _, running = ray.wait(tasks, num_returns=len(tasks), timeout=0)
            for task in running if stopping.heard() else ():
                ray.cancel(task, force=False)
            return not running

        try:
            dones, remaining = jobs.watch(work, execution, on_event, where, is_over, PAUSE)
        except KeyboardInterrupt:
            for task in tasks:
                ray.cancel(task, force=True)
            raise
        ray.wait(tasks, num_returns=len(tasks), timeout=10)  # they give their leases back
        remaining = 0 if stopping.heard() else remaining
        return dones, jobs.problems(remaining, "Ray task", _complaints(ray, tasks) if remaining else ())
    finally:
        if is_ours:
            ray.shutdown()


def _submit(ray: Any, work: Sequence[Job], execution: Execution) -> tuple[list[Any], str]:
    """Tasks of Ray that train, and a text that describes them. Raises `UsageError` if there is never room for one."""
    cores, gpus = execution.jobs or 1, execution.gpus_per_task
    resource, share, each = ("GPU", gpus, f"{gpus:g} GPU") if gpus else ("CPU", cores, count(cores, "core"))
    room = int(ray.cluster_resources().get(resource, 0) / share + 1e-9)
    if not room and (execution.slots is None or execution.ray_address is None):
        raise UsageError(f"--executor ray: no node has room for a task with {each}.")
    number = min(execution.slots or room, len(work))
    task = ray.remote(jobs.drain).options(num_cpus=0 if gpus else cores, num_gpus=gpus or 0)
    text = jobs.job_text(work, execution, wait=True)
    tasks = [task.remote(text, signal.SIGINT) for _ in range(number)]  # the signal by which Ray cancels them
    return tasks, f"{count(number, 'task')} of Ray, each with {each}"


def _complaints(ray: Any, tasks: Sequence[Any]) -> Iterable[str]:
    """Errors of tasks that have ended, each once."""
    errors: dict[str, None] = {}
    for task in tasks:
        try:
            ray.get(task)
        except ray.exceptions.RayError as error:
            errors[str(error).strip().splitlines()[-1]] = None
    return errors


def _connected(execution: Execution) -> tuple[Any, bool]:
    """Ray, connected to a cluster, and True if this command connected it. Raises `UsageError`."""
    address = execution.ray_address
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:  # else Ray takes an address that others reach: it runs any code that comes
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError as error:
        raise UsageError("--executor ray needs Ray: pip install 'pflbench[ray]'.") from error
    if ray.is_initialized():  # in a notebook
        return ray, False
    _check_address(address)
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        settings |= {"include_dashboard": False, "num_cpus": max(local.cores(), execution.jobs or 1)}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address or "local", **settings)
    except Exception as error:  # whatever Ray says
        where = f"there is no Ray cluster at {address!r}" if address else "Ray does not start"
        raise UsageError(f"--executor ray: {where}: {(str(error).strip() or repr(error)).splitlines()[0]}") from error
    if stopping.flag is not None:  # Ray took it for itself
        signal.signal(signal.SIGTERM, handler)
    listens = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    if address is None and listens not in LOCALHOST:
        ray.shutdown()
        raise UsageError(f"--executor ray: this version of Ray listens on {listens}, where others may reach it.")
    return ray, True


def _check_address(address: str | None) -> None:
    """Raise `UsageError` if nothing answers there: Ray itself tries for minutes, and ends the process."""
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise UsageError(f"--executor ray: there is no Ray cluster at {address!r}: {error_text(error)}.") from error
