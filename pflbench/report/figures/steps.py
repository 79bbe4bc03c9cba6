"""Accuracy against the number of fine-tuning steps, and what a round costs each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pflbench import names
from pflbench.report.figures.drawing import Point, Series
from pflbench.report.figures.runs import by_step
from pflbench.report.statistics import summarize
from pflbench.report.table import CellInput, Spread
from pflbench.result import RunResult
from pflbench.spec import RunSpec

GRADIENTS, SECONDS, FLOATS = "gradients", "client seconds", "floats uploaded"
COSTS = {GRADIENTS: "gradients", SECONDS: "s", FLOATS: "floats"}
"""The costs of a round, by name, with their units."""
COUNTED = (
    "Beside each row what a round costs: gradients that a client of the mean size takes (of minibatches of the suite's "
    "size; a forward pass counts 1/3, a Hessian-vector product 3), seconds of all clients' training and scoring over "
    "the number of rounds, as the runs measured them, and floats in a client's upload, as the method is written here."
)


def curve(title: str, runs: Sequence[RunResult], cell: CellInput, spread: Spread) -> Series:
    """Mean and spread over seeds after 0, 1, … steps, with the costs of a round; no points without runs."""
    if not runs:
        return Series(title, "line", ())
    values = np.array([by_step(run, cell) for run in runs])
    points = []
    for step in range(values.shape[1]):
        summary = summarize(values[:, step : step + 1], spread)
        points.append(Point(float(step), summary.mean, summary.spread, summary.n))
    return Series(title, "line", tuple(points), numbers=costs(runs))


class Ran(Protocol):
    """A run that is done: what was asked for, and how it went."""

    @property
    def spec(self) -> RunSpec:
        """What was asked for."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """How it went."""


def costs(runs: Sequence[Ran]) -> dict[str, float]:
    """What a round costs, as far as it is known, by the names of `COSTS`.

    Seconds are the mean over runs of what their provenance has. Gradients and floats are counted from the method's
    code, unless it is somebody's own.
    """
    found = _counted(runs[0].spec)
    known = [seconds / run.spec.rounds for run in runs if (seconds := run.provenance.get("client_seconds")) is not None]
    if known:
        found[SECONDS] = float(np.mean(known))
    return {name: found[name] for name in COSTS if name in found}


def beside(found: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, str]:
    """The costs of each row in words: from least to most where its columns differ. `found`: rows with their costs."""
    by_label: dict[str, dict[str, list[float]]] = {}
    for label, numbers in found:
        for name, value in numbers.items():
            by_label.setdefault(label, {}).setdefault(name, []).append(value)
    return {label: _in_words(numbers) for label, numbers in by_label.items()}


def unknown_costs(found: Iterable[tuple[str, Mapping[str, float]]]) -> str:
    """A sentence on the costs that are not known of some row; empty if all are."""
    lacking: dict[str, dict[str, None]] = {name: {} for name in COSTS}
    for label, numbers in found:
        for name in COSTS.keys() - numbers.keys():
            lacking[name][label] = None
    told = "; ".join(f"{name} of {', '.join(labels)}" for name, labels in lacking.items() if labels)
    return f"Not known: {told}." if told else ""


def _in_words(found: Mapping[str, Sequence[float]]) -> str:
    words = []
    for name, unit in COSTS.items():
        if name in found:
            ends = dict.fromkeys(_number(value) for value in (min(found[name]), max(found[name])))
            words.append(f"{'–'.join(ends)} {unit}")
    return ", ".join(words)


def _number(value: float) -> str:
    """Three digits, or all those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _counted(spec: RunSpec) -> dict[str, float]:
    if spec.method.name not in names.BUILT_IN["methods"]:  # own code runs in workers only
        return {}
    from pflbench.executor.estimate import participation  # imports torch

    found = participation(spec, names.locate("methods", spec.method.name))
    if found is None:
        return {}
    uploads = {} if found.uploads is None else {FLOATS: float(found.uploads)}
    return {GRADIENTS: found.gradients, **uploads}
