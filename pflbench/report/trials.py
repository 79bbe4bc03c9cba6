"""The stored trials behind tuned values, and how far these can be trusted."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pflbench.errors import PflbenchError
from pflbench.report.reading import WINDOW, Shelf, average, by_client, by_round, scored
from pflbench.spec import RunSpec
from pflbench.stages import Shown
from pflbench.suite.cells import Cell, ReadAs
from pflbench.suite.tuning import judged_by, set_text


class TriedPoint(NamedTuple):
    """A point that was tried: the values that differ between the trials, and the accuracy on held-out training rows.

    `accuracy` is in percent, None if the run failed; `clients`: each scored client's. `chosen`: the cell's runs have
    these values.
    """

    values: Mapping[str, Any]
    accuracy: float | None
    chosen: bool
    run: str
    clients: tuple[float, ...] = ()


class StoredSearch(NamedTuple):
    """Trials of one setting and seed, those of `run`, the best first. `same`: the setting is the cell's own.

    `stage`: of the model that was scored. `read_as`: in which of the scored rounds.
    """

    same: bool
    run: RunSpec
    stage: str
    trials: list[TriedPoint]
    read_as: ReadAs = "last"


def stored_searches(cell: Cell, stages: Sequence[Shown], keys: Sequence[str], shelf: Shelf) -> list[StoredSearch]:
    """The trials in which these hyperparameters were varied: in the cell's setting, else on its data, else elsewhere.

    `stages`: those that the cell's row is shown at, of which one decides.
    """
    nearest, groups = _nearest(cell, stages, keys, shelf)
    found = (
        _tried(cell, specs, stages, shelf, nearest == 0, read_as, _differing(group))
        for group in groups
        for read_as, specs in _by_reading(cell, group, stages, shelf)
    )
    return [one for one in found if one.trials]


def _by_reading(
    cell: Cell, specs: Sequence[RunSpec], stages: Sequence[Shown], shelf: Shelf
) -> list[tuple[ReadAs, Sequence[RunSpec]]]:
    """Trials by the rounds that they are read in: as the suite chose, or the last round of trials scored less often.

    Failed trials are counted with the former.
    """
    if cell.tuned_by == "last":
        return [("last", specs)]
    results = {spec: shelf.read(spec) for spec in specs}
    reading = replace(cell.reading, stage=_stage(cell, specs[0], stages), steps=None)
    seldom = [spec for spec, one in results.items() if one is not None and len(by_round(one, reading)) < WINDOW]
    often = [spec for spec in specs if spec not in seldom]
    if all(results[spec] is None for spec in often):
        return [("last", specs)]
    found: list[tuple[ReadAs, Sequence[RunSpec]]] = [(cell.tuned_by, often), ("last", seldom)]
    return [(read_as, some) for read_as, some in found if some]


def _nearest(
    cell: Cell, stages: Sequence[Shown], keys: Sequence[str], shelf: Shelf
) -> tuple[int, Sequence[Sequence[RunSpec]]]:
    """The trials nearest to the cell, by setting and seed, and their distance: 0 (its own setting) to 2."""
    run, groups = cell.needed[0], dict[tuple[str, int], list[RunSpec]]()
    for spec in _trials_of(cell, stages, shelf):
        groups.setdefault((spec.model_copy(update={"validation": 0.0}).setting(), spec.seed), []).append(spec)
    by_distance: dict[int, list[list[RunSpec]]] = {}
    for (setting, _), specs in groups.items():
        if any(len({str(_used(spec, key)) for spec in specs}) > 1 for key in keys):
            alike = all(getattr(specs[0], kind) == getattr(run, kind) for kind in ("dataset", "partition", "model"))
            distance = 0 if setting == run.setting() else 1 if alike else 2
            by_distance.setdefault(distance, []).append(specs)
    nearest = min(by_distance, default=0)
    return nearest, by_distance.get(nearest, ())


def _trials_of(cell: Cell, stages: Sequence[Shown], shelf: Shelf) -> Iterator[RunSpec]:
    """The stored trials of the cell's method that are scored at one of these stages."""
    name, needed = cell.needed[0].method.name, {asked.id for asked in cell.needed}
    for spec in shelf.specs:
        scored_so = not set(stages).isdisjoint(spec.scoring.stages) or "local" in stages
        if spec.method.name == name and spec.validation and spec.id not in needed and scored_so:
            yield spec


class Edge(NamedTuple):
    """A value that is the smallest or the largest (`which`) of the numbers that were tried for its hyperparameter."""

    key: str
    value: float
    which: str

    def __str__(self) -> str:
        return f"{self.key} = {set_text(self.value)} is the {self.which}"


def edges(values: Mapping[str, Any], tried: Mapping[str, Iterable[Any]]) -> list[Edge]:
    """The values at the border of what was tried; `stored_searches`: by key. One number alone has no border."""
    found = []
    for key, value in values.items():
        numbers = {one for one in tried[key] if isinstance(one, int | float) and not isinstance(one, bool)}
        if len(numbers) > 1 and value in numbers:
            found += [Edge(key, value, which) for which, edge in _extremes(numbers).items() if value == edge]
    return found


def _extremes(numbers: set[float]) -> dict[str, float]:
    return {"smallest": min(numbers), "largest": max(numbers)}


def within_noise(lead: float, best: Sequence[float], next: Sequence[float], over: str) -> str | None:
    """A sentence where a lead over the next best is less than twice its standard error, or has none; else None.

    The error is that of the mean of the paired differences, whose numbers are of seeds or clients, as `over` says.
    They are taken to be independent.
    """
    if len(best) < 2 or len(best) != len(next):
        return f"the lead over the next best is {lead:.2f} points, of one score: its noise is not known."
    differences = np.subtract(best, next)
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    if lead > 0 and lead >= 2 * error:
        return None
    told = f"less than twice its standard error of {error:.2f} over {len(differences)} {over} (paired differences)"
    return f"the lead over the next best is {lead:.2f} points, {told if lead else 'none'}: within noise."


class Doubts(NamedTuple):
    """Reasons to distrust a cell's tuned values: those at a border; a sentence where the lead is within noise."""

    edges: list[Edge]
    noise: str | None


def doubts_of(searches: Sequence[StoredSearch], keys: Collection[str]) -> Doubts:
    """The doubts that the trials behind a cell leave about its tuned values, those of `keys`.

    `searches`: what `stored_searches` found. The lead is that of the longest trials.
    """
    chosen = [trial.values for one in searches for trial in one.trials if trial.chosen]
    if not chosen:
        return Doubts([], None)
    every = [trial.values for one in searches for trial in one.trials]
    values = {key: value for key, value in chosen[0].items() if key in keys}
    border = edges(values, {key: [one[key] for one in every if key in one] for key in values})
    first, *others = max(searches, key=lambda one: one.run.rounds).trials
    if not first.chosen or first.accuracy is None or not others or others[0].accuracy is None:
        return Doubts(border, None)
    lead = first.accuracy - others[0].accuracy
    return Doubts(border, within_noise(lead, first.clients, others[0].clients, "scored clients"))


def _stage(cell: Cell, run: RunSpec, stages: Sequence[Shown]) -> Shown:
    """The stage of a trial whose scores choose."""
    return judged_by([stage for stage in stages if stage in run.scoring.stages] or [cell.stage])


def _differing(specs: Sequence[RunSpec]) -> list[str]:
    """The hyperparameters in which these trials differ; one that some leave to the suite, such as `batch`, counts."""
    keys = [*dict.fromkeys(key for spec in specs for key in spec.method.hyper), "finetune.lr"]
    return [key for key in keys if len({str(_used(spec, key)) for spec in specs}) > 1]


def _tried(
    cell: Cell,
    specs: Sequence[RunSpec],
    stages: Sequence[Shown],
    shelf: Shelf,
    same: bool,
    read_as: ReadAs,
    keys: Sequence[str],
) -> StoredSearch:
    first = specs[0]
    stage = _stage(cell, first, stages)
    steps = cell.reading.steps if stage == cell.stage else None
    reading = replace(cell.reading, stage=stage, steps=steps, read_as=read_as)
    trials = []
    for spec in specs:
        accuracy, clients = None, ()
        if (result := shelf.read(spec)) is not None:
            try:
                rounds = scored(result, reading)
            except PflbenchError:  # not scored at this stage: it says nothing of this row
                continue
            accuracy = float(average(rounds, reading, result).mean())
            clients = tuple((100 * by_client(rounds).values.mean(axis=0)).tolist())
        values = {key: _used(spec, key) for key in keys}
        chosen = all(_used(cell.needed[0], key) == value for key, value in values.items())
        trials.append(TriedPoint(values, accuracy, chosen, spec.id, clients))
    trials.sort(key=lambda trial: -1.0 if trial.accuracy is None else trial.accuracy, reverse=True)
    return StoredSearch(same, first, stage, trials, read_as)


def _used(spec: RunSpec, key: str) -> Any:
    """The value of a hyperparameter; where a method has none of its own, the suite's (the batch size).

    Of `finetune.lr` the rate of fine-tuning, None where there is none.
    """
    if key == "finetune.lr":
        return spec.scoring.finetune and spec.scoring.finetune.lr
    return spec.method.hyper.get(key, getattr(spec, key, None))
