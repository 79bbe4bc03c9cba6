"""What the driver of `--executor ray` does when actors die, are late or lack data: on a made-up Ray, without processes."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pflbench.errors import UsageError
from pflbench.running import cluster
from pflbench.running.actor import Slot, SlotInput
from pflbench.running.execution import Execution
from pflbench.running.local import Waiting
from pflbench.running.sharing import Alone, Shared
from pflbench.running.task import Environment, Task
from pflbench.store import leases
from pflbench.testing import tiny_spec


class Died(Exception):
    """What Ray raises for an actor that is dead."""


class Ref:
    """What an actor will answer; None: nothing, ever."""

    def __init__(self, value: Any):
        self.value = value

    def __next__(self) -> Ref:
        return self


class Handle:
    """An actor that follows a script: what it says of itself each time it is asked, and what it sends for each task."""

    def __init__(self, about: Iterable[Any], trains: Iterable[Any] = ()):
        self.abouts, self.trains = iter(about), iter(trains)
        self.trained: list[str] = []
        self.about, self.train = SimpleNamespace(remote=self._about), SimpleNamespace(remote=self._train)

    def _about(self, samples: list[str]) -> Ref:
        lacks = next(self.abouts)
        if not isinstance(lacks, list):
            return Ref(lacks)
        return Ref({"host": "there", "versions": cluster._here(), "lacks": [lacks] * len(samples)})

    def _train(self, order: str) -> Ref:
        (id,) = (spec.id for spec in SlotInput.read(order).specs)
        self.trained.append(id)
        value = next(self.trains)
        told = [{"id": id, "message": "over", "detail": ""}]
        return Ref({"dones": json.dumps(told), "files": {}} if value == "sent" else value)


class Ray:
    """Of Ray what the driver uses; each look takes ten seconds."""

    exceptions = SimpleNamespace(RayActorError=Died, RayError=Died)

    def __init__(self, *handles: Handle):
        self.handles, self.seconds, self.killed = iter(handles), 0.0, []

    def remote(self, _: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: next(self.handles)))

    def wait(self, refs: list[Ref], num_returns: int, timeout: float) -> tuple[list[Ref], list[Ref]]:
        self.pass_by(10.0)
        ready = [ref for ref in reversed(refs) if ref.value is not None][:num_returns]  # first who says what it is
        return ready, [ref for ref in refs if ref not in ready]

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds
        assert self.seconds < 10_000, "it waits for ever"

    def get(self, ref: Ref) -> Any:
        if isinstance(ref.value, Exception):
            raise ref.value
        return ref.value

    def kill(self, handle: Handle, no_restart: bool) -> None:
        self.killed.append(handle)


class Others(Alone):
    """Leases that others hold at the first so many looks."""

    def __init__(self, looks: int):
        self.looks = looks

    def take(self, ids: Any, partly: bool = False) -> list[str]:
        self.looks -= 1
        return [] if self.looks >= 0 else list(ids)


HAS: list[str] = []
LACKS = ["The dataset is not there."]


def drive(monkeypatch: pytest.MonkeyPatch, *handles: Handle, tasks: int = 1, looks: int = 0) -> Any:
    """A driver that ran, its events beside it."""
    ray, events = Ray(*handles), []
    monkeypatch.setattr(cluster, "time", SimpleNamespace(sleep=lambda _: ray.pass_by(10.0)))
    monkeypatch.setattr(leases, "PACE", leases.PACE._replace(poll=0.0))
    several = [Task((tiny_spec(seed, "fedavg"),)) for seed in range(tasks)]
    place = Environment(Path("results"), Path("data"), "cpu", "loop")
    shared = Shared(several, Others(looks))
    driver = cluster._Driver(ray, shared, place, Execution(executor="ray"), events.append, clock=lambda: ray.seconds)
    driver.run(len(handles))
    driver.events = events
    return driver


@pytest.mark.filterwarnings("ignore:.*its actor or node died")
def test_a_task_goes_to_another_actor_and_is_an_error_after_three_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Handle([HAS] * 4, [Died()] * 3) for _ in range(2))
    driver = drive(monkeypatch, first, second)
    assert first.trained and second.trained and len(first.trained + second.trained) == 3
    assert [done.message for done in driver.dones] == ["3 actors that trained it died."]


@pytest.mark.filterwarnings("ignore:.*its actor or node died")
def test_a_task_comes_again_to_its_actor_where_the_others_are_gone_or_lack_its_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for other in (Handle([None]), Handle([LACKS])):
        actor = Handle([HAS, HAS], [Died(), "sent"])
        driver = drive(monkeypatch, actor, other)
        assert [done.message for done in driver.dones] == ["over"] and not driver.problems
        assert len(actor.trained) == 2


def test_an_actor_that_never_answers_ends_no_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = int(3 * cluster.PATIENCE / 10)
    driver = drive(monkeypatch, Handle([HAS], ["sent"]), Handle([None]), looks=looks)
    assert [done.message for done in driver.dones] == ["over"] and not driver.problems
    assert sum(isinstance(event, Waiting) for event in driver.events) == 1


def test_where_no_actor_answers_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = drive(monkeypatch, Handle([None]), Handle([None]), tasks=2)
    assert driver.problems == ["2 runs left: no actor of the Ray cluster answers."] and not driver.dones
    assert driver.ray.seconds <= cluster.PATIENCE + 20


def test_data_that_no_actor_has_is_named_though_another_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for handles in ((Handle([LACKS]), Handle([LACKS])), (Handle([LACKS]), Handle([None]))):
        driver = drive(monkeypatch, *handles, tasks=2)
        assert driver.problems == LACKS and not driver.dones
        assert [str(event.text) for event in driver.events] == [f"there: {LACKS[0]}"]


def slots(there: dict[str, float], own: bool, **how: Any) -> tuple[int, list[str]]:
    """How many actors are started where there is so much, and what is said of it."""
    events: list[Any] = []
    ray = SimpleNamespace(cluster_resources=lambda: there)
    number = cluster._slots(ray, Execution(executor="ray", **how), own, events.append)
    return number, [str(event) for event in events]


def test_slots_are_as_many_as_there_is_room_for_and_a_cluster_may_grow() -> None:
    assert slots({"CPU": 4.0}, True, jobs=2) == slots({"CPU": 4.0}, True, jobs=2, slots=4) == (2, [])
    assert slots({"CPU": 4.0}, False, slots=3) == (3, [])
    number, (said,) = slots({"CPU": 4.0}, False, gpus_per_task=1.0, slots=2)
    assert number == 2 and said.startswith("The cluster has room for 0 of 2 actors now;")


@pytest.mark.parametrize(
    ("own", "how", "message"),
    [
        (True, {"slots": 1, "gpus_per_task": 1.0}, "this machine has no room for an actor with 1 GPU."),
        (True, {"gpus_per_task": 0.5}, "this machine has no room for an actor with 0.5 of a GPU."),
        (False, {"jobs": 8}, "the cluster has no room for an actor with 8 cores."),
    ],
)
def test_where_there_is_never_room_nothing_is_waited_for(own: bool, how: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        slots({"CPU": 4.0}, own, **how)


def test_code_that_ends_its_process_is_an_error_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the actor lives, and sends nothing for ever."""

    def leave(*_: object) -> None:
        raise SystemExit("I leave")

    monkeypatch.setattr("pflbench.running.actor.run_task", leave)
    monkeypatch.setattr("pflbench.running.actor.cache_folder", lambda: tmp_path)
    actor = object.__new__(Slot)
    actor.env, actor.lanes = Environment(tmp_path, tmp_path, "cpu", "loop"), 1
    found: list[Any] = []
    before = warnings.showwarning
    listener = threading.Thread(
        target=lambda: found.extend(actor.train(SlotInput.of(Task((tiny_spec(0, "fedavg"),))))), daemon=True
    )
    listener.start()
    listener.join(20)
    warnings.showwarning = before
    assert not listener.is_alive() and "I leave" in json.loads(found[-1]["dones"])[0]["message"]
