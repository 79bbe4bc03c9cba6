"""`pflbench run`: train and score what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from pflbench.cli import common
from pflbench.cli.common import console, errors
from pflbench.errors import PflbenchError, UsageError

if TYPE_CHECKING:
    from pflbench.data.source import Dataset
    from pflbench.executor.work import Done, Place, Task
    from pflbench.names import Places
    from pflbench.spec import RunSpec
    from pflbench.store.store import Store


def run(
    suite: common.Suites = None,
    method: common.Methods = None,
    dataset: common.Datasets = None,
    clients: common.Clients = None,
    partition: common.Partitions = None,
    column: common.Columns = None,
    seeds: common.Seeds = None,
    profile: common.Profile = "paper",
    rounds: common.Rounds = None,
    set_: common.Sets = None,
    precision: common.Precision = "fp32",
    device: common.Device = "auto",
    jobs: common.Jobs = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            "--evaluate-every", min=1, envvar="PFLBENCH_EVALUATE_EVERY", help="Score after every so many rounds, too."
        ),
    ] = None,
    memory_limit: common.MemoryLimit = None,
    deterministic: common.Deterministic = False,
    redo: common.Redo = "missing",
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
    unchecked: common.Unchecked = False,
    dry_run: common.DryRun = False,
    fail_fast: Annotated[
        bool,
        typer.Option("--fail-fast", envvar="PFLBENCH_FAIL_FAST", help="Start nothing more after a run that fails."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", envvar="PFLBENCH_QUIET", help="Print problems only.")] = False,
) -> int:
    """Train and score every run of a suite that has no result yet.

    A finished run is kept whatever happens next: interrupt it, and the same command goes on from there.
    """
    how = How(
        results=results,
        data_dir=data_dir,
        device=device,
        precision=precision,
        jobs=jobs,
        memory_limit=memory_limit,
        deterministic=deterministic,
        redo=redo,
        quiet=quiet,
        unchecked=unchecked,
        dry_run=dry_run,
        fail_fast=fail_fast,
        evaluate_every=evaluate_every,
    )
    how.check()
    parts = common.parts(
        common.loaded(common.required(suite), data_dir),
        profile=profile,
        methods=method,
        datasets=dataset,
        partitions=partition,
        clients=clients,
        columns=column,
        seeds=seeds,
        rounds=rounds,
        sets=set_,
        precision=precision,
    )
    locations = {id: where for table, _ in parts for id, where in table.locations.items()}
    names = _called(parts)
    outcome = train([spec for table, _ in parts for spec in table.runs], locations, names, how)
    out = Console(quiet=True) if quiet else console()
    if dry_run:
        for spec in outcome.runnable:
            out.print(f"  {_name(spec, names)}")
        return 1 if outcome.problems else 0
    dones = outcome.dones
    say_failures(dones, outcome.earlier, names)
    good, idle = sum(done.status == "done" for done in dones), len(outcome.runnable) - len(dones)
    if dones:
        rest = f", {idle} not started" if idle else ""
        out.print(f"{common.count(good, 'run')} finished, {len(dones) - good} failed{rest}.")
    return 1 if outcome.problems or outcome.earlier or good < len(outcome.runnable) else 0


@dataclass(frozen=True)
class How:
    """What the verbs that train are told about it; the fields are their options."""

    results: Path
    data_dir: Path | None
    device: str
    precision: str
    jobs: int | None
    memory_limit: str | None
    deterministic: bool
    redo: str
    quiet: bool
    unchecked: bool = False
    dry_run: bool = False
    fail_fast: bool = False
    evaluate_every: int | None = None

    def check(self) -> None:
        """Say what is wrong with it before anything else. Raises `UsageError`."""
        if self.redo not in ("missing", "failed", "always"):
            raise UsageError(f"Unknown --redo {self.redo!r}; known: missing, failed, always.")
        if self.memory_limit:
            common.size(self.memory_limit)
        if self.device != "auto" or self.precision == "tf32":
            device = choose_device(self.device)
            if self.precision == "tf32":
                check_precision(self.precision, device)

    def place(self, root: Path) -> Place:
        """Where to train, with the data in `root`."""
        from pflbench.executor.work import Place

        device = choose_device(self.device)
        check_precision(self.precision, device)
        return Place(
            self.results,
            root,
            device,
            "vectorized" if device.startswith("cuda") else "loop",
            memory_limit=common.size(self.memory_limit) if self.memory_limit else None,
            deterministic=self.deterministic,
            evaluate_every=self.evaluate_every,
        )


class Outcome(NamedTuple):
    """What became of what was to do: it could be run, was run, lacked data, or was left alone, having failed before."""

    runnable: list[RunSpec]
    dones: list[Done]
    problems: list[str]
    earlier: dict[RunSpec, str]


def train(specs: Sequence[RunSpec], locations: Mapping[str, Places], names: Mapping[str, str], how: How) -> Outcome:
    """Train those of these runs that have no result, and show how it goes.

    `locations`: by run id, where the code lives of what it has of the user's own; `names`: by run id, its column and
    what it is called there, as the display shows them.
    """
    from pflbench.data.root import data_root
    from pflbench.store.store import Store

    store = Store(how.results)
    store.list()  # names what is there and not taken: it would be trained again
    root = data_root(how.data_dir)
    by_id = {spec.id: spec for spec in specs}
    states = {id: _state(store, spec, how.evaluate_every) for id, spec in by_id.items()}
    wanted = {"missing": ("missing",), "failed": ("missing", "failed"), "always": ("missing", "failed", "done")}
    todo = [by_id[id] for id, state in states.items() if state in wanted[how.redo]]
    if not how.quiet:
        console().print(_summary(states, len(todo)))
    runnable, problems = _with_data(todo, locations, root)
    for problem in problems:
        errors().print(f"Error: {problem}")
    dones: list[Done] = []
    if runnable and not how.dry_run:
        store.check_writable(spec.id for spec in runnable)
        dones = _execute(runnable, locations, names, how.place(root), how)
    earlier = [by_id[id] for id, state in states.items() if state == "failed"] if how.redo == "missing" else []
    return Outcome(runnable, dones, problems, {spec: store.read(spec.id).failure or "" for spec in earlier})


def _state(store: Store, spec: RunSpec, evaluate_every: int | None) -> str:
    """As the store says; a finished run that was scored less often than asked now counts as missing."""
    state = store.status(spec.id)
    if state == "done" and evaluate_every and evaluate_every < spec.rounds:
        was = store.read(spec.id).provenance.get("evaluate_every")
        return state if was and evaluate_every % was == 0 else "missing"
    return state


def _summary(states: Mapping[str, str], todo: int) -> str:
    done = sum(state == "done" for state in states.values())
    failed = sum(state == "failed" for state in states.values())
    return f"{common.count(len(states), 'run')}: {done} done, {failed} failed before, {todo} to do."


def _name(spec: RunSpec, names: Mapping[str, str]) -> str:
    return f"{names[spec.id]} · seed {spec.seed} · {common.count(spec.rounds, 'round')}"


def _with_data(specs: list[RunSpec], locations: Mapping[str, Places], root: Path) -> tuple[list[RunSpec], list[str]]:
    """The specs whose dataset is there, and what else the user's own reads; one message per thing that is not."""
    from pflbench.names import make, place
    from pflbench.suite.own import lacking

    problems: dict[str, str] = {}
    runnable = []
    for spec in specs:
        named = spec.dataset
        key = named.model_dump_json()
        if key not in problems:
            reference = place("datasets", named.name, locations.get(spec.id, {}))
            dataset = make("datasets", reference, named.options, named.version)
            problems[key] = "" if dataset.status(root).startswith("ready") else _missing(named.name, dataset, root)
        lacks = {} if problems[key] else lacking(spec, root, locations.get(spec.id, {}))
        problems |= lacks
        if not problems[key] and not lacks:
            runnable.append(spec)
    return runnable, [text for text in problems.values() if text]


def _missing(name: str, dataset: Dataset, root: Path) -> str:
    try:
        dataset.load(root, 0)  # says what is missing, and how one gets it with these options
        how = dataset.status(root)
    except PflbenchError as error:
        how = str(error)
    except Exception:  # a user's dataset, which says so in words of its own
        how = dataset.status(root)
    return f"The dataset {name!r} is not there, so its columns are left out. {how}"


def _execute(
    specs: list[RunSpec], locations: Mapping[str, Places], names: Mapping[str, str], place: Place, how: How
) -> list[Done]:
    from pflbench.cli.progress import Display
    from pflbench.executor import build
    from pflbench.executor.estimate import relative_work
    from pflbench.executor.local import cores, execute

    tasks = _tasks(specs, locations, place, how.unchecked)
    build.check((task.specs[0], task.reference, task.places) for task in tasks)
    if not how.unchecked:
        _hold(tasks, how.quiet)
    jobs = how.jobs or (1 if place.device.startswith("cuda") else cores())
    work = None if how.quiet else relative_work({spec: task.reference for task in tasks for spec in task.specs})
    with Display(specs=specs, names=names, quiet=how.quiet, work=work) as display:
        display.say(f"Running on {_where(place.device, jobs)}.")
        return execute(tasks, place, jobs=jobs, on_event=display.event, fail_fast=how.fail_fast)


def _hold(tasks: Sequence[Task], quiet: bool) -> None:
    """Hold users' methods against the contract. Raises `UsageError` if one breaks it."""
    from pflbench.executor.conformance import hold

    out = Console(quiet=True) if quiet else console()
    methods = ((task.specs[0].method, task.reference) for task in tasks)
    for name, verdict in hold(methods, lambda name: out.print(f"Checking {name} against the contract of methods.")):
        for remark in verdict.remarks[:1]:  # `check` has all
            out.print(f"{name} {remark}.")
        if verdict.warning:
            errors().print(f"Warning: {name}: {verdict.warning}.")


def choose_device(name: str) -> str:
    """`auto` → the first GPU, else the CPU. Raises `UsageError` for a device that is not there."""
    import torch

    if name == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"Unknown device {name!r}; known: auto, cpu, cuda, cuda:0, …") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"Device {name!r} is not supported; known: auto, cpu, cuda, cuda:0, …")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"There is no device {name!r}; this machine has {torch.cuda.device_count()} CUDA devices.")
    return name


def _where(device: str, jobs: int) -> str:
    from pflbench.executor.provenance import device_name

    with_cores = "" if device.startswith("cuda") else f", {common.count(jobs, 'core')}"
    return f"{device} ({device_name(device)}{with_cores})"


def check_precision(precision: str, device: str) -> None:
    """Warn of a precision that is slow on this device.

    Raises:
        UsageError: The device does not have it.
    """
    from pflbench.executor.provenance import bf16_rate, has_bf16

    if precision == "tf32" and not device.startswith("cuda"):
        raise UsageError("--precision tf32 needs a GPU; on a CPU there are fp32, bf16 and fp64.")
    if precision != "bf16" or device != "cpu":
        return
    if not has_bf16():
        errors().print("Warning: this processor has no bf16 instructions, so --precision bf16 is slower than fp32.")
    elif (rate := bf16_rate()) < 1:
        errors().print(
            f"Warning: this processor multiplies in bf16 {rate:.1f} times as fast as in fp32, "
            "so --precision bf16 is slower."
        )


def _tasks(specs: list[RunSpec], locations: Mapping[str, Places], place: Place, unchecked: bool) -> list[Task]:
    """Single runs on a CPU; on a GPU, all seeds of a cell together."""
    from pflbench import names
    from pflbench.executor.work import Task

    groups: dict[str, list[RunSpec]] = {}
    for spec in specs:
        groups.setdefault(spec.group() if place.execution == "vectorized" else spec.id, []).append(spec)
    tasks = []
    for group in groups.values():
        places = locations.get(group[0].id, {})
        reference = names.place("methods", group[0].method.name, places)
        tasks.append(Task(tuple(group), reference, places, unchecked and names.is_users(reference)))
    return tasks


def _called(parts: Sequence[common.Part]) -> dict[str, str]:
    """Run id → the column it belongs to and what it is called there; of several, the first."""
    found: dict[str, str] = {}
    for table, labels in parts:
        for cell in table.cells:
            for spec in cell.needed:
                found.setdefault(spec.id, f"{cell.column.called} · {labels[spec.id]}")
    return found


def say_failures(dones: Sequence[Done], earlier: Mapping[RunSpec, str], names: Mapping[str, str]) -> None:
    """One message per distinct cause, now and earlier; `names`: as `train` takes them."""
    for message, specs in _by_message({d.spec: d.message for d in dones if d.status != "done"}).items():
        errors().print(f"Error: {_names(specs, names)}: {message}")
        if common.show_tracebacks:
            errors().print(next(d.detail for d in dones if d.spec == specs[0]))
    if earlier:
        are = "run that failed before was" if len(earlier) == 1 else "runs that failed before were"
        errors().print(f"Error: {len(earlier)} {are} left alone; --redo failed tries again.")
        for message, specs in _by_message(earlier).items():
            errors().print(f"  {_names(specs, names)}: {message}")


def _by_message(messages: Mapping[RunSpec, str]) -> dict[str, list[RunSpec]]:
    found: dict[str, list[RunSpec]] = {}
    for spec, message in messages.items():
        found.setdefault(message, []).append(spec)
    return found


def _names(specs: list[RunSpec], names: Mapping[str, str]) -> str:
    return _name(specs[0], names) + (f" and {len(specs) - 1} more" if len(specs) > 1 else "")
