"""Executors: train the runs without a result, of a selection or given by specs, here, by Slurm or by Ray."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pflbench.errors import PflbenchError
from pflbench.report.reading import average, scored
from pflbench.running import cluster, slurm, training
from pflbench.running.datasets import count_datasets, shown_by
from pflbench.running.events import Event, Notice, OnEvent, unheard
from pflbench.running.execution import Execution, Executor
from pflbench.running.task import Done
from pflbench.running.training import Elsewhere, Outcome, Work
from pflbench.selection import Selection
from pflbench.store.store import Store
from pflbench.suite.cells import Reading
from pflbench.suite.expand import Part, parts, with_columns
from pflbench.suite.load import loaded

ELSEWHERE: Mapping[Executor, Elsewhere] = {"slurm": slurm.train, "ray": cluster.train}


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


def _as_read(parts: Sequence[Part], store: Store, on_event: OnEvent) -> OnEvent:
    """Wrap `on_event`: a finished run is reported with the accuracies that its table reads, one for each stage."""
    readings: dict[str, dict[str, Reading]] = {}
    for table, _ in parts:
        for cell in table.cells:
            for spec in cell.needed:
                readings.setdefault(spec.id, {}).setdefault(cell.stage, cell.reading)

    def tell(event: Event) -> None:
        if isinstance(event, Done) and event.status == "done" and event.headline and event.spec.id in readings:
            with contextlib.suppress(PflbenchError):  # of a file that can no longer be read: training goes on
                result = store.read(event.spec.id)
                means = {
                    stage: average(scored(result, reading), reading, result).mean()
                    for stage, reading in readings[event.spec.id].items()
                }
                event = replace(event, headline=", ".join(f"{mean:.2f} % ({stage})" for stage, mean in means.items()))
        on_event(event)

    return tell


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
    outcome = train(_work_of(asked), results, execution, _as_read(asked, Store(results, fresh=True), on_event), dry=dry)
    return outcome._replace(problems=[*missing, *outcome.problems])


def train(
    work: Work, results: Path, execution: Execution, on_event: OnEvent = unheard, *, dry: bool = False
) -> Outcome:
    """Train those of these runs that have no result, where `execution` says. All else is as in `training.train`."""
    elsewhere = ELSEWHERE.get(execution.executor)
    return training.train(work, results, execution, on_event, dry=dry, elsewhere=elsewhere)
