"""`--executor ray`: tasks of a Ray cluster that share the runs of one results folder, which all nodes see (`jobs`)."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from pflbench.errors import UsageError
from pflbench.running import jobs, local, stopping, training
from pflbench.running.execution import Execution
from pflbench.running.task import Done
from pflbench.units import count

PAUSE = 1.0
"""Seconds between two looks at the tasks."""
LOCALHOST = ("127.0.0.1", "::1")


def train(handed: training.Handed) -> tuple[list[Done], list[str]]:
    """Train on a Ray cluster until nothing is left, or with `checkpoint_every` until SIGTERM asks for an end.

    Returns:
        What is finished, and in sentences why other runs have no result.

    Raises:
        UsageError: Ray is not installed, there is no such cluster, or it has no room for a task.
        KeyboardInterrupt: Passes through; the tasks end, and what is finished is stored.
    """
    ray, ours = _connected(handed.execution)
    try:
        return _train(ray, handed, ours)
    finally:
        if ours:
            ray.shutdown()


def _train(ray: Any, handed: training.Handed, ours: bool) -> tuple[list[Done], list[str]]:
    tasks, where = _started(ray, handed, ours)

    def is_over() -> bool:
        _, running = ray.wait(tasks, num_returns=len(tasks), timeout=0)
        if stopping.end_requested():
            for task in running:
                ray.cancel(task, force=False)
        return not running

    try:
        dones = jobs.watch(handed, where, is_over, PAUSE)
    except KeyboardInterrupt:
        for task in tasks:
            ray.cancel(task, force=True)
        raise
    ray.wait(tasks, num_returns=len(tasks), timeout=10)  # they give their leases back
    remaining = 0 if stopping.end_requested() else len(handed.work.specs) - len(dones)
    return dones, jobs.ended(remaining, "Ray task", _complaints(ray, tasks) if remaining else [])


def _started(ray: Any, handed: training.Handed, ours: bool) -> tuple[list[Any], str]:
    """Tasks of Ray that train, and a text that describes them. Raises `UsageError` if there is never room for one."""
    execution = handed.execution
    cores, gpus = execution.jobs or 1, execution.gpus_per_task
    resource, share, each = ("GPU", gpus, f"{gpus:g} GPU") if gpus else ("CPU", cores, count(cores, "core"))
    room = int(ray.cluster_resources().get(resource, 0) / share + 1e-9)
    if not room and (execution.slots is None or (ours and execution.ray_address is None)):
        raise UsageError(f"--executor ray: no node has room for a task with {each}.")
    number = min(execution.slots or room, len(handed.work.specs))
    task = ray.remote(_drain).options(num_cpus=0 if gpus else cores, num_gpus=gpus or 0)
    text = jobs.job_text(handed, wait=True)
    return [task.remote(text) for _ in range(number)], f"{count(number, 'task')} of Ray, each with {each}"


def _drain(text: str) -> list[str]:
    """Task of Ray. It is canceled by SIGINT."""
    return jobs.drain(text, signal.SIGINT)[1]


def _complaints(ray: Any, tasks: list[Any]) -> list[str]:
    """What went wrong in tasks that have ended, each once."""
    sentences: dict[str, None] = {}
    for task in tasks:
        try:
            sentences |= dict.fromkeys(ray.get(task))
        except ray.exceptions.RayError as error:
            sentences[str(error).strip().splitlines()[-1]] = None
    return list(sentences)


def _connected(execution: Execution) -> tuple[Any, bool]:
    """Ray, connected to a cluster, and whether it is for us to disconnect. Raises `UsageError`."""
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
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
    if address is None:
        settings |= {"include_dashboard": False, "num_cpus": max(local.cores(), execution.jobs or 1)}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address or "local", **settings)
    except Exception as error:  # whatever Ray says
        where = f"there is no Ray cluster at {address!r}" if address else "Ray does not start"
        raise UsageError(f"--executor ray: {where}: {(str(error).strip() or repr(error)).splitlines()[0]}") from error
    if stopping.flag() is not None:  # Ray took it for itself
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
        why = error.strerror or str(error)
        raise UsageError(f"--executor ray: there is no Ray cluster at {address!r}: {why}.") from error
