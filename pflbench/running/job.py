"""One job: build, simulate, and store a group of runs that differ by seed only."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch

from pflbench import names, trust
from pflbench.data.federation import Federation
from pflbench.data.root import data_root
from pflbench.engine.client_map import one_lane, out_of_memory
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import PflbenchError, StoreError, one_line
from pflbench.result import RunResult
from pflbench.running import build, checkpoint, provenance
from pflbench.running.again import difference_text, means, often_enough
from pflbench.running.allocator import limited, tidy
from pflbench.running.execution import Execution, choose_device
from pflbench.running.follow import Follower
from pflbench.running.models import Models
from pflbench.spec import Precision, RunSpec
from pflbench.store import models as stored_models
from pflbench.store.store import Store


@dataclass(frozen=True)
class Job:
    """Runs of one cell that differ by seed only, trained together."""

    specs: tuple[RunSpec, ...]
    code: names.Places = field(default_factory=dict, compare=False)
    """Paths of the runs' user-supplied code and data."""
    name: str = field(default="", compare=False)
    """Column and row."""
    every: int | None = field(default=None, compare=False)
    """Interval of rounds after which the suite scores the runs, too."""
    requests: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict, compare=False)
    """By run id, for each suite that requests it: suite, profile, row, column and what replaces the suite's values."""
    stored: Mapping[str, str] = field(default_factory=dict, compare=False)
    """By run id, the time at which the result was made that was stored when the command began."""

    def __str__(self) -> str:
        first, seeds = self.specs[0], ", ".join(str(spec.seed) for spec in self.specs)
        return f"{first.method.name} on {first.dataset.name}, seed {seeds}"

    @property
    def user_code(self) -> dict[names.Kind, str]:
        """References of the user-supplied method, dataset, partition and network."""
        references = {kind: names.place(kind, name, self.code) for kind, name, _ in build.parts_of(self.specs[0])}
        return {kind: reference for kind, reference in references.items() if names.is_users(reference)}

    def of(self, specs: Sequence[RunSpec]) -> Job:
        """Return the job with these of its runs alone."""
        return replace(self, specs=tuple(specs))


@dataclass(frozen=True)
class Done:
    """The outcome of one run."""

    spec: RunSpec
    status: Literal["done", "failed", "error"]
    """`failed`: the method raised or diverged, which is stored, or the scores differ from stored ones, which stay.
    `error` (data, disk, memory): nothing is stored."""
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
        return f"{Job((self.spec,))}: {self.status}{f', {outcome}' if outcome else ''}"


OnRound = Callable[[int], None]
Lanes = Callable[[], int]


def run_job(job: Job, execution: Execution, on_round: OnRound = lambda _: None, lanes: Lanes = one_lane) -> list[Done]:
    """Train and score the runs of a job and store their results. Raises nothing for what a run does wrong.

    If several seeds cannot run as one stack, for one seed's partition or for want of memory, they run one by one.

    Args:
        job: The runs.
        execution: Where and how to train; one device.
        on_round: Hears the round at which training begins (0, or a checkpoint's), then each finished round.
        lanes: Returns the number of cores that a run may use now, for several of its clients at a time.

    Returns:
        One outcome per run; none for runs that were stopped on request.
    """
    device = choose_device(execution.device)
    execution = replace(execution, device=device, evaluate_every=execution.evaluate_every or job.every)
    trust.grant_places(job.code)  # in a worker, too: whoever made the job has the right to train it
    provenance.checkout()  # remembered now: the checkout may change while this runs
    try:
        return _train(job, execution, on_round, lanes)
    except checkpoint.Stopped:
        return []
    except (Exception, SystemExit) as error:
        if len(job.specs) == 1:
            message = str(error) if isinstance(error, PflbenchError) else one_line(error)
            if out_of_memory(error):
                message = f"out of memory: {error}".removesuffix(": ")
            return [Done(job.specs[0], "error", message, traceback.format_exc())]
    # Out here nothing holds on to what the stack had in memory.
    return [done for spec in job.specs for done in run_job(job.of([spec]), execution, on_round, lanes)]


def _train(job: Job, execution: Execution, on_round: OnRound, lanes: Lanes) -> list[Done]:
    """Build, train, score and store.

    Raises what building raises, what several runs together raise, `PflbenchError`, and want of memory.
    """
    started, device, detail = time.perf_counter(), torch.device(execution.device), ""
    simulation: Simulation | None = None
    _prepare(execution, job.specs[0].precision)
    root = data_root(execution.data_dir)
    federations = [build.federation(spec, root, job.code) for spec in job.specs]
    tidy()
    method, network = build.method(job.specs[0], job.code), build.network(job.specs[0], job.code)
    sources = _sources(job)  # now: the file may be edited or gone before this ends
    path = checkpoint.path_of(execution.results, job.specs)
    conditions = checkpoint.conditions(job.specs, execution, federations[0].hash)
    earlier = checkpoint.read(path, conditions)
    on_round(earlier.rounds)
    follower = Follower(str(execution.follow), job.requests) if execution.follow else None
    write_due = checkpoint.writer(path, execution, conditions, earlier)

    def after_round(simulation: Simulation) -> None:
        on_round(simulation.rounds)
        if follower:
            follower(simulation)
        write_due(simulation)

    models = Models(method.network(network).layout) if execution.keep_models else None
    setup = Setup(
        execution=execution.client_map,
        device=device,
        lanes=lanes,
        evaluate_every=execution.evaluate_every,
        after_round=after_round,
        on_model=models,
    )
    with limited(execution.memory_limit, device):
        try:
            simulation = Simulation(job.specs, federations, method, network, setup)
            earlier.restore(simulation)
            outcomes = simulation.run()
        except (Exception, SystemExit) as error:
            if len(job.specs) > 1 or isinstance(error, PflbenchError) or out_of_memory(error):
                raise
            outcomes, detail = [RunOutcome(failure=PflbenchError(one_line(error)))], traceback.format_exc()
    seconds = time.perf_counter() - started + earlier.seconds
    record = _record(job, execution, federations[0], simulation, seconds, earlier.resumed) | sources
    dones = []
    for index, (spec, outcome) in enumerate(zip(job.specs, outcomes, strict=True)):
        whole = record | _record_of_run(job, spec, outcome, federations[index])
        failure = None if outcome.failure is None else str(outcome.failure)
        result = RunResult(spec, outcome.scores, whole, failure, outcome.metrics)
        write_models = partial(models.write, execution.results, spec.id, index, whole) if models else None
        dones.append(_store(result, execution, detail, write_models))
    if not any(done.fatal for done in dones):
        checkpoint.remove(path)
    return dones


def _prepare(execution: Execution, precision: Precision) -> None:
    """Have PyTorch compute as requested."""
    torch.set_num_threads(1)  # cores are for runs and for clients
    if execution.device.startswith("cuda"):
        torch.cuda.set_device(execution.device)  # where graphs are captured
        torch.cuda.reset_peak_memory_stats(execution.device)
    # fp32 means fp32: TF32 convolutions, PyTorch's default on recent GPUs, ruin Per-FedAvg's finite differences.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    if execution.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it
    if torch.are_deterministic_algorithms_enabled() != execution.deterministic:  # to say so imports a compiler
        torch.use_deterministic_algorithms(execution.deterministic)


def _sources(job: Job) -> dict[str, Any]:
    """User-supplied code of a job with the modules that it imports from its folder, for the record."""
    sources: dict[str, Any] = {}
    for kind, reference in job.user_code.items():
        code = names.code(reference)
        sources[f"{kind[:-1]}_source"] = code.source
        if code.imports:
            sources[f"{kind[:-1]}_neighbors"] = code.imports
    return sources


def _record(
    job: Job, execution: Execution, federation: Federation, simulation: Simulation | None, seconds: float, resumed: int
) -> dict[str, Any]:
    """Provenance and costs of each run of the job, and the way it was computed.

    `client_seconds`: of the wall seconds, those spent training and scoring clients. `padding`: rows computed over
    rows requested. `peak_device_memory`: in bytes of a GPU. `resumed`: number of times that a stopped run went on from
    its checkpoint; `seconds` of all runs are added up, but for those after a checkpoint that were lost.
    """
    number, device = len(job.specs), torch.device(execution.device)
    clients = simulation.clients if simulation else None
    return {
        **provenance.record(device, federation.hash),
        "execution": execution.client_map,
        "seeds_together": ",".join(str(spec.seed) for spec in job.specs),
        "wall_seconds": round(seconds / number, 3),
        "client_seconds": round(clients.seconds / number if clients else 0.0, 3),
        "padding": round(clients.padding if clients else 1.0, 4),
        "deterministic": execution.deterministic,
        "evaluate_every": execution.evaluate_every,
        "peak_device_memory": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        **({"resumed": resumed} if resumed else {}),
        **({"unchecked": True} if execution.unchecked and "methods" in job.user_code else {}),
    }


def _record_of_run(job: Job, spec: RunSpec, outcome: RunOutcome, federation: Federation) -> dict[str, Any]:
    """Entries of one run: its request, costs, rows that clients share, and guards that its method counted."""
    guards = sum(m.value for m in outcome.metrics if m.name == "guards" and m.round == spec.rounds)
    return {
        **({"asked": dict(requests[0])} if (requests := job.requests.get(spec.id)) else {}),
        **({"shared_rows": rows} if (rows := federation.shared) else {}),
        **outcome.costs,
        **({"guards": int(guards)} if guards else {}),
    }


def _store(result: RunResult, execution: Execution, detail: str, write_models: Callable[[], None] | None) -> Done:
    """Store a run, unless a finished result is stored that is not to be replaced.

    Models belong to the scores that are stored with them: those of an earlier result go.
    """
    spec, store, done = result.spec, Store(execution.results, fresh=True), done_of(result, detail)
    try:
        stored = store.find(spec.id)  # now: another process may have stored it meanwhile
        if stored and not (stored.failure or result.failure or execution.redo == "always"):
            difference = None
            with suppress(StoreError):  # it is damaged
                difference = difference_text(store.read(stored.spec.id), result)
            if difference:
                kept = "The stored result is kept; `--redo always` replaces it."
                message = f"The remade scores differ {difference}. {kept}"
                return replace(done, status="failed", message=message, headline="")
            if write_models is None and often_enough(stored.provenance, spec, execution.evaluate_every):
                return replace(done, elsewhere=True, seconds=0.0)
        store.write(result)
        if result.failure is None:
            (write_models or partial(stored_models.remove, store.root, [spec.id]))()
    except PflbenchError as error:
        return Done(spec, "error", str(error), traceback.format_exc(), fatal=True)
    return done


def done_of(result: RunResult, detail: str = "") -> Done:
    """The outcome of a run with this result. Its headline is of personal models where the suite scores some."""
    accuracies = [(stage, mean) for (stage, _, _), mean in means(result.scores).items()]
    shown = [one for one in accuracies if one[0] == "personalized"] or accuracies
    headline = f"{shown[-1][1]:.2f} % ({shown[-1][0]})" if shown else ""
    return Done(
        result.spec,
        "failed" if result.failure else "done",
        result.failure or "",
        detail,
        float(result.provenance.get("wall_seconds") or 0.0),
        headline=headline,
        resumed=int(result.provenance.get("resumed") or 0),
    )
