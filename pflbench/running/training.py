"""Train what has no result yet: from specs to stored runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pflbench import names
from pflbench.data.root import data_root
from pflbench.executor import build, conformance, local
from pflbench.executor.provenance import device_name
from pflbench.executor.task import Done, Place, Task
from pflbench.names import Places
from pflbench.running.events import Checking, Lacking, OnEvent, Planned, Remark, Training, unheard
from pflbench.running.execution import Execution, check_on_device, choose_device
from pflbench.running.missing_data import DataCheck
from pflbench.spec import RunSpec
from pflbench.store.asked import Asker, remember
from pflbench.store.store import Store
from pflbench.suite.labels import Part, with_columns
from pflbench.units import count


class ToTrain(NamedTuple):
    """What is to be trained, and what keeps some of it from being so: missing data, or having failed before.

    `earlier`: by run, why it failed then.
    """

    runnable: list[RunSpec]
    problems: list[str]
    earlier: dict[RunSpec, str]


class Outcome(NamedTuple):
    """A plan and the outcomes of its runs; what is runnable and not among `dones` was not started."""

    plan: ToTrain
    dones: list[Done]

    @property
    def good(self) -> bool:
        """Whether everything asked for has a result now."""
        done = sum(one.status == "done" for one in self.dones)
        return not self.plan.problems and not self.plan.earlier and done == len(self.plan.runnable)


class Work(NamedTuple):
    """Runs to train.

    `places`: by run id, where the code is of what it has of the user's own; `names`: by run id, its column and what it
    is called there.
    """

    specs: Sequence[RunSpec]
    places: Mapping[str, Places]
    names: Mapping[str, str]
    asked: Mapping[str, Sequence[Mapping[str, object]]] = MappingProxyType({})
    """By run id, for each suite that asks for it: where it stands, and what was other than the suite's."""


def work_of(parts: Sequence[Part]) -> Work:
    """The runs behind tables."""
    places = {id: where for table, _ in parts for id, where in table.locations.items()}
    asked: dict[str, list[Mapping[str, object]]] = {}
    for table, _ in parts:
        first = {spec.id: cell for cell in reversed(table.cells) for spec in cell.needed}
        for id, cell in first.items():
            asked.setdefault(id, []).append(table.asks(cell))
    return Work([spec for table, _ in parts for spec in table.runs], places, with_columns(parts), asked)


def to_train(work: Work, store: Store, execution: Execution, on_event: OnEvent = unheard) -> ToTrain:
    """What of this work is to be trained now. Raises `PflbenchError` where the store cannot be read."""
    store.list()  # names what is there and not taken: it would be trained again
    by_id = {spec.id: spec for spec in work.specs}
    states = {id: _state(store, spec, execution.evaluate_every) for id, spec in by_id.items()}
    wanted = {"missing": ("missing",), "failed": ("missing", "failed"), "always": ("missing", "failed", "done")}
    todo = [by_id[id] for id, state in states.items() if state in wanted[execution.redo]]
    on_event(Planned(states, len(todo)))
    runnable, problems = _with_data(todo, work.places, data_root(execution.data_dir))
    for problem in problems:
        on_event(Lacking(problem))
    left = [by_id[id] for id, state in states.items() if state == "failed"] if execution.redo == "missing" else []
    return ToTrain(runnable, problems, {spec: store.read(spec.id).failure or "" for spec in left})


def check(asked: ToTrain, work: Work) -> None:
    """Build what the runs to be trained have of the user's own. Raises `UsageError` if it cannot be built."""
    build.check_all((spec, places) for spec in asked.runnable if (places := work.places.get(spec.id)))


def train(work: Work, results: Path, execution: Execution, on_event: OnEvent = unheard) -> Outcome:
    """Train those of these runs that have no result. Every finished run is in the store before its `Done` is reported.

    Raises:
        UsageError: A user's method breaks the contract, or the device is not there.
        StoreError: The store cannot be read or written.
        KeyboardInterrupt: Passes through; finished runs are kept.
    """
    store = Store(results)
    asked = to_train(work, store, execution, on_event)
    askers = {
        id: [Asker(str(one["suite"]), str(one["profile"])) for one in several] for id, several in work.asked.items()
    }
    if not asked.runnable:
        remember(store, askers, ())
        return Outcome(asked, [])
    store.check_writable(spec.id for spec in asked.runnable)
    place = _place(results, execution, {spec.precision for spec in asked.runnable})
    tasks = _tasks(asked.runnable, work, place, execution.unchecked)
    build.check_all((task.specs[0], task.places) for task in tasks)
    if not execution.unchecked:
        _hold(tasks, on_event)
    remember(store, askers, {spec.id for spec in asked.runnable})
    jobs = execution.jobs or (1 if place.device.startswith("cuda") else local.cores())
    on_event(Training(tuple(tasks), work.names, _where(place.device, jobs)))
    return Outcome(asked, local.execute(tasks, place, jobs=jobs, on_event=on_event, fail_fast=execution.fail_fast))


def _place(results: Path, execution: Execution, precisions: set[str]) -> Place:
    device = choose_device(execution.device)
    for precision in sorted(precisions):
        check_on_device(precision, device)  # type: ignore[arg-type]
    return Place(
        results,
        data_root(execution.data_dir),
        device,
        "vectorized" if device.startswith("cuda") else "loop",
        memory_limit=execution.memory_limit,
        deterministic=execution.deterministic,
        evaluate_every=execution.evaluate_every,
    )


def _state(store: Store, spec: RunSpec, evaluate_every: int | None) -> str:
    """As the store says; a finished run that was scored less often than asked now counts as missing."""
    state = store.status(spec.id)
    if state == "done" and evaluate_every and evaluate_every < spec.rounds:
        was = store.read(spec.id).provenance.get("evaluate_every")
        return state if was and evaluate_every % was == 0 else "missing"
    return state


def _with_data(specs: list[RunSpec], places: Mapping[str, Places], root: Path) -> tuple[list[RunSpec], list[str]]:
    """The specs whose data are there, and a sentence for each thing that is not."""
    data = DataCheck(root)
    problems = {spec: data.problems(spec, places.get(spec.id, {})) for spec in specs}
    return [spec for spec in specs if not problems[spec]], list(dict.fromkeys(chain(*problems.values())))


def _tasks(specs: list[RunSpec], work: Work, place: Place, unchecked: bool) -> list[Task]:
    """Single runs on a CPU; on a GPU, all seeds of a cell together."""
    made_for = {id: several[0] for id, several in work.asked.items()}
    groups: dict[str, list[RunSpec]] = {}
    for spec in specs:
        groups.setdefault(spec.group() if place.execution == "vectorized" else spec.id, []).append(spec)
    tasks = []
    for group in groups.values():
        own = work.places.get(group[0].id, {})
        users = names.is_users(names.place("methods", group[0].method.name, own))
        tasks.append(Task(tuple(group), own, unchecked and users, made_for))
    return tasks


def _hold(tasks: Sequence[Task], on_event: OnEvent) -> None:
    """Hold users' methods against the contract. Raises `UsageError` if one breaks it."""
    methods = ((task.specs[0].method, task.reference) for task in tasks)
    for name, verdict in conformance.hold(methods, lambda name: on_event(Checking(name))):
        for remark in verdict.remarks[:1]:  # `pflbench check` has all
            on_event(Remark(name, remark))
        if verdict.warning:
            warnings.warn(f"{name}: {verdict.warning}.", stacklevel=2)


def _where(device: str, jobs: int) -> str:
    with_cores = "" if device.startswith("cuda") else f", {count(jobs, 'core')}"
    return f"{device} ({device_name(device)}{with_cores})"
