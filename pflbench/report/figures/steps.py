"""Accuracy against the number of fine-tuning steps, and what a round costs each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pflbench.report.reading import average, scored
from pflbench.report.text import grouped
from pflbench.result import RunResult
from pflbench.store import Stored
from pflbench.suite.cells import Reading

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
Costs = Sequence[tuple[str, Mapping[str, float]]]
"""Rows by their titles, once for each column, with what a round costs there by the names of `COSTS`."""


def by_step(run: RunResult, reading: Reading) -> dict[int, float]:
    """A run's mean accuracy in percent after 0, 1, … fine-tuning steps."""
    assert run.spec.scoring.finetune is not None
    steps = tuple(range(run.spec.scoring.finetune.steps + 1))
    every = replace(reading, steps=steps)
    return dict(zip(steps, average(scored(run, every), every, run).tolist(), strict=True))


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


def beside(found: Costs) -> dict[str, str]:
    """The costs of each row in words: from least to most where its columns differ."""
    told = grouped(((label, name), value) for label, numbers in found for name, value in numbers.items())
    return {
        label: ", ".join(f"{_span(told[label, name])} {unit}" for name, unit in COSTS.items() if (label, name) in told)
        for label, _ in told
    }


def unknown_costs(found: Costs) -> str:
    """A sentence on the costs that are not known of some row; empty if all are."""
    lacking = grouped((name, label) for name in COSTS for label, numbers in found if name not in numbers)
    told = "; ".join(f"{name} of {', '.join(labels)}" for name, labels in lacking.items())
    return f"Not known: {told}." if told else ""


def _span(values: Sequence[float]) -> str:
    """The least and the most, with three digits or all those before the point; once if they read the same."""
    ends = (f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in (min(values), max(values)))
    return "–".join(dict.fromkeys(ends))
