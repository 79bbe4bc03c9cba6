"""Measuring, in a second or two for each network, how fast one core trains, so that a plan knows every run's time.

What a run computes is counted where that is possible: then the time of one gradient of its network gives the run's.
Where it cannot be counted (a dataset, partition or network of the user's own), two of its clients are trained for a
round and scored.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch

from pflbench import garbage, names, trust
from pflbench.engine.objective import LoopObjective
from pflbench.engine.objective import Task as Evaluated
from pflbench.engine.run import scored_clients
from pflbench.engine.simulate import DTYPES, Setup, Simulation
from pflbench.errors import PflbenchError
from pflbench.methods.base import Batch
from pflbench.names import Places
from pflbench.running import build
from pflbench.running.allocator import tune_allocator
from pflbench.running.estimate import gradient_rows, timed_as
from pflbench.running.events import Note, OnEvent
from pflbench.running.machine import processor
from pflbench.running.process import cause_of_death, serving
from pflbench.running.records import Gradient, Trial, file, keep, trial_key
from pflbench.spec import RunSpec
from pflbench.units import count, duration

SECONDS = 1.0
"""How long one network's gradients are timed."""
TRIAL = 5.0
"""About how long a trial takes, to say it beforehand: it imports torch, loads the data, and trains two clients."""
LIMIT = 60.0
"""Seconds after which a trial is given up."""
CLIENTS = 2
"""Clients that a trial trains and scores."""


class Unknown(NamedTuple):
    """A run whose time is unknown, where the code is of what in it is the user's own, and why its data are missing."""

    spec: RunSpec
    places: Places
    missing: tuple[str, ...] = ()


def measure(unknown: Sequence[Unknown], root: Path, on_event: OnEvent) -> dict[str, str]:
    """Measure what the times of these runs depend on, and keep it for every later plan.

    Args:
        unknown: The runs; those that differ by seed alone once.
        root: The data root, where the data of tried runs are.
        on_event: Hears what is about to be measured, if anything is.

    Returns:
        By run id, why a time is still unknown.
    """
    networks: dict[str, RunSpec] = {}
    tried: dict[str, Unknown] = {}
    reasons: dict[str, str] = {}
    for one in unknown:
        spec = one.spec
        if spec.precision == "tf32":
            reasons[spec.id] = "tf32 needs a GPU"
        elif gradient_rows(spec, names.place("methods", spec.method.name, one.places)) is not None:
            networks.setdefault(timed_as(spec), spec)
        elif one.missing:
            reasons[spec.id] = "its data are missing"
        else:
            tried.setdefault(trial_key(spec), one)
    if not networks and not tried:
        return reasons
    what = [", ".join(dict.fromkeys(spec.model for spec in networks.values()))] if networks else []
    what += [f"a round of {count(len(tried), 'run')}"] if tried else []
    about = duration(max(1.0, SECONDS * len(networks) + TRIAL * len(tried)))
    on_event(Note(f"Measuring on one core how long training takes ({'; '.join(what)}): about {about}."))
    found: dict[str, Gradient | Trial] = _gradients(networks)
    for key, one in tried.items():
        told = _tried(one, root)
        if isinstance(told, str):
            reasons[one.spec.id] = told
        else:
            found[key] = told
    try:
        keep(processor(), found)
    except OSError as error:
        why = f"what was measured cannot be kept in {str(file())!r} ({error.strerror or error})"
        reasons |= {spec.id: why for spec in (*networks.values(), *(one.spec for one in tried.values()))}
    return reasons


def _gradients(networks: Mapping[str, RunSpec]) -> dict[str, Gradient | Trial]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as runs are trained
    try:
        garbage.as_usual()
        tune_allocator()
        return {
            key: Gradient(batch=spec.batch, seconds_per_client_step=_gradient(spec)) for key, spec in networks.items()
        }
    finally:
        torch.set_num_threads(threads)


def _gradient(spec: RunSpec) -> float:
    """Seconds of one SGD step of a run's network on a minibatch of made-up images, on one core."""
    data, network = build.dataset(spec.dataset), build.network(spec)
    rows = torch.arange(spec.batch)
    pool = torch.randint(256, (spec.batch, *data.shape), dtype=torch.uint8)
    f = LoopObjective(Evaluated(network, pool, bf16=spec.precision == "bf16"))
    batch = Batch(rows, rows % data.classes)
    w = network.init(0).to(DTYPES.get(spec.precision, torch.float32))
    took: list[float] = []
    end = time.perf_counter() + SECONDS
    while not took or time.perf_counter() < end:
        start = time.process_time()  # which does not count what other programs on this core take
        w = w - 1e-6 * f.grad(w, batch)
        took.append(time.process_time() - start)
    return median(took)


def _tried(one: Unknown, root: Path) -> Trial | str:
    """What a trial took, or why that is unknown. It runs in a process that the user's code may end or keep busy."""
    with serving(_serve, one, root) as (pipe, process):
        if not pipe.poll(LIMIT):
            return f"a round of {CLIENTS} clients takes more than {duration(LIMIT)}"
        try:
            told: Trial | str = pipe.recv()
        except (EOFError, OSError):
            process.join()
            return cause_of_death(process.exitcode or 0).rstrip(".")
        return told


def _serve(pipe: Connection, one: Unknown, root: Path) -> None:
    torch.set_num_threads(1)
    tune_allocator()
    warnings.simplefilter("ignore")  # what it warns of is heard when it trains
    trust.grant_places(one.places)
    try:
        pipe.send(try_out(one, root))
    except PflbenchError as error:
        pipe.send(str(error).rstrip("."))
    except Exception as error:  # a user's code
        pipe.send(f"{type(error).__name__}: {error}".rstrip("."))


def try_out(one: Unknown, root: Path) -> Trial:
    """Train a few clients of a run for two rounds, score them, and scale to the run's cohort and scored clients.

    Raises:
        PflbenchError: The data are missing, or something cannot be built.
    """
    spec = one.spec
    clients = min(CLIENTS, spec.cohort)
    scoring = spec.scoring.model_copy(update={"last": 1, "first": CLIENTS})
    short = spec.model_copy(update={"rounds": 2, "cohort": clients, "scoring": scoring})
    begun = time.process_time()
    federation = build.federation(short, root, one.places)
    method, network = build.method(short, one.places), build.network(short, one.places)
    simulation = Simulation([short], [federation], method, network, Setup())
    steps = [time.process_time()]
    for _ in range(2):
        simulation.step()
        steps.append(time.process_time())
    simulation.score()
    ended = time.process_time()
    asked = 1.0 if method.joins == "everyone" else spec.cohort / clients
    scored = [len(scored_clients(s, np.asarray(federation.training))) for s in (spec.scoring, scoring)]
    return Trial(
        loading=steps[0] - begun,
        round=asked * min(steps[1] - steps[0], steps[2] - steps[1]),
        scoring=(ended - steps[2]) * scored[0] / max(1, scored[1]),
    )
