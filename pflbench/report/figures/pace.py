"""How far a run comes in a round, in steps, gradients, seconds or bytes, as far as the stored run tells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from pflbench.classes import declared
from pflbench.names import Places
from pflbench.report.figures.parts import comma_list
from pflbench.report.reading import EVERYBODY
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store.columns import metrics_of
from pflbench.suite.cells import Cell

MEGA = 1e6


class Axis(NamedTuple):
    """What curves may stand against: the axis's name, how much of it a run makes in a round (None: it does not tell).

    `fill`: what to do where a run does not tell.
    """

    title: str
    pace: Callable[[RunResult], float | None]
    fill: str = ""


def gradients(run: RunResult) -> float | None:
    """Minibatch gradients that a client which takes part is asked for in a round, on average."""
    return run.provenance.get("client_gradients")


def seconds(run: RunResult) -> float | None:
    """Measured seconds of training and scoring clients, over the rounds."""
    told = run.provenance.get("client_seconds")
    return None if told is None else float(told) / run.spec.rounds


def megabytes(run: RunResult) -> float | None:
    """What a client which takes part in a round sends, and what it is sent."""
    told = [run.provenance.get(key) for key in ("bytes_up", "bytes_down")]
    return None if told == [None, None] else sum(one for one in told if one is not None) / MEGA


def local_steps(run: RunResult) -> float | None:
    """Minibatches that a client trains on in a round, by the method's hyperparameters.

    Where these are epochs, the mean over the clients whose numbers of support rows the run tells.
    """
    hyper, found = run.spec.method.hyper, list[float]()
    for part in ("", "head_", "base_"):
        steps, epochs = hyper.get(f"{part}steps"), hyper.get(f"{part}epochs")
        if steps is not None:
            found.append(steps)
        elif epochs is not None:
            passed = _minibatches(run)
            if passed is None:
                return None
            found.append(epochs * passed)
    return sum(found) if found else None


def _minibatches(run: RunResult) -> float | None:
    """Of one pass over a client's support rows, on average; None where the run does not tell clients' numbers."""
    sizes = [size for client, size in metrics_of(run.metrics).named("support", 0).items() if client != EVERYBODY]
    return float(np.mean([_in_a_pass(run.spec, size) for size in sizes])) if sizes else None


def _in_a_pass(spec: RunSpec, rows: float) -> int:
    batch = spec.method.hyper.get("batch") or spec.batch
    return max(1, math.ceil(rows / batch) if spec.keeps_tail else int(rows // batch))


_COUNTED = "`pflbench upgrade` counts it where the dataset is at hand"
AXES: Mapping[str, Axis] = {
    "round": Axis("round", lambda run: 1.0),
    "steps": Axis(
        "local steps of a client",
        local_steps,
        "their local updates are counted in epochs, and they do not tell how many images clients have: --against "
        "gradients has what these cost",
    ),
    "gradients": Axis("minibatch gradients of a client", gradients, _COUNTED),
    "seconds": Axis(
        "seconds of training and scoring, all clients", seconds, "`pflbench run --redo always` measures it"
    ),
    "bytes": Axis("megabytes up and down, a client", megabytes, _COUNTED),
}
"""By what `--against` calls them."""


def counting(against: str, cells: Iterable[Cell], places: Mapping[str, Places]) -> str:
    """What the axis counts, in sentences; `cells`: those that are drawn, `places`: as `Expansion.locations`."""
    if against == "seconds":
        return "Seconds are as measured of all clients together, evenly divided among the rounds."
    if against == "bytes":
        return "Bytes are those of a client that takes part in every round and whose upload arrives, on average."
    if against == "steps":
        return "Local steps are those of a client that takes part in every round, on average, by the hyperparameters."
    return _GRADIENTS + _expected(cells, places) if against == "gradients" else ""


_GRADIENTS = (
    "A round counts the minibatch gradients of one local update: the mean over all local updates that a run makes (a "
    "forward pass counts 1/3, a Hessian-vector product 3)."
)


def _expected(cells: Iterable[Cell], places: Mapping[str, Places]) -> str:
    """Whose local updates those are where uploads get lost: all clients', or those of which the upload arrives."""
    lossy = [(cell, _trains_all(cell.runs[0], places)) for cell in cells if cell.runs[0].arrival < 1]
    everyone, arriving = (
        comma_list(dict.fromkeys(cell.row.title for cell, all_ in lossy if all_ is which)) for which in (True, False)
    )
    said = (
        f" {everyone}: minibatch gradients of all clients, expected: every client that is asked trains, and what only "
        "its upload needs is counted where that arrives."
        if everyone
        else ""
    )
    return said + (f" {arriving}: only clients whose upload arrives train, and only they count." if arriving else "")


def _trains_all(run: RunSpec, places: Mapping[str, Places]) -> bool:
    """Whether clients train though their upload does not arrive, by what the method declares."""
    name = places.get(run.id, {}).get("methods", run.method.name)
    return bool(declared("methods", name, "commits", "arrived") == "trained")
