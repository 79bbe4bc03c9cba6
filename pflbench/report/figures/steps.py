"""Accuracy against the number of fine-tuning steps, and what a round costs each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pflbench.report.figures.panels import Point, Series
from pflbench.report.figures.runs import by_step
from pflbench.report.statistics import summarize
from pflbench.result import RunResult
from pflbench.store import Stored
from pflbench.suite.cells import Cell
from pflbench.suite.schema import Spread

GRADIENTS, SECONDS, UP, DOWN = "gradients", "client seconds", "floats uploaded", "floats received"
COSTS = {GRADIENTS: "gradients", SECONDS: "s", UP: "floats up", DOWN: "floats down"}
"""The costs of a round, by name, with their units."""
STORED = {GRADIENTS: "client_gradients", UP: "floats_up", DOWN: "floats_down"}
"""What of them a run's provenance has, by name."""
COUNTED = (
    "Beside each row what a round costs: gradients that a client which takes part in it is asked for, on average (of "
    "minibatches of the suite's size; a forward pass counts 1/3, a Hessian-vector product 3), seconds of all clients' "
    "training and scoring over the number of rounds, as the runs measured them. Floats up: what the server reads of a "
    "client's upload. Floats down: all of the server's state, even a part that only new clients start from (a head of "
    "which the others have their own)."
)


def curve(title: str, runs: Sequence[RunResult], cell: Cell, spread: Spread) -> Series:
    """Mean and spread over seeds after 0, 1, … steps, with the costs of a round; no points without runs."""
    if not runs:
        return Series(title, "line", ())
    values = np.array([by_step(run, cell) for run in runs])
    points = []
    for step in range(values.shape[1]):
        summary = summarize(values[:, step : step + 1], spread)
        points.append(Point(float(step), summary.mean, summary.spread, summary.n))
    return Series(title, "line", tuple(points), numbers=costs(runs))


def costs(runs: Sequence[RunResult | Stored]) -> dict[str, float]:
    """What a round costs, as far as it is known, by the names of `COSTS`: the means over the runs that tell."""
    told: dict[str, list[float]] = {name: [] for name in COSTS}
    for run in runs:
        if (seconds := run.provenance.get("client_seconds")) is not None:
            told[SECONDS].append(seconds / run.spec.rounds)
        for name, key in STORED.items():
            if (number := run.provenance.get(key)) is not None:
                told[name].append(number)
    return {name: float(np.mean(numbers)) for name, numbers in told.items() if numbers}


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
