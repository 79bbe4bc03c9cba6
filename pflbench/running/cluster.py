"""`--executor ray`: actors of a Ray cluster train, and this process stores what they send.

This process takes the leases on runs (`store.leases`), so other terminals and jobs may share the folder. Nodes need no
folder in common with it: code and settings go to them as JSON, results come back as the bytes of Parquet files.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pflbench.errors import UsageError
from pflbench.running import local, provenance, stopping, training
from pflbench.running.actor import Slot, SlotInput
from pflbench.running.checkpoint import package_digest
from pflbench.running.events import Notice, OnEvent, Training
from pflbench.running.execution import Execution
from pflbench.running.sharing import Shared, longest_first
from pflbench.running.task import Done, Environment, Task, store_result
from pflbench.store import leases
from pflbench.store.header import Unfit
from pflbench.store.runfile import RunFile
from pflbench.units import count

TRIES = 3
"""Tries of a task whose actors die."""
PATIENCE = 300.0
"""Seconds without any actor that answers, after which no more is waited."""
LOCALHOST = ("127.0.0.1", "::1")


def train(handed: training.Handed) -> tuple[list[Done], list[str]]:
    """Train on a Ray cluster until nothing is left, or with `checkpoint_every` until SIGTERM asks for an end.

    Returns:
        What is finished, and in sentences what the cluster lacks.

    Raises:
        UsageError: Ray is not installed, or there is no such cluster.
        KeyboardInterrupt: Passes through; the actors end, and what is finished is stored.
    """
    work, results, execution, on_event, _, settled = handed
    ray, ours = _connected(execution)
    try:
        env = Environment.of(results, execution, "cuda:0" if execution.gpus_per_task else "cpu")
        tasks = training.tasks(work.specs, work, env, execution.unchecked)
        number = min(_slots(ray, execution, ours and execution.ray_address is None, on_event), len(tasks))
        every = Training(tuple(tasks), work.names, f"{count(number, 'actor')} of Ray, each with {_each(execution)}")
        on_event(every)
        with leases.Leases(results) as held:
            shared = Shared(longest_first(tasks, every.work), held, settled)
            driver = _Driver(ray, shared, env, execution, on_event)
            try:
                driver.run(number)
            finally:
                driver.end()
        return driver.dones, driver.problems
    finally:
        if ours:
            ray.shutdown()


def _each(execution: Execution) -> str:
    if execution.gpus_per_task:
        share = execution.gpus_per_task
        return count(int(share), "GPU") if share == int(share) else f"{share:g} of a GPU"
    return count(execution.jobs or 1, "core")


def _connected(execution: Execution) -> tuple[Any, bool]:
    """Ray, connected to a cluster, and whether it is for us to disconnect. Raises `UsageError`."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError("--executor ray needs Ray: pip install 'pflbench[ray]'.") from error
    if ray.is_initialized():  # in a notebook
        return ray, False
    address = execution.ray_address
    _check_address(address)
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "configure_logging": True}
    if address is None:
        cores = max(local.cores(), execution.jobs or 1)
        settings |= {"include_dashboard": False, "num_cpus": cores, "_node_ip_address": LOCALHOST[0]}
    hears = signal.getsignal(signal.SIGTERM)
    try:
        with nullcontext() if address else _apart():
            ray.init(address or "local", **settings)
        if stopping.flag() is not None:  # Ray took it for itself
            signal.signal(signal.SIGTERM, hears)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"there is no Ray cluster at {address!r}" if address else "Ray does not start"
        raise UsageError(f"--executor ray: {where}: {str(error).strip().splitlines()[0]}") from error
    listens = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    if address is None and listens not in LOCALHOST:
        ray.shutdown()
        raise UsageError(f"--executor ray: this version of Ray listens on {listens}, where others may reach it.")
    return ray, True


@contextmanager
def _apart() -> Iterator[None]:
    """Have a Ray that starts within this context listen on this machine's own address only.

    On Linux Ray takes an address that others can reach in place of 127.0.0.1, unless clusters are off. That switch
    is none of Ray's public settings: the caller looks at the address.
    """
    constants: Any = import_module("ray._private.ray_constants")
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


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


def _slots(ray: Any, execution: Execution, own: bool, on_event: OnEvent) -> int:
    """Number of actors to start. A Ray of our `own` gets no more room; a cluster may, and gets all requested.

    Raises:
        UsageError: There is no room for one, and none is to come.
    """
    room, slots = _room(ray, execution), execution.slots
    if own or slots is None:
        if not room:
            there = "this machine" if own else "the cluster"
            raise UsageError(f"--executor ray: {there} has no room for an actor with {_each(execution)}.")
        return min(slots or room, room)
    if slots > room:
        on_event(Notice(f"The cluster has room for {room} of {slots} actors now; the others start once it has more."))
    return slots


def _room(ray: Any, execution: Execution) -> int:
    """Number of actors that the cluster has room for."""
    resources = ray.cluster_resources()
    if execution.gpus_per_task:
        # A share of a GPU is a share of one.
        share = execution.gpus_per_task
        total = int(resources.get("GPU", 0))
        return total * int(1 / share + 1e-9) if share < 1 else int(total / share)
    return int(resources.get("CPU", 0) // (execution.jobs or 1))


@dataclass
class _Actor:
    """A slot of the cluster.

    Attributes:
        number: Which of them.
        handle: Ray's.
        answer: What will say what it is; None once it has said so.
        lacks: What data it lacks, in sentences, by task's sample of data.
        died: How often it died before it answered.
        task: What it trains.
        messages: What it sends of that.
    """

    number: int
    handle: Any
    answer: Any = None
    lacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    died: int = 0
    task: Task | None = None
    messages: Any = None


@dataclass
class _Driver:
    """Hands tasks to actors, one at a time each, and stores what they send."""

    ray: Any
    shared: Shared
    env: Environment
    execution: Execution
    on_event: OnEvent
    dones: list[Done] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.shared.on_done = self._done
        self.samples = {_sample(task): SlotInput.of(task) for task in reversed(self.shared.waiting)}
        self.actors: list[_Actor] = []
        self.deaths: dict[Task, list[int]] = {}
        """Numbers of the actors that died of a task."""
        self.heard = self.clock()
        self.told: set[str] = set()
        self.stopped: set[int] = set()

    def run(self, number: int) -> None:
        """Train with so many actors."""
        self.actors = [self._actor(k) for k in range(number)]
        while True:
            self._hand_out()
            busy = {actor.messages: actor for actor in self.actors if actor.task is not None}
            answers = {actor.answer: actor for actor in self.actors if actor.answer is not None}
            if not busy and not self._goes_on(bool(answers)):
                break
            ready = []
            if busy or answers:
                ready, _ = self.ray.wait([*busy, *answers], num_returns=1, timeout=leases.PACE.poll)
            else:
                time.sleep(leases.PACE.poll)
            for one in ready:
                self.heard = self.clock()
                self._hear(busy[one]) if one in busy else self._answered(answers[one])
        self.shared.give_up()

    def end(self) -> None:
        """End the actors."""
        for actor in self.actors:
            with suppress(Exception):  # it may be gone, and the cluster too
                self.ray.kill(actor.handle, no_restart=True)

    def _actor(self, number: int) -> _Actor:
        needs: dict[str, float] = {"num_cpus": self.execution.jobs or 1}
        if share := self.execution.gpus_per_task:
            needs = {"num_cpus": 0, "num_gpus": share}
        made = self.ray.remote(Slot).options(max_restarts=-1, max_concurrency=2, **needs)
        env = TypeAdapter(Environment).dump_json(replace(self.env, results=Path(), data_root=Path())).decode()
        data_dir = self.execution.data_dir and str(self.execution.data_dir)
        if data_dir and not data_dir.startswith("~"):
            data_dir = str(Path(data_dir).absolute())  # actors have folders of their own to begin at
        actor = _Actor(number, made.remote(env, data_dir, self.execution.jobs or 1))
        self._ask(actor)
        return actor

    def _ask(self, actor: _Actor) -> None:
        """Ask an actor what it is; it gets no task before it answers."""
        actor.answer = actor.handle.about.remote(list(self.samples.values()))

    def _answered(self, actor: _Actor) -> None:
        try:
            told = self.ray.get(actor.answer)
        except self.ray.exceptions.RayActorError:  # Ray starts it again, where there is room
            actor.died += 1
            if actor.died < TRIES:
                self._ask(actor)
            else:
                self._dismiss(actor, "An actor of the Ray cluster died as often as it was started.")
            return
        except self.ray.exceptions.RayError as error:
            self._dismiss(actor, f"An actor of the Ray cluster cannot train: {str(error).strip().splitlines()[-1]}")
            return
        actor.answer = None
        if other := [
            f"{name} {its}, here {_here()[name]}" for name, its in told["versions"].items() if its != _here()[name]
        ]:
            self._dismiss(actor, f"{told['host']} has other code, and trains nothing: {'; '.join(other)}.")
            return
        actor.lacks = dict(zip(self.samples, told["lacks"], strict=True))
        for sentence in dict.fromkeys(text for several in told["lacks"] for text in several):
            if (said := f"{told['host']}: {sentence}") not in self.told:
                self.told.add(said)
                self.on_event(Notice(said))

    def _dismiss(self, actor: _Actor, why: str) -> None:
        self.actors.remove(actor)
        if why not in self.told:
            self.told.add(why)
            warnings.warn(why, stacklevel=2)
        with suppress(Exception):
            self.ray.kill(actor.handle, no_restart=True)

    def _goes_on(self, answers: bool) -> bool:
        """True if more is to come while nothing is under way. Notes tasks that cannot be trained."""
        left = [*self.shared.again, *self.shared.waiting]
        if not left:
            return False
        late = self.clock() - self.heard > PATIENCE
        if not self._answering() and (late or not answers):
            self.problems.append(
                f"{count(sum(len(one.specs) for one in left), 'run')} left: no actor of the Ray cluster answers."
            )
            return False
        if answers and not late:
            return True
        if self._lacking(left) == len(left) or not self.execution.wait:
            return False
        if "waiting" not in self.told:
            self.told.add("waiting")
            self.on_event(local.Waiting(self.shared.runs, tuple(self.shared.holders())))
        return True

    def _answering(self) -> list[_Actor]:
        """The actors that said what they are, and did not die since."""
        return [actor for actor in self.actors if actor.answer is None]

    def _lacking(self, tasks: Sequence[Task]) -> int:
        """For how many of these no actor has the data; what they lack is noted."""
        answering = self._answering()
        lacking = [task for task in tasks if not any(_has(actor, task) for actor in answering)]
        sentences = (text for task in lacking for actor in answering for text in actor.lacks[_sample(task)])
        self.problems += [text for text in dict.fromkeys(sentences) if text not in self.problems]
        return len(lacking)

    def _hand_out(self) -> None:
        """A task for each idle actor, as far as it has the data for one."""
        if stopping.end_requested():
            for actor in self.actors:
                if actor.task is not None and actor.number not in self.stopped:
                    self.stopped.add(actor.number)
                    actor.handle.stop.remote()
        if local.is_over(self.dones, self.execution.fail_fast):
            self.shared.give_up()
        for actor in self.actors:
            if actor.task is not None or actor.answer is not None:
                continue
            actor.task = self._once_more(actor) or self.shared.take(lambda task, actor=actor: _has(actor, task))  # type: ignore[misc]
            if actor.task is not None:
                self.told.discard("waiting")
                self.on_event(local.Progress(actor.task, None))
                actor.messages = actor.handle.train.remote(SlotInput.of(actor.task))

    def _once_more(self, actor: _Actor) -> Task | None:
        """A task of which another actor died, or this one where no other can train it."""
        for task in self.shared.again:
            others = any(_has(other, task) for other in self.actors if other is not actor)
            if _has(actor, task) and not (others and self.deaths[task][-1] == actor.number):
                self.shared.again.remove(task)
                return task
        return None

    def _hear(self, actor: _Actor) -> None:
        assert actor.task is not None
        try:
            message = self.ray.get(next(actor.messages))
        except self.ray.exceptions.RayActorError:
            self._died(actor)
            return
        except (self.ray.exceptions.RayError, StopIteration) as error:
            reason = str(error).strip().splitlines()[-1] if str(error).strip() else "it sent no result"
            self._over(actor, [Done(spec, "error", f"its actor failed: {reason}") for spec in actor.task.specs])
            return
        if isinstance(message, int):
            self.on_event(local.Progress(actor.task, message))
        elif isinstance(message, str):
            warnings.warn(message, stacklevel=2)
        else:
            self._over(actor, self._stored(actor.task, json.loads(message["dones"]), message["files"]))

    def _died(self, actor: _Actor) -> None:
        task = actor.task
        assert task is not None
        self._ask(actor)
        tries = self.deaths.setdefault(task, [])
        tries.append(actor.number)
        if len(tries) >= TRIES:
            self._over(actor, [Done(spec, "error", f"{TRIES} actors that trained it died.") for spec in task.specs])
            return
        warnings.warn(f"{task}: its actor or node died. It is tried once more.", stacklevel=2)
        actor.task = None
        self.shared.again.append(task)

    def _over(self, actor: _Actor, dones: Sequence[Done]) -> None:
        assert actor.task is not None
        for done in dones:
            self._done(done)
        self.shared.release(actor.task)
        actor.task = None

    def _done(self, done: Done) -> None:
        self.dones.append(done)
        self.on_event(done)

    def _stored(self, task: Task, told: Sequence[Mapping[str, str]], files: Mapping[str, bytes]) -> list[Done]:
        """Store those of a task's runs that have a file; return the outcome of each."""
        specs, dones = {spec.id: spec for spec in task.specs}, []
        for one in told:
            id, message, detail = one["id"], one["message"], one["detail"]
            if id not in files:
                dones.append(Done(specs[id], "error", message, detail))
                continue
            try:
                with tempfile.TemporaryDirectory(prefix="pflbench-") as folder:
                    path = Path(folder) / f"{id}.parquet"
                    path.write_bytes(files[id])
                    dones.append(store_result(RunFile(path).read(id), self.env, detail))
            except (Unfit, OSError, KeyError) as error:
                dones.append(Done(specs[id], "error", f"what its actor sent cannot be read: {error}"))
        return dones


def _sample(task: Task) -> str:
    """Text that is equal for tasks with the same data."""
    spec = task.specs[0]
    places = {key: value for key, value in task.places.items() if key.partition(".")[0] in ("datasets", "partitions")}
    return f"{spec.dataset!r} {spec.partition!r} {sorted(places.items())}"


def _has(actor: _Actor, task: Task) -> bool:
    return actor.answer is None and not actor.lacks[_sample(task)]


@cache
def _here() -> Mapping[str, str]:
    """The versions that actors must have, too."""
    versions = provenance.versions()
    return {"code": package_digest(), **{name: str(versions[name]) for name in ("pflbench", "torch")}}
