"""Training of the runs of a selection that have no result yet, and its outcome."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from pflbench.data.root import data_root
from pflbench.names import Places
from pflbench.running import build, conformance, local, stopping
from pflbench.running.again import state
from pflbench.running.datasets import DataCheck, count_datasets, shown_by
from pflbench.running.events import Notice, OnEvent, unheard
from pflbench.running.execution import Execution, choose_devices
from pflbench.running.job import Done, Job
from pflbench.running.shards import in_shard
from pflbench.running.worker import clear_errors
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store.header import Stored
from pflbench.store.requests import Request, keep_requests
from pflbench.store.shipped import came_with_pflbench
from pflbench.store.store import ShownStore, Store
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand
from pflbench.suite.load import loaded
from pflbench.units import count

REDONE = {"missing": ("missing",), "failed": ("missing", "failed"), "always": ("missing", "failed", "done")}
"""States of the runs that are trained, by `Execution.redo`."""


@dataclass(frozen=True)
class Outcome:
    """Runs to train and their outcome. A runnable run that is not among `dones` was not started."""

    runnable: Sequence[RunSpec] = ()
    problems: Sequence[str] = ()
    """Missing data, and reasons why jobs ended without results."""
    earlier: Mapping[RunSpec, str] = field(default_factory=dict)
    """Runs that are left out because they failed before, with their failure."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Column and row of each selected run, by its id."""
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
        """True if every selected run has a result, or, if others were not waited for, nothing went wrong."""
        expected = len(self.runnable) if self.waited else len(self.dones)
        return not self.problems and not self.earlier and self.finished == expected

    @property
    def summary(self) -> str:
        """Numbers of runs by outcome."""
        done, others = len(self.dones), sum(one.elsewhere for one in self.dones)
        return (
            f"{count(self.finished, 'run')} finished, {done - self.finished} failed, "
            f"{len(self.runnable) - done} not started, {others} by others."
        )

    def name(self, spec: RunSpec) -> str:
        """A run's column, row, seed and rounds."""
        return f"{self.names[spec.id]} · seed {spec.seed} · {count(spec.rounds, 'round')}"

    def failures(self, details: bool = False) -> list[str]:
        """A message for each distinct cause of failures, now and earlier. `details`: with its traceback."""
        causes: dict[str, list[tuple[RunSpec, str]]] = {}
        for done in self.dones:
            if done.status != "done":
                causes.setdefault(done.message, []).append((done.spec, f"\n{done.detail}" if details else ""))
        for spec, message in self.earlier.items():
            causes.setdefault(f"failed before (--redo failed tries again): {message}", []).append((spec, ""))
        return [
            f"{self.name(spec)}{f' and {len(more)} more' if more else ''}: {cause}{detail}"
            for cause, ((spec, detail), *more) in causes.items()
        ]

    def __str__(self) -> str:
        return "\n".join([*self.problems, *self.failures(), self.summary])


def run(
    part: Selection, results: Path, execution: Execution, on_event: OnEvent = unheard, *, dry: bool = False
) -> Outcome:
    """Train the runs without a result of a selection, and count the datasets of suites of statistics.

    The arguments, errors and `dry` are those of `train` and of `count_datasets`.
    """
    suites = loaded(part.suites, execution.data_dir)
    selected = [expand(suite, part) for suite in suites if suite.document().row]
    missing = count_datasets(suites, part, results, execution, on_event, dry=dry)
    for sentence in filter(None, (shown_by(suite, part, results) for suite in suites)):
        on_event(Notice(sentence))
    if not selected:
        return Outcome(problems=missing)
    outcome = train(jobs_of(selected), replace(execution, results=results), on_event, dry=dry)
    return replace(outcome, problems=[*missing, *outcome.problems])


def jobs_of(tables: Sequence[Expansion]) -> list[Job]:
    """The runs behind tables, each as a job."""
    specs = dict[RunSpec, Places]()
    labels = dict[str, str]()
    every: dict[str, int] = {}
    requests: dict[str, list[Mapping[str, object]]] = {}
    for table in tables:
        specs |= {spec: table.locations.get(spec.id, {}) for spec in table.runs}
        needed = [(spec.id, cell) for cell in table.cells for spec in cell.needed]
        for id, cell in dict(reversed(needed)).items():  # of each run the first cell
            labels.setdefault(id, f"{cell.column.called} · {cell.row.id}")
            requests.setdefault(id, []).append(table.provenance(cell))
        for id, cell in needed:
            if cell.every:
                every[id] = math.gcd(cell.every, every.get(id, 0))
    return [
        Job((spec,), code, labels[spec.id], every.get(spec.id), {spec.id: requests[spec.id]})
        for spec, code in specs.items()
    ]


def train(jobs: Sequence[Job], execution: Execution, on_event: OnEvent = unheard, *, dry: bool = False) -> Outcome:
    """Train those of these single runs that have no result. A finished run is in the store before its `Done` is heard.

    Several processes may train into one folder: each takes the first job on which no other has a lease. With
    `execution.checkpoint_every`, SIGTERM ends it after the round that is under way.

    Args:
        jobs: The runs.
        execution: Where and how to train.
        on_event: Hears what happens.
        dry: Look what is to do, and train nothing.

    Raises:
        UsageError: A method cannot be built or breaks the contract, or the device is missing.
        PflbenchError: Files of user-supplied data do not fit together.
        StoreError: The store cannot be read or written.
        KeyboardInterrupt: Passes through; finished runs are stored.
    """
    if execution.executor == "local":
        choose_devices(execution.device)  # before anything is done in vain
    store = ShownStore(execution.results, execution.fresh)
    chosen = in_shard({job.specs[0]: job.code for job in jobs}, execution.shard)
    jobs = [job for job in jobs if job.specs[0] in chosen]
    todo, outcome = _select(jobs, store, execution, on_event)
    runs = [(job.specs[0], job.code) for job in todo]
    build.check_all(runs)
    build.check_data(runs, data_root(execution.data_dir))
    if dry:
        return outcome
    if todo or not jobs:  # `merge` takes the folder of an empty shard, too
        Store(execution.results, fresh=True).check_writable()
    if not execution.unchecked:
        _check_contract(todo, on_event)
    _keep_requests(jobs, todo, store)
    if not todo:
        return outcome
    clear_errors(execution.results, (spec.id for spec in outcome.runnable))
    with stopping.heeding() if execution.checkpoint_every and execution.executor != "slurm" else nullcontext():
        dones, problems = _start(todo, execution, on_event)
        for problem in problems:
            on_event(Notice(problem, lacking=True))
        problems, stopped = [*outcome.problems, *problems], bool(stopping.heard())
    return replace(outcome, dones=dones, problems=problems, stopped=stopped, waited=execution.wait)


def _keep_requests(jobs: Sequence[Job], todo: Sequence[Job], store: Store) -> None:
    """Note which suites request these runs."""
    requests = {
        id: [Request.of(one, str(Path(str(one["file"])).resolve()) if "file" in one else "") for one in several]
        for job in jobs
        for id, several in job.requests.items()
    }
    keep_requests(store, requests, {job.specs[0].id for job in todo})


def _start(jobs: Sequence[Job], execution: Execution, on_event: OnEvent) -> tuple[Sequence[Done], Sequence[str]]:
    """Train jobs where `execution` says: what is finished, and why other runs have no result."""
    if execution.executor == "local":
        return local.train(jobs, execution, on_event), []
    if execution.executor == "slurm":
        from pflbench.running import slurm

        return slurm.train(jobs, execution, on_event)
    from pflbench.running import cluster

    return cluster.train(jobs, execution, on_event)


def _select(jobs: Sequence[Job], store: Store, execution: Execution, on_event: OnEvent) -> tuple[list[Job], Outcome]:
    """Jobs to train now, and the outcome of training none. Raises `PflbenchError` where the store cannot be read."""
    store.list()  # names files that are not read: their runs are trained again
    stored = {job: store.find(job.specs[0].id) for job in jobs}
    states = {job: state(run, job.specs[0], execution.evaluate_every or job.every) for job, run in stored.items()}
    todo = [
        replace(job, stored={job.specs[0].id: result.finished} if (result := stored[job]) else {})
        for job, one in states.items()
        if one in REDONE[execution.redo]
    ]
    present = [run for run in stored.values() if run]
    earlier = {run.spec: run.failure for run in present if run.failure is not None}
    done = [*states.values()].count("done")
    counts = f"{done} done, {len(earlier)} failed before, {len(todo)} to do"
    on_event(Notice(f"{count(len(jobs), 'run')}: {counts}."))
    if execution.redo != "always":
        _note_shipped(present, len(jobs), on_event)
    todo, problems = _trainable(todo, execution, on_event)
    runnable, names = [job.specs[0] for job in todo], {job.specs[0].id: job.name for job in jobs}
    return todo, Outcome(runnable, problems, earlier if execution.redo == "missing" else {}, names)


def _note_shipped(stored: Sequence[Stored], runs: int, on_event: OnEvent) -> None:
    """Say how many of so many runs came with pflbench."""
    if shipped := sum(run.shipped for run in stored):
        on_event(Notice(came_with_pflbench(shipped, runs)))


def _trainable(jobs: Sequence[Job], execution: Execution, on_event: OnEvent) -> tuple[list[Job], list[str]]:
    """Jobs whose data are present, and sentences on the missing data of the others."""
    data = DataCheck(data_root(execution.data_dir))
    lacks = {job: data.problems(job.specs[0], job.code) for job in jobs}
    problems = list(dict.fromkeys(chain(*lacks.values())))
    if problems:  # one message for all that is missing
        on_event(Notice("\n".join(problems), lacking=True))
    return [job for job in jobs if not lacks[job]], problems


def _check_contract(jobs: Sequence[Job], on_event: OnEvent) -> None:
    """Check user-supplied methods against the contract. Raises `UsageError` if one breaks it."""
    users = [job for job in jobs if "methods" in job.user_code]
    for job in {job.specs[0].method.model_dump_json(): job for job in users}.values():
        method = job.specs[0].method
        on_event(Notice(f"Checking {method.name} against the contract of methods."))
        remarks, warning = conformance.hold(method, job.user_code["methods"])
        for remark in remarks[:1]:  # `pflbench check` has all
            on_event(Notice(f"{method.name} {remark}."))
        if warning:
            warnings.warn(f"{method.name}: {warning}.", stacklevel=2)
