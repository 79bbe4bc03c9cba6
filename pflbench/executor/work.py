"""One task: build, simulate, and store a group of runs that differ by seed only."""

from __future__ import annotations

import sysconfig
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

import pflbench
from pflbench import names
from pflbench.data.federation import Federation
from pflbench.engine.client_map import Execution
from pflbench.engine.simulate import Outcome, Setup, simulate
from pflbench.errors import PflbenchError
from pflbench.executor import build, provenance
from pflbench.methods.base import Method
from pflbench.models.network import Network
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store.store import Store

_OURS = Path(pflbench.__file__).parent
_LIBRARIES = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}


@dataclass(frozen=True)
class Task:
    """Runs to train together, and where their method's code is."""

    specs: tuple[RunSpec, ...]
    reference: str


@dataclass(frozen=True)
class Place:
    """Where and how to run: folders, device, execution, threads."""

    results: Path
    data_root: Path
    device: str = "cpu"
    execution: Execution = "loop"
    threads: int = 1


@dataclass(frozen=True)
class Done:
    """What became of one run."""

    spec: RunSpec
    status: Literal["done", "failed", "error"]
    """`failed` is stored (the method raised, or diverged); an `error` (data, disk, memory) is not."""
    message: str = ""
    detail: str = ""
    seconds: float = 0.0
    fatal: bool = False
    """Whether nothing after it can succeed: results cannot be written any more."""
    headline: str = ""
    """Mean accuracy over the scored clients at the last moment scored: what a progress line shows."""


OnRound = Callable[[int], None]


def work(task: Task, place: Place, on_round: OnRound | None = None) -> list[Done]:
    """Run one task and store its results; never raises for what a run did wrong.

    If a group cannot be run as one, for one seed's partition or for want of memory, its runs are tried one by one.
    """
    started = time.perf_counter()
    provenance.code()  # remembered now: the checkout may change while this runs
    try:
        federations, method, network = _build(task, place)
        source = _source(task.reference)  # now: the file may be edited or gone before this ends
    except Exception as error:
        return _singly(task, place, on_round) or _errors(task, error)
    setup = Setup(execution=place.execution, device=torch.device(place.device), on_round=on_round)
    try:
        outcomes = simulate(task.specs, federations, method, network, setup)
    except PflbenchError as error:
        return _singly(task, place, on_round) or _errors(task, error)
    except (Exception, SystemExit) as error:
        if len(task.specs) > 1 or _out_of_memory(error):
            return _singly(task, place, on_round) or _errors(task, error)
        outcomes = [Outcome(failure=_blame(error, task.reference)) for _ in task.specs]
    seconds = (time.perf_counter() - started) / len(task.specs)
    cost = provenance.Cost(seconds, task.specs[0].rounds, tuple(spec.seed for spec in task.specs))
    record = provenance.record(place.device, place.execution, federations[0].hash, cost) | source
    return [_store(spec, outcome, place, record, seconds) for spec, outcome in zip(task.specs, outcomes, strict=True)]


def _source(reference: str) -> dict[str, str]:
    """A user's method as it was: its file is edited, its result stays."""
    where, _ = names.split_reference(reference)
    return {"method_source": Path(where).read_text(encoding="utf-8")} if where.endswith(".py") else {}


def _singly(task: Task, place: Place, on_round: OnRound | None) -> list[Done]:
    """The runs of a group one by one; nothing if it is a single run."""
    if len(task.specs) == 1:
        return []
    return [done for spec in task.specs for done in work(Task((spec,), task.reference), place, on_round)]


def _build(task: Task, place: Place) -> tuple[list[Federation], Method[Any, Any, Any], Network]:
    torch.set_num_threads(place.threads)
    # fp32 means fp32: TF32 convolutions, PyTorch's default on recent GPUs, ruin Per-FedAvg's finite differences.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    federations = [build.federation(spec, place.data_root) for spec in task.specs]
    return federations, build.method(task.specs[0], task.reference), build.network(task.specs[0])


def _errors(task: Task, error: Exception | SystemExit) -> list[Done]:
    message = str(error)
    if _out_of_memory(error):
        message = f"out of memory: {message}" if message else "out of memory"
    elif not isinstance(error, PflbenchError | OSError):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = _line(error, f"{frame.filename}, line {frame.lineno}")
    return [Done(spec, "error", message, traceback.format_exc()) for spec in task.specs]


def _store(spec: RunSpec, outcome: Outcome, place: Place, record: dict[str, Any], seconds: float) -> Done:
    failure = None if outcome.failure is None else str(outcome.failure)
    try:
        Store(place.results).write(RunResult(spec, outcome.scores, record, failure))
    except PflbenchError as error:
        return Done(spec, "error", str(error), traceback.format_exc(), fatal=True)
    return Done(
        spec,
        "failed" if failure else "done",
        failure or "",
        getattr(outcome.failure, "detail", ""),
        seconds,
        headline=_headline(outcome),
    )


def _headline(outcome: Outcome) -> str:
    if not outcome.scores:
        return ""
    last = outcome.scores[-1]
    values = [s.accuracy for s in outcome.scores if (s.stage, s.round, s.step) == (last.stage, last.round, last.step)]
    moment = f"{last.stage}, step {last.step}" if last.step else last.stage
    return f"{100 * sum(values) / len(values):.2f} % ({moment})"


class MethodRaised(PflbenchError):
    """A method's own code raised; `detail` holds the traceback."""

    detail = ""


def _blame(error: BaseException, reference: str) -> MethodRaised:
    """The method's error in one line, with the innermost line of the method's file, or else of code around it."""
    where, _ = names.split_reference(reference)
    file = Path(where) if where.endswith(".py") else names.source_file(reference)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename) == file] or [f for f in frames if _written_for_methods(f.filename)]
    if own:
        where = f"{own[-1].filename}, line {own[-1].lineno}"
    else:
        last = [f for f in frames if _OURS in Path(f.filename).parents][-1]
        where = f"from what {reference} returned, in {Path(last.filename).name}, line {last.lineno}"
    raised = MethodRaised(_line(error, where))
    raised.detail = "".join(traceback.format_exception(error))
    return raised


def _written_for_methods(file: str) -> bool:
    path = Path(file)
    if _OURS in path.parents:
        return path.parent == _OURS / "methods" and path.name != "base.py"
    return not file.startswith("<") and not any(folder in path.parents for folder in _LIBRARIES)


def _line(error: BaseException, where: str) -> str:
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {first} ({where})"


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "can't allocate memory" in str(error)
