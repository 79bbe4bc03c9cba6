"""One task: build, simulate, and store a group of runs that differ by seed only."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from pflbench.engine.client_map import Execution
from pflbench.engine.simulate import Outcome, Setup, simulate
from pflbench.errors import PflbenchError
from pflbench.executor import build, provenance
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store.store import Store


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
    accuracy: float | None = None
    """Mean over the scored clients at the last moment scored, in percent: what a progress line shows."""


OnRound = Callable[[int], None]


def work(task: Task, place: Place, on_round: OnRound | None = None) -> list[Done]:
    """Run one task and store its results; never raises for what a run did wrong."""
    started = time.perf_counter()
    provenance.code()  # remembered now: the checkout may change while this runs
    try:
        outcomes, data_hash = _simulate(task, place, on_round)
    except (PflbenchError, OSError, MemoryError) as error:
        return [Done(s, "error", str(error), traceback.format_exc()) for s in task.specs]
    except Exception as error:
        if _out_of_memory(error):
            return [Done(s, "error", f"out of memory: {error}", traceback.format_exc()) for s in task.specs]
        outcomes, data_hash = [Outcome(failure=_blame(error)) for _ in task.specs], ""
    seconds = (time.perf_counter() - started) / len(task.specs)
    return [
        _store(spec, outcome, place, data_hash, seconds) for spec, outcome in zip(task.specs, outcomes, strict=True)
    ]


def _simulate(task: Task, place: Place, on_round: OnRound | None) -> tuple[list[Outcome], str]:
    torch.set_num_threads(place.threads)
    federations = [build.federation(spec, place.data_root) for spec in task.specs]
    network = build.network(task.specs[0])
    method = build.method(task.specs[0], task.reference)
    setup = Setup(execution=place.execution, device=torch.device(place.device), on_round=on_round)
    return simulate(task.specs, federations, method, network, setup), federations[0].hash


def _store(spec: RunSpec, outcome: Outcome, place: Place, data_hash: str, seconds: float) -> Done:
    record = provenance.record(place.device, place.execution, data_hash, seconds, spec.rounds)
    failure = None if outcome.failure is None else str(outcome.failure)
    try:
        Store(place.results).write(RunResult(spec, outcome.scores, record, failure))
    except PflbenchError as error:
        return Done(spec, "error", str(error), traceback.format_exc())
    detail = getattr(outcome.failure, "detail", "")
    return Done(spec, "failed" if failure else "done", failure or "", detail, seconds, _headline(outcome))


def _headline(outcome: Outcome) -> float | None:
    if not outcome.scores:
        return None
    last = outcome.scores[-1]
    values = [s.accuracy for s in outcome.scores if (s.stage, s.round, s.step) == (last.stage, last.round, last.step)]
    return 100 * sum(values) / len(values)


class MethodRaised(PflbenchError):
    """A method's own code raised; `detail` holds the traceback."""

    detail = ""


def _blame(error: Exception) -> MethodRaised:
    """The method's error in one line, with the innermost line of code outside pflbench's engine and torch."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if "/torch/" not in f.filename and "/engine/" not in f.filename]
    where = mine[-1] if mine else frames[-1]
    raised = MethodRaised(f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})")
    raised.detail = "".join(traceback.format_exception(error))
    return raised


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
