"""The stored trials of `pflbench tune` behind a cell's tuned values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pflbench.report.reading import Shelf, average, scored
from pflbench.spec import RunSpec
from pflbench.stages import Shown
from pflbench.suite.cells import Cell
from pflbench.suite.tuning import judged_by


class Trial(NamedTuple):
    """A point that was tried: the values that differ between the trials, and the accuracy on held-out training rows.

    `accuracy` is in percent, None if the run failed. `chosen`: the cell's runs have these values.
    """

    values: Mapping[str, Any]
    accuracy: float | None
    chosen: bool
    run: str


@dataclass(frozen=True)
class Tried:
    """Trials of one setting, the best first. `same`: it is the cell's own, else that of another column, `where`.

    `share`: of every client's support, what was held out and scored on. `stage`: of the model that was scored.
    """

    same: bool
    where: str
    seed: int
    rounds: int
    share: float
    stage: str
    trials: tuple[Trial, ...]


def tried(cell: Cell, stages: Sequence[Shown], keys: Sequence[str], shelf: Shelf) -> list[Tried]:
    """The trials in which these hyperparameters were varied: in the cell's setting, else on its data, else elsewhere.

    `stages`: those that the cell's row is shown at, of which one decides.
    """
    run = cell.needed[0]
    groups: dict[tuple[str, int], list[RunSpec]] = {}
    for stored in shelf.stored.values():
        spec = stored.spec
        own = spec.method.name == run.method.name
        if own and spec.validation and not any(spec.id == asked.id for asked in cell.needed):
            groups.setdefault((_whole(spec).setting(), spec.seed), []).append(spec)
    about = [
        (_distance(specs[0], run), specs)
        for specs in groups.values()
        if any(len({str(_used(spec, key)) for spec in specs}) > 1 for key in keys)
    ]
    nearest = min((distance for distance, _ in about), default=0)
    return [_tried(cell, specs, run, stages, shelf, nearest == 0) for distance, specs in about if distance == nearest]


def _whole(spec: RunSpec) -> RunSpec:
    return spec.model_copy(update={"validation": 0.0})


def _distance(trial: RunSpec, run: RunSpec) -> int:
    """0 in the run's setting, 1 on its data (dataset, partition and network), 2 elsewhere."""
    if _whole(trial).setting() == run.setting():
        return 0
    one, other = ((spec.dataset, spec.partition, spec.model) for spec in (trial, run))
    return 1 if one == other else 2


def _tried(
    cell: Cell, specs: Sequence[RunSpec], run: RunSpec, stages: Sequence[Shown], shelf: Shelf, same: bool
) -> Tried:
    first = specs[0]
    differing = [key for key in first.method.hyper if len({str(spec.method.hyper.get(key)) for spec in specs}) > 1]
    stage = judged_by([stage for stage in stages if stage in first.scoring.stages] or [cell.stage])
    reading = replace(cell.reading, stage=stage, steps=cell.reading.steps if stage == cell.stage else None)
    trials = []
    for spec in specs:
        result = shelf.read(spec)
        accuracy = None if result is None else float(average(scored(result, reading), reading, result).mean())
        values = {key: _used(spec, key) for key in differing}
        chosen = all(_used(run, key) == value for key, value in values.items())
        trials.append(Trial(values, accuracy, chosen, spec.id))
    trials.sort(key=lambda trial: -1.0 if trial.accuracy is None else trial.accuracy, reverse=True)
    where = f"{first.dataset.name}, {first.clients} clients, {first.rounds} round{'s' if first.rounds > 1 else ''}"
    return Tried(same, where, first.seed, first.rounds, first.validation, stage, tuple(trials))


def _used(spec: RunSpec, key: str) -> Any:
    """The value of a hyperparameter; where a method has none of its own, the suite's (the batch size)."""
    return spec.method.hyper.get(key, getattr(spec, key, None))
