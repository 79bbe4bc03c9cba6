"""What a cell rests on besides its runs: the federation, and the trials of tuned values."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pflbench.errors import PflbenchError
from pflbench.names import Places, place
from pflbench.report.reading import Shelf, average, scored
from pflbench.spec import RunSpec
from pflbench.stages import Shown
from pflbench.suite.cells import Cell
from pflbench.suite.tuning import judged_by


class Numbers(NamedTuple):
    """The least, the median and the greatest of some numbers."""

    least: float
    median: float
    most: float

    def of(self, noun: str) -> str:
        """`5 images`, or `5 to 90 images, median 60`."""
        if self.least == self.most:
            return f"{self.least:g} {noun}"
        return f"{self.least:g} to {self.most:g} {noun}, median {self.median:g}"


@dataclass(frozen=True)
class Facts:
    """A federation with a seed, built from its data, and the network in it.

    `support`, `query`: images of the training clients; `held_out`: support images of the others (None: there are none).
    `kinds`: how many classes a client's support images are of. `test`: images that the global model is scored on.
    `shared`: images that several clients hold. `parameters`: of the network as the method trains it; None if it cannot
    be built here. `warnings`: that files of the dataset are not the official ones.
    """

    seed: int
    hash: str
    support: Numbers
    query: Numbers
    held_out: Numbers | None
    kinds: Numbers
    classes: int
    test: int
    shared: int
    parameters: int | None
    warnings: tuple[str, ...]


def facts(run: RunSpec, root: Path, places: Places) -> Facts | str:
    """The facts of a run's federation; without its data, what is missing. Imports torch.

    `places`: where the code is of what it has of the user's own.
    """
    from pflbench.executor import build

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            federation = build.federation(run, root, places)
        except PflbenchError as error:
            return " ".join(str(error).split())
    parameters = None
    with contextlib.suppress(PflbenchError):  # the method or the network is nowhere to be found
        method = build.construct(place("methods", run.method.name, places), run.method.hyper)
        parameters = len(method.network(build.network(run, places)).init(run.seed))
    training = np.flatnonzero(federation.training)
    others = np.flatnonzero(~federation.training)
    return Facts(
        seed=run.seed,
        hash=federation.hash,
        support=_numbers([len(federation.support[k]) for k in training]),
        query=_numbers([len(rows) for rows in federation.query]),
        held_out=_numbers([len(federation.support[k]) for k in others]) if len(others) else None,
        kinds=_numbers([len(np.unique(federation.labels[rows])) for rows in federation.support]),
        classes=federation.classes,
        test=len(federation.test),
        shared=federation.shared,
        parameters=parameters,
        warnings=tuple(dict.fromkeys(str(one.message) for one in caught)),
    )


def _numbers(found: Sequence[int]) -> Numbers:
    return Numbers(min(found), float(np.median(found)), max(found))


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
        scored_so = not set(stages).isdisjoint(spec.scoring.stages) or "local" in stages
        if spec.method.name == run.method.name and spec.validation and spec.id not in needed and scored_so:
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
    keys = [*first.method.hyper, "finetune.lr"]
    differing = [key for key in keys if len({str(_used(spec, key)) for spec in specs}) > 1]
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
    """The value of a hyperparameter; where a method has none of its own, the suite's (the batch size).

    Of `finetune.lr` the rate of fine-tuning, None where there is none.
    """
    if key == "finetune.lr":
        return spec.scoring.finetune and spec.scoring.finetune.lr
    return spec.method.hyper.get(key, getattr(spec, key, None))
