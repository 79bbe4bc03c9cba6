"""Train the runs without a result of a selection, and count what a suite of statistics counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pflbench.running import cluster, slurm, training
from pflbench.running.datasets import count_datasets, shown_by
from pflbench.running.events import Notice, OnEvent, unheard
from pflbench.running.execution import Execution
from pflbench.running.training import Outcome, Work
from pflbench.selection import Selection
from pflbench.suite.expand import Part, parts, with_columns
from pflbench.suite.load import loaded


def _work_of(parts: Sequence[Part]) -> Work:
    """The runs behind tables."""
    places = {id: where for table, _ in parts for id, where in table.locations.items()}
    asked: dict[str, list[Mapping[str, object]]] = {}
    for table, _ in parts:
        first = {spec.id: cell for cell in reversed(table.cells) for spec in cell.needed}
        for id, cell in first.items():
            asked.setdefault(id, []).append(table.provenance(cell))
    scored: dict[str, int] = {}
    for table, _ in parts:
        for cell in table.cells:
            if cell.every:
                scored |= {spec.id: math.gcd(cell.every, scored.get(spec.id, 0)) for spec in cell.needed}
    return Work([spec for table, _ in parts for spec in table.runs], places, with_columns(parts), asked, every=scored)


def run(
    part: Selection, results: Path, execution: Execution, on_event: OnEvent = unheard, *, dry: bool = False
) -> Outcome:
    """Train what has no result of this part of some suites, and count what is not counted yet of those of statistics.

    The arguments, errors and `dry` are those of `train` and of `count_datasets`.
    """
    suites = loaded(part.suites, execution.data_dir)
    asked = parts([suite for suite in suites if suite.document().row], part)
    missing = count_datasets(suites, part, results, execution, on_event, dry=dry)
    for sentence in filter(None, (shown_by(suite, part, results) for suite in suites)):
        on_event(Notice(sentence))
    if not asked:
        return Outcome([], missing, {}, {})
    outcome = train(_work_of(asked), results, execution, on_event, dry=dry)
    return outcome._replace(problems=[*missing, *outcome.problems])


def train(
    work: Work, results: Path, execution: Execution, on_event: OnEvent = unheard, *, dry: bool = False
) -> Outcome:
    """Train those of these runs that have no result, where `execution` says. All else is as in `training.train`."""
    elsewhere = {"local": None, "slurm": slurm.train, "ray": cluster.train}[execution.executor]
    return training.train(work, results, execution, on_event, dry=dry, elsewhere=elsewhere)
