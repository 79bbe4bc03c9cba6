"""The stored trials of `pflbench tune` behind a cell's tuned values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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


class Tried(NamedTuple):
    """Trials of one setting and seed, those of `run`, the best first. `same`: the setting is the cell's own.

    `stage`: of the model that was scored.
    """

    same: bool
    run: RunSpec
    stage: str
    trials: list[Trial]


def tried(cell: Cell, stages: Sequence[Shown], keys: Sequence[str], shelf: Shelf) -> list[Tried]:
    """The trials in which these hyperparameters were varied: in the cell's setting, else on its data, else elsewhere.

    `stages`: those that the cell's row is shown at, of which one decides.
    """
    run, needed = cell.needed[0], {asked.id for asked in cell.needed}
    groups: dict[tuple[str, int], list[RunSpec]] = {}
    for spec in shelf.specs:
        if spec.method.name == run.method.name and spec.validation and spec.id not in needed:
            setting = spec.model_copy(update={"validation": 0.0}).setting()
            groups.setdefault((setting, spec.seed), []).append(spec)
    by_distance: dict[int, list[list[RunSpec]]] = {}
    for (setting, _), specs in groups.items():
        if any(len({str(_used(spec, key)) for spec in specs}) > 1 for key in keys):
            alike = all(getattr(specs[0], kind) == getattr(run, kind) for kind in ("dataset", "partition", "model"))
            distance = 0 if setting == run.setting() else 1 if alike else 2
            by_distance.setdefault(distance, []).append(specs)
    nearest = min(by_distance, default=0)
    return [_tried(cell, specs, stages, shelf, nearest == 0) for specs in by_distance.get(nearest, ())]


def _tried(cell: Cell, specs: Sequence[RunSpec], stages: Sequence[Shown], shelf: Shelf, same: bool) -> Tried:
    first = specs[0]
    differing = [key for key in first.method.hyper if len({str(spec.method.hyper.get(key)) for spec in specs}) > 1]
    stage = judged_by([stage for stage in stages if stage in first.scoring.stages] or [cell.stage])
    reading = replace(cell.reading, stage=stage, steps=cell.reading.steps if stage == cell.stage else None)
    trials = []
    for spec in specs:
        result = shelf.read(spec)
        accuracy = None if result is None else float(average(scored(result, reading), reading, result).mean())
        values = {key: _used(spec, key) for key in differing}
        chosen = all(_used(cell.needed[0], key) == value for key, value in values.items())
        trials.append(Trial(values, accuracy, chosen, spec.id))
    trials.sort(key=lambda trial: -1.0 if trial.accuracy is None else trial.accuracy, reverse=True)
    return Tried(same, first, stage, trials)


def _used(spec: RunSpec, key: str) -> Any:
    """The value of a hyperparameter; where a method has none of its own, the suite's (the batch size)."""
    return spec.method.hyper.get(key, getattr(spec, key, None))
