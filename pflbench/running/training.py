"""Training of the runs that have no result yet, on this machine or by another executor, and its outcome."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pflbench import names
from pflbench.data.root import data_root
from pflbench.names import Places
from pflbench.running import build, conformance, local, stopping
from pflbench.running.again import often_enough
from pflbench.running.datasets import DataCheck
from pflbench.running.events import Notice, OnEvent, Training, unheard
from pflbench.running.execution import Execution, check_on_device, choose_devices
from pflbench.running.provenance import device_name
from pflbench.running.shards import in_shard
from pflbench.running.sharing import Settled, Shared, longest_first
from pflbench.running.task import Done, Environment, Task
from pflbench.spec import RunSpec
from pflbench.store import models
from pflbench.store.files import fresh
from pflbench.store.leases import Leases
from pflbench.store.requests import Request, keep_requests
from pflbench.store.shipped import came_with_pflbench
from pflbench.store.store import Store
from pflbench.units import count


class Outcome(NamedTuple):
    """Runs to train and their outcome. A runnable run that is not among `dones` was not started.

    `problems`: what is missing, so that runs were left out or nothing was counted; `earlier`: by run that was left out
    since it failed before, why; `names`: by run id, its column and what it is called there. `str` says it all.
    """

    runnable: list[RunSpec]
    problems: list[str]
    earlier: Mapping[RunSpec, str]
    names: Mapping[str, str]
    dones: Sequence[Done] = ()
    stopped: bool = False
    """True if SIGTERM ended it; runs under way tried to write their checkpoint."""
    waited: bool = True
    """True if the runs that others train were waited for."""

    @property
    def finished(self) -> int:
        """Number of runs that have a result only now."""
        return sum(one.status == "done" for one in self.dones)

    @property
    def good(self) -> bool:
        """True if every requested run has a result, or, where others were not waited for, nothing went wrong."""
        to_be = len(self.runnable) if self.waited else len(self.dones)
        return not self.problems and not self.earlier and self.finished == to_be

    @property
    def summary(self) -> str:
        """Numbers of finished and failed runs, in a sentence."""
        idle, others = len(self.runnable) - len(self.dones), sum(one.elsewhere for one in self.dones)
        rest = (f", {idle} not started" if idle else "") + (f"; {others} of them by others" if others else "")
        return f"{count(self.finished, 'run')} finished, {len(self.dones) - self.finished} failed{rest}."

    def called(self, spec: RunSpec) -> str:
        """A run's name, in full."""
        return f"{self.names[spec.id]} · seed {spec.seed} · {count(spec.rounds, 'round')}"

    def failures(self, details: bool = False) -> list[str]:
        """A message for each distinct cause why runs failed, now and earlier. `details`: with its traceback."""
        details_of = {done.spec: f"\n{done.detail}" if details else "" for done in self.dones}
        now = {done.spec: done.message for done in self.dones if done.status != "done"}
        found = [f"{text}{details_of[first]}" for first, text in self._causes(now)]
        if self.earlier:
            are = "run that failed before was" if len(self.earlier) == 1 else "runs that failed before were"
            lines = [f"{len(self.earlier)} {are} left alone; --redo failed tries again."]
            found.append("\n  ".join([*lines, *(text for _, text in self._causes(self.earlier))]))
        return found

    def _causes(self, messages: Mapping[RunSpec, str]) -> Iterator[tuple[RunSpec, str]]:
        """Each distinct message, behind the name of the first run that it is about, and that run."""
        about: dict[str, list[RunSpec]] = {}
        for spec, message in messages.items():
            about.setdefault(message, []).append(spec)
        for message, (first, *more) in about.items():
            yield first, f"{self.called(first)}{f' and {len(more)} more' if more else ''}: {message}"

    def __str__(self) -> str:
        return "\n".join([*self.problems, *self.failures(), self.summary])


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
    before: Mapping[str, Mapping[str, object] | None] | None = None
    """By run id, the provenance of what was stored when the work was given out. None: now."""
    every: Mapping[str, int] = MappingProxyType({})
    """By run id, the suite's interval of rounds after which it is scored, too."""

    def interval(self, spec: RunSpec, asked: Execution | Environment) -> int | None:
        """Interval of rounds after which a run is scored, too: the request's, else the suite's."""
        return asked.evaluate_every or self.every.get(spec.id)


class Handed(NamedTuple):
    """Work that is left to train, for an executor.

    Attributes:
        work: The runs; all can be built.
        results: The results folder.
        execution: How to train.
        on_event: Hears what happens.
        settled: What others made of a run since then.
    """

    work: Work
    results: Path
    execution: Execution
    on_event: OnEvent
    settled: Settled


def train(
    work: Work,
    results: Path,
    execution: Execution,
    on_event: OnEvent = unheard,
    *,
    dry: bool = False,
    elsewhere: Callable[[Handed], tuple[list[Done], list[str]]] | None = None,
) -> Outcome:
    """Train those of these runs that have no result. Every finished run is in the store before its `Done` is reported.

    Of several processes that train into one folder, each takes the longest run on which no other has a lease.
    With `execution.checkpoint_every`, SIGTERM ends it after the round that is under way.

    `dry`: say what there is to do, and stop. `elsewhere`: trains instead of this process and its workers, and returns
    what is finished, and what to say of the rest.

    Raises:
        UsageError: A user's method cannot be built or breaks the contract, or the device is not there.
        PflbenchError: What the data files of the user's own hold does not fit together.
        StoreError: The store cannot be read or written.
        KeyboardInterrupt: Passes through; finished runs are kept.
    """
    asked_for, work = work.specs, work._replace(specs=in_shard(work.specs, work.places, execution.shard))
    if asked_for and not work.specs:
        on_event(Notice(f"Shard {execution.shard} has no run: there are more shards than groups of seeds."))
    store = Store(results, packaged=True, fresh=execution.fresh)
    asked = _asked(work, store, execution, on_event)
    _check(asked.runnable, work, execution)
    if dry:
        return asked
    requests = {id: list(map(_request, several)) for id, several in work.asked.items()}
    if not asked.runnable:
        keep_requests(store, requests, ())
        return asked
    trained = Store(results, fresh=True)
    trained.check_writable(spec.id for spec in asked.runnable)
    before = _before(asked, trained) if work.before is None else work.before
    settled = _settled(trained, before, work, execution)
    if not execution.unchecked:
        _hold(asked.runnable, work, on_event)
    keep_requests(store, requests, {spec.id for spec in asked.runnable})
    handed = Handed(work._replace(specs=asked.runnable, before=before), results, execution, on_event, settled)
    with stopping.heeding() if execution.checkpoint_every and execution.executor != "slurm" else nullcontext():
        dones, problems = (elsewhere or _here)(handed)
        problems = [*asked.problems, *problems]
        _tell_bare(_done_elsewhere(dones), store, execution, on_event)
        return asked._replace(dones=dones, problems=problems, stopped=stopping.end_requested(), waited=execution.wait)


def _check(specs: Sequence[RunSpec], work: Work, execution: Execution) -> None:
    """Build what the runs name, and deal the user's own splits, before anything trains. Raises `PflbenchError`."""
    made = [(spec, work.places.get(spec.id, {})) for spec in specs]
    build.check_all(made)
    build.check_data(made, data_root(execution.data_dir))


def _done_elsewhere(dones: Iterable[Done]) -> list[str]:
    """The ids of the runs that other processes finished meanwhile."""
    return [done.spec.id for done in dones if done.elsewhere and done.status == "done"]


def _request(one: Mapping[str, object]) -> Request:
    """Request of a suite, by the provenance of a run that it asks for."""
    file = str(Path(str(one["file"])).resolve()) if "file" in one else ""
    return Request.of(one, file)


def _before(asked: Outcome, store: Store) -> dict[str, Mapping[str, object] | None]:
    """The provenance of what is stored now of what is to be trained, by run id."""
    found = {spec.id: store.find(spec.id) for spec in asked.runnable}
    return {id: one and one.provenance for id, one in found.items()}


def _here(handed: Handed) -> tuple[list[Done], list[str]]:
    """Train in this process and its workers."""
    work, results, execution, on_event, settled = handed
    devices = choose_devices(execution.device)
    for precision in sorted({spec.precision for spec in work.specs}):
        for device in devices:
            check_on_device(precision, device)
    env = Environment.of(results, execution, devices[0])
    made = tasks(work.specs, work, env, execution.unchecked)
    on_gpu = env.device.startswith("cuda")
    jobs = execution.jobs or (len(devices) if on_gpu else local.cores())
    with_cores = "" if on_gpu else f", {count(jobs, 'core')}"
    training = Training(tuple(made), work.names, f"{', '.join(devices)} ({device_name(env.device)}{with_cores})")
    on_event(training)
    with Leases(results) as leases:
        dones = local.execute(
            Shared(longest_first(made, training.work), leases, settled),
            env,
            jobs=jobs,
            on_event=on_event,
            fail_fast=execution.fail_fast,
            waits=execution.wait,
            devices=devices if len(devices) > 1 else (),
        )
    return dones, []


def _settled(
    store: Store, before: Mapping[str, Mapping[str, object] | None], work: Work, execution: Execution
) -> Settled:
    """Says of a run what another process made of it since its provenance was that of `before`."""

    def settled(spec: RunSpec) -> Done | None:
        fresh(store.runs)
        now, then = store.find(spec.id), before.get(spec.id)
        if now is None or (then is not None and now.provenance == then):
            return None
        if now.failure is not None:
            return Done(spec, "failed", now.failure, elsewhere=True)
        often = often_enough(now.provenance, spec, work.interval(spec, execution))
        return Done(spec, "done", elsewhere=True) if often else None

    return settled


def _asked(work: Work, store: Store, execution: Execution, on_event: OnEvent) -> Outcome:
    """Runs of this work that are to be trained now. Raises `PflbenchError` where the store cannot be read."""
    store.list()  # names what is there and not taken: it would be trained again
    by_id = {spec.id: spec for spec in work.specs}
    states = {id: _state(store, spec, work.interval(spec, execution)) for id, spec in by_id.items()}
    wanted = {"missing": ("missing",), "failed": ("missing", "failed"), "always": ("missing", "failed", "done")}
    todo = [by_id[id] for id, state in states.items() if state in wanted[execution.redo]]
    done, failed = (sum(state == one for state in states.values()) for one in ("done", "failed"))
    on_event(Notice(f"{count(len(states), 'run')}: {done} done, {failed} failed before, {len(todo)} to do."))
    if execution.redo != "always":
        _tell_shipped(by_id, store, on_event)
        _tell_bare(_in_state(states, "done"), store, execution, on_event)
    lacks = _lacking(todo, work, execution)
    problems = list(dict.fromkeys(chain(*lacks.values())))
    if problems:  # one message for all that is missing
        on_event(Notice("\n".join(problems), lacking=True))
    left = [by_id[id] for id in _in_state(states, "failed")] if execution.redo == "missing" else []
    earlier = {spec: run.failure or "" for spec in left if (run := store.find(spec.id)) is not None}
    return Outcome([spec for spec in todo if not lacks[spec]], problems, earlier, work.names)


def _tell_shipped(ids: Collection[str], store: Store, on_event: OnEvent) -> None:
    """Say how many of these runs came with pflbench."""
    stored = (store.find(id) for id in ids)
    if shipped := sum(run is not None and run.shipped for run in stored):
        on_event(Notice(came_with_pflbench(shipped, len(ids))))


def _in_state(states: Mapping[str, str], which: str) -> list[str]:
    return [id for id, state in states.items() if state == which]


def _tell_bare(ids: Iterable[str], store: Store, execution: Execution, on_event: OnEvent) -> None:
    """Say of how many of these finished runs models are asked for that were not kept, and will not be."""
    if not execution.keep_models:
        return
    done = (store.find(id) for id in ids)
    if bare := sum(models.find(store.root, run.spec.id) is None for run in done if run):
        on_event(Notice(f"{count(bare, 'finished run')} without models; --redo always trains again for them."))


def _lacking(specs: Sequence[RunSpec], work: Work, execution: Execution) -> dict[RunSpec, tuple[str, ...]]:
    """Data that each of these runs lacks, in sentences."""
    data = DataCheck(data_root(execution.data_dir))
    return {spec: data.problems(spec, work.places.get(spec.id, {})) for spec in specs}


def _state(store: Store, spec: RunSpec, evaluate_every: int | None) -> str:
    """State in the store; a finished run that was scored less often than requested now counts as missing."""
    stored = store.find(spec.id)
    if stored is None or (stored.failure is None and not often_enough(stored.provenance, spec, evaluate_every)):
        return "missing"
    return "done" if stored.failure is None else "failed"


def tasks(specs: Sequence[RunSpec], work: Work, env: Environment, unchecked: bool) -> list[Task]:
    """Single runs on a CPU; on a GPU, all seeds of a cell together."""
    made_for = {id: several[0] for id, several in work.asked.items()}
    groups: dict[tuple[str, int | None], list[RunSpec]] = {}
    for spec in specs:
        together = spec.group() if env.execution == "vectorized" else spec.id
        groups.setdefault((together, work.interval(spec, env)), []).append(spec)
    made = []
    for (_, every), group in groups.items():
        own = work.places.get(group[0].id, {})
        users = names.is_users(names.place("methods", group[0].method.name, own))
        made.append(Task(tuple(group), own, unchecked and users, made_for, every))
    return made


def _hold(specs: Sequence[RunSpec], work: Work, on_event: OnEvent) -> None:
    """Hold users' methods against the contract. Raises `UsageError` if one breaks it."""
    methods = (
        (spec.method, names.place("methods", spec.method.name, work.places.get(spec.id, {})))
        for spec in {spec.group(): spec for spec in reversed(specs)}.values()
    )
    checking = "Checking {} against the contract of methods."
    for name, verdict in conformance.hold(methods, lambda name: on_event(Notice(checking.format(name)))):
        for remark in verdict.remarks[:1]:  # `pflbench check` has all
            on_event(Notice(f"{name} {remark}."))
        if verdict.warning:
            warnings.warn(f"{name}: {verdict.warning}.", stacklevel=2)
