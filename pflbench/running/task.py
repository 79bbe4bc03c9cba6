"""One task: build, simulate, and store a group of runs that differ by seed only."""

from __future__ import annotations

import hashlib
import os
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from pflbench import names, trust
from pflbench.data.federation import Federation
from pflbench.data.root import data_root
from pflbench.engine import client_map
from pflbench.engine.client_map import one_lane, out_of_memory
from pflbench.engine.evaluate import before_aggregation
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import PflbenchError, StoreError, UsageError, one_line
from pflbench.methods.base import Method
from pflbench.models.network import Network
from pflbench.result import RunResult, Score
from pflbench.running import build, checkpoint, provenance
from pflbench.running.again import apart, often_enough
from pflbench.running.allocator import in_use, limited, peak, reset_peak, tidy
from pflbench.running.execution import Execution
from pflbench.running.follow import Follower, destination
from pflbench.running.models import Models
from pflbench.spec import RunSpec
from pflbench.store import models as kept
from pflbench.store.header import Stored
from pflbench.store.store import Store
from pflbench.units import Interval


@dataclass(frozen=True)
class Task:
    """Runs to train together, and where the code is of what in them is the user's own."""

    specs: tuple[RunSpec, ...]
    places: names.Places = field(default_factory=dict, compare=False)
    unchecked: bool = False
    """True if a user-supplied method was not held against the contract: provenance."""
    asked: Mapping[str, Mapping[str, object]] = field(default_factory=dict, compare=False)
    """By run id, which suite, profile, row and column asked for it, and for how many rounds: provenance."""
    every: int | None = None
    """Interval of rounds after which the runs are scored, too: the request's, else the suite's."""

    def __str__(self) -> str:
        first, seeds = self.specs[0], ", ".join(str(spec.seed) for spec in self.specs)
        return f"{first.method.name} on {first.dataset.name}, seed {seeds}"

    @property
    def reference(self) -> str:
        """Reference of their method's code."""
        return names.place("methods", self.specs[0].method.name, self.places)

    @property
    def own(self) -> dict[names.Kind, str]:
        """The references of the runs' method, dataset, partition and network, as far as they are the user's own."""
        spec = self.specs[0]
        named: dict[names.Kind, str] = {
            "methods": spec.method.name,
            "datasets": spec.dataset.name,
            "partitions": spec.partition.name,
            "models": spec.model,
        }
        placed = {kind: names.place(kind, name, self.places) for kind, name in named.items()}
        return {kind: reference for kind, reference in placed.items() if names.is_users(reference)}


@dataclass(frozen=True)
class Environment:
    """Folders, device and settings of tasks."""

    results: Path
    data_root: Path
    device: str = "cpu"
    execution: client_map.Execution = "loop"
    memory_limit: int | None = None
    """Bytes that one process may hold on the device."""
    deterministic: bool = False
    """Only algorithms that give the same bits every time."""
    evaluate_every: int | None = None
    """Score after every so many rounds, too."""
    replace: bool = False
    """True: a finished result is replaced by any repeated one; else only by an equal one."""
    checkpoint_every: Interval | None = None
    """Interval of checkpoints, from which a stopped run goes on."""
    follow: str | None = None
    """Target to which every round adds a line, see `follow.destination`."""
    keep_models: bool = False
    """True: the models of the last scores are kept beside the results."""

    @classmethod
    def of(cls, results: Path, execution: Execution, device: str) -> Environment:
        """The environment that `execution` describes, on a device. A GPU trains stacks of clients."""
        return cls(
            results,
            data_root(execution.data_dir),
            device,
            "vectorized" if device.startswith("cuda") else "loop",
            memory_limit=execution.memory_limit,
            deterministic=execution.deterministic,
            evaluate_every=execution.evaluate_every,
            replace=execution.redo == "always",
            checkpoint_every=execution.checkpoint_every,
            follow=str(execution.follow) if execution.follow else None,
            keep_models=execution.keep_models,
        )


@dataclass(frozen=True)
class Done:
    """The outcome of one run."""

    spec: RunSpec
    status: Literal["done", "failed", "error"]
    """`failed` is stored (the method raised, or diverged); an `error` (data, disk, memory) is not."""
    message: str = ""
    detail: str = ""
    seconds: float = 0.0
    fatal: bool = False
    """True if results cannot be written any more, so that no other run can succeed."""
    headline: str = ""
    """Mean accuracy over the scored clients at the last moment scored: what a progress line shows."""
    elsewhere: bool = False
    """True if another process trained it meanwhile."""
    resumed: int = 0
    """Number of times it went on from a checkpoint."""

    def __str__(self) -> str:
        outcome = self.headline or self.message
        name = f"{self.spec.method.name} on {self.spec.dataset.name}, seed {self.spec.seed}"
        return f"{name}: {self.status}{f', {outcome}' if outcome else ''}"


OnRound = Callable[[int], None]
Lanes = Callable[[], int]


def run_task(task: Task, env: Environment, on_round: OnRound | None = None, lanes: Lanes = one_lane) -> list[Done]:
    """Run one task and store its results; never raises for what a run did wrong.

    `lanes`: how many cores a single run may use now, for several of its clients at a time.

    If a group cannot be run as one, for one seed's partition or for want of memory, its runs are tried one by one.
    Nothing is returned of runs that were stopped on request. `on_round` hears first the
    round at which training begins, 0 or a checkpoint's, then those that it finishes.
    """
    started = time.perf_counter()
    env = replace(env, evaluate_every=env.evaluate_every or task.every)
    trust.grant_places(task.places)  # in a worker, too: whoever made the task has the right to train it
    provenance.checkout()  # remembered now: the checkout may change while this runs
    try:
        federations, method, network = _build(task, env)
        source = _sources(task)  # now: the file may be edited or gone before this ends
    except Exception as error:
        return _not_trained(error, task, env, on_round, lanes)
    setup = Setup(
        execution=env.execution,
        device=torch.device(env.device),
        lanes=lanes,
        evaluate_every=env.evaluate_every,
        on_round=on_round,
    )
    reset_peak(setup.device)
    trained = _Trained()
    detail = ""
    try:
        trained.under = _checkpoints(task, env, federations[0].hash, source)
        if on_round:
            on_round(trained.under.rounds if trained.under else 0)
        outcomes = _train(task, env, setup, federations, method, network, trained)
    except checkpoint.Stopped:
        return []
    except (Exception, SystemExit) as error:
        if len(task.specs) == 1 and (isinstance(error, PflbenchError) or out_of_memory(error)):
            return _not_trained(error, task, env, on_round, lanes)
        outcomes, detail = (
            [RunOutcome(failure=PflbenchError(one_line(error)))],
            "".join(traceback.format_exception(error)),
        )
    if detail and len(task.specs) > 1:  # out here, where nothing holds on to what the group had in memory
        del trained, setup, federations
        return _one_by_one(task, env, on_round, lanes)
    record = provenance.record(setup.device, federations[0].hash) | _cost(task, env, started, trained) | source
    return _store_all(task, env, outcomes, federations, trained, record, detail)


@dataclass
class _Trained:
    """Progress of a group: its training once it began, its checkpoints, and its models to keep."""

    simulation: Simulation | None = None
    under: checkpoint.Checkpoints | None = None
    models: Models | None = None


def _train(
    task: Task,
    env: Environment,
    setup: Setup,
    federations: list[Federation],
    method: Method,
    network: Network,
    trained: _Trained,
) -> list[RunOutcome]:
    """Train and score. Raises what a method raises, `Stopped`, and `UsageError` for a limit that leaves no room."""
    if (limit := env.memory_limit) is not None and limit <= (used := in_use(setup.device)):
        less = f"{limit / 1e6:.0f} MB is less than the {used / 1e6:.0f} MB in use"
        raise UsageError(f"--memory-limit: {less} before training begins.")
    under = trained.under
    if env.follow:
        setup = replace(setup, on_round=_followed(task, env.follow, setup.on_round, trained))
    with limited(env.memory_limit, setup.device):
        if env.keep_models:
            trained.models = Models(env.results, task.specs, method.network(network).layout)
        heard = replace(
            setup,
            after_round=_written(under, trained.models is not None) if under else None,
            on_model=trained.models,
        )
        trained.simulation = Simulation(task.specs, federations, method, network, heard)
        if under:
            under.restore(trained.simulation)
        if trained.models and _is_past_models(trained.simulation):
            trained.models.give_up("training went on after its last round, from a checkpoint without them")
        try:
            return trained.simulation.run()
        except BaseException:
            if trained.models:
                trained.models.discard()
            raise


def _is_past_models(simulation: Simulation) -> bool:
    """True if the last round, which makes the models to keep, was over at the checkpoint that training began from."""
    spec = simulation.runs[0].spec
    return simulation.rounds == spec.rounds and before_aggregation(simulation.method, spec.scoring)


def _written(under: checkpoint.Checkpoints, keeps: bool) -> Callable[[Simulation], None]:
    """Write checkpoints; after the last round none where its training made models to keep, which it would not hold."""

    def written(simulation: Simulation) -> None:
        if not (keeps and _is_past_models(simulation)):
            under.keep(simulation)

    return written


def _checkpoints(
    task: Task, env: Environment, data_hash: str, source: Mapping[str, Any]
) -> checkpoint.Checkpoints | None:
    """The group's checkpoints, if it is to have some. Also found where an earlier command wrote them."""
    path = checkpoint.path_of(env.results, task.specs)
    if env.checkpoint_every is None:
        checkpoint.tell_unread(path)
        return None
    conditions = {
        **checkpoint.conditions(env.device),
        "data": data_hash,
        "execution": env.execution,
        "evaluate_every": env.evaluate_every,
        "deterministic": env.deterministic,
        "own code": hashlib.sha256(repr(sorted(source.items())).encode()).hexdigest()[:16] if source else None,
    }
    return checkpoint.Checkpoints.of(path, task.specs, env.checkpoint_every, conditions)


def _followed(task: Task, follow: str, on_round: OnRound | None, trained: _Trained) -> OnRound:
    """After every round, a line for each run."""
    tell = Follower(destination(follow), task.specs, task.asked)
    held = weakref.ref(trained)  # which holds what hears this

    def heard(rounds: int) -> None:
        now = held()
        tell(rounds, now.simulation.runs if now and now.simulation else ())
        if on_round:
            on_round(rounds)

    return heard


def _cost(task: Task, env: Environment, started: float, trained: _Trained) -> dict[str, Any]:
    """Costs of each run of a group, and the way it was computed, for its record.

    `client_seconds`: of the wall seconds, those spent training and scoring clients. `padding`: rows computed over rows
    asked for. `peak_memory` is in bytes of this process on the host, `peak_device_memory` on a GPU. `resumed`: how
    often a run that was stopped went on from its checkpoint; its seconds are added up, but for those after a checkpoint
    that were lost.
    """
    number, on_gpu = len(task.specs), env.device.startswith("cuda")
    simulation, under = trained.simulation, trained.under
    seconds = (time.perf_counter() - started + (under.seconds if under else 0.0)) / number
    rounds = simulation.rounds if simulation else 0
    return {
        "execution": env.execution,
        "seeds_together": ",".join(str(spec.seed) for spec in task.specs),
        "wall_seconds": round(seconds, 3),
        "client_seconds": round(simulation.clients.seconds / number if simulation else 0.0, 3),
        "rounds_per_second": round(rounds / seconds, 4),
        "padding": round(simulation.clients.padding if simulation else 1.0, 4),
        "deterministic": env.deterministic,
        "evaluate_every": env.evaluate_every,
        "peak_memory": peak(torch.device("cpu")),
        "peak_device_memory": peak(torch.device(env.device)) if on_gpu else None,
        **({"resumed": under.resumed} if under and under.resumed else {}),
    }


def _sources(task: Task) -> dict[str, Any]:
    """The user's own code as it was when the run began, with the modules beside it."""
    found: dict[str, Any] = {}
    for kind, reference in task.own.items():
        code = names.code(reference)
        found[f"{kind[:-1]}_source"] = code.source
        if code.imports:
            found[f"{kind[:-1]}_neighbors"] = code.imports
    return found


def _build(task: Task, env: Environment) -> tuple[list[Federation], Method, Network]:
    torch.set_num_threads(1)  # cores are for runs and for clients
    if env.device.startswith("cuda"):
        torch.cuda.set_device(env.device)  # where graphs are captured
    # fp32 means fp32: TF32 convolutions, PyTorch's default on recent GPUs, ruin Per-FedAvg's finite differences.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = task.specs[0].precision == "tf32"
    if env.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it
    if torch.are_deterministic_algorithms_enabled() != env.deterministic:  # to say so imports a compiler
        torch.use_deterministic_algorithms(env.deterministic)
    federations = [build.federation(spec, env.data_root, task.places) for spec in task.specs]
    tidy()
    return federations, build.method(task.specs[0], task.places), build.network(task.specs[0], task.places)


def _not_trained(
    error: Exception | SystemExit, task: Task, env: Environment, on_round: OnRound | None, lanes: Lanes
) -> list[Done]:
    """The runs of a group one by one, or the error of a single run."""
    if len(task.specs) > 1:
        return _one_by_one(task, env, on_round, lanes)
    message = str(error)
    if out_of_memory(error):
        under = " under the --memory-limit" if env.memory_limit else ""
        message = f"out of memory{under}: {message}" if message else f"out of memory{under}"
    elif not isinstance(error, PflbenchError | OSError):
        message = one_line(error)
    return [Done(task.specs[0], "error", message, traceback.format_exc())]


def _one_by_one(task: Task, env: Environment, on_round: OnRound | None, lanes: Lanes) -> list[Done]:
    return [done for spec in task.specs for done in run_task(replace(task, specs=(spec,)), env, on_round, lanes)]


def _store_all(
    task: Task,
    env: Environment,
    outcomes: list[RunOutcome],
    federations: list[Federation],
    trained: _Trained,
    record: dict[str, Any],
    detail: str,
) -> list[Done]:
    """Store the runs of a group; their checkpoints go, unless nothing can be written."""
    record |= {"unchecked": True} if task.unchecked else {}
    dones = []
    for spec, outcome, federation in zip(task.specs, outcomes, federations, strict=True):
        asked = {"asked": dict(task.asked[spec.id])} if task.asked.get(spec.id) else {}
        shared: dict[str, Any] = {"shared_rows": rows} if (rows := federation.shared) else {}
        whole = record | asked | shared | dict(outcome.costs)
        dones.append(_store(spec, outcome, env, whole, detail, trained.models))
    if trained.models:
        trained.models.discard()
    if not any(done.fatal for done in dones):
        checkpoint.remove(checkpoint.path_of(env.results, task.specs))
    return dones


def _store(
    spec: RunSpec,
    outcome: RunOutcome,
    env: Environment,
    record: dict[str, Any],
    detail: str,
    models: Models | None,
) -> Done:
    failure = None if outcome.failure is None else str(outcome.failure)
    if guards := sum(m.value for m in outcome.metrics if m.name == "guards" and m.round == spec.rounds):
        record = record | {"guards": int(guards)}
    result = RunResult(spec, outcome.scores, record, failure, outcome.metrics)
    return store_result(result, env, detail, None if failure else models)


def store_result(result: RunResult, env: Environment, detail: str = "", models: Models | None = None) -> Done:
    """Store a run that was trained, unless a finished result is stored that is not to be replaced.

    Models are of the scores that are stored with them: those of an earlier result go.
    """
    spec, failure, store = result.spec, result.failure, Store(env.results, fresh=True)
    outcome = Done(
        spec,
        "failed" if failure else "done",
        failure or "",
        detail,
        float(result.provenance["wall_seconds"]),
        headline=headline(result.scores),
        resumed=int(result.provenance.get("resumed") or 0),
    )
    try:
        stored = store.find(spec.id)  # asked now: another may have stored it meanwhile
        difference = _difference(store, stored, result)
        if stored is not None and difference is not None and not env.replace:
            if difference:
                stays = f"{difference} The stored result is kept; `--redo always` replaces it."
                return replace(outcome, status="error", message=stays, headline="scores differ, stored result kept,")
            if models is None and often_enough(stored.provenance, spec, env.evaluate_every):
                return replace(outcome, elsewhere=True, seconds=0.0)
        if difference:
            outcome = replace(outcome, message=f"{difference} The new result replaces the stored one.")
        _write(result, store, models)
        if models is not None:
            models.publish(spec, result.provenance)
        elif failure is None:
            kept.remove(store.root, [spec.id])
    except PflbenchError as error:
        return Done(spec, "error", str(error), traceback.format_exc(), fatal=True)
    return outcome


def _difference(store: Store, stored: Stored | None, result: RunResult) -> str | None:
    """Sentence on how scores differ from the stored ones, empty if they agree; None without two finished results."""
    if stored is None or stored.failure is not None or result.failure is not None:
        return None
    try:
        difference = apart(store.fetch(stored), result)
    except StoreError:  # damaged
        return None
    return f"The remade scores differ {difference}." if difference else ""


def _write(result: RunResult, store: Store, models: Models | None) -> None:
    """Write a run; where there is no room for it beside its models, without them. Raises `StoreError`."""
    try:
        store.write(result)
    except StoreError:
        if models is None:
            raise
        models.give_up("the results needed their room")
        store.write(result)


def headline(scores: Sequence[Score]) -> str:
    """Mean accuracy over the scored clients at the last moment scored, in words; empty without scores."""
    if not scores:
        return ""
    # Personal models are what a suite that scores them is about.
    last = next((s for s in reversed(scores) if s.stage == "personalized"), scores[-1])
    values = [s.accuracy for s in scores if (s.stage, s.round, s.step) == (last.stage, last.round, last.step)]
    return f"{100 * sum(values) / len(values):.2f} % ({last.stage})"
