"""Read stored runs: each client's accuracy, and the mean over clients that a cell shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pflbench.data.root import data_root
from pflbench.errors import PflbenchError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import MissingRun, Store, Stored
from pflbench.store.columns import Moment, Scores, metrics_of, scores_of
from pflbench.store.requests import requests_of
from pflbench.suite.cells import Reading
from pflbench.suite.user_supplied import Requested, UserSupplied

Floats = npt.NDArray[np.float64]
Made = TypeVar("Made")

WINDOW = 10
"""Number of last scored rounds that are averaged where more than the last one is read."""

EVERYBODY = -1
"""The client of a score on the federation's test rows."""


_NOTHING = Moment((), (), np.zeros((0, 0)), np.zeros((0, 0)))


class Scored(NamedTuple):
    """Accuracies after a round as shares, `values[step, client]`; `counts[client]`: test examples of each client."""

    clients: tuple[int, ...]
    values: Floats
    counts: Floats
    round: int = 0
    steps: tuple[int, ...] = ()


Rounds = tuple[Scored, ...]
"""After each of the rounds that a cell averages over. Clients may differ from round to round."""


def _once(make: Callable[[RunResult, Reading], Made]) -> Callable[[RunResult, Reading], Made]:
    """The function, which reads a stored run in one way only once."""

    @wraps(make)
    def made(result: RunResult, reading: Reading) -> Made:
        if not isinstance(result.scores, Scores):
            return make(result, reading)
        kept, key = result.scores.read, (make.__name__, reading)
        if key not in kept:
            kept[key] = make(result, reading)
        found: Made = kept[key]
        return found

    return made


@_once
def scored(result: RunResult, reading: Reading) -> Rounds:
    """Each client's accuracy after each of the rounds that are read, the last one last.

    Raises `PflbenchError` if the run was not scored in one that it is to be scored in, or lacks a step for a client.
    """
    if reading.read_as != "last" and (walk := by_round(result, reading)):
        rounds = [max(walk, key=lambda n: walk[n])] if reading.read_as == "best" else list(walk)[-WINDOW:]
        return tuple(after(result, reading, n) for n in rounds)
    last = result.spec.rounds
    return tuple(after(result, reading, n) for n in range(last - result.spec.scoring.last + 1, last + 1))


def after(result: RunResult, reading: Reading, round: int) -> Scored:
    """Each client's accuracy after so many rounds, for each step read. Raises `PflbenchError` if one is missing."""
    found = scores_of(result.scores).at(reading.stage).get(round, _NOTHING)
    steps = reading.steps or found.steps[-1:] or (0,)
    if (missing := _missing(found, steps)) is not None:
        raise PflbenchError(
            f"Run {result.spec.id} has no scores at stage {reading.stage!r}, step {missing}, after round {round}, "
            "that a table reads."
        )
    read = [found.steps.index(step) for step in steps]
    return Scored(found.clients, found.accuracies[read], found.counts[read[0]], round, steps)


def _missing(found: Moment, steps: Sequence[int]) -> int | None:
    """The first of these steps that the first client lacks which lacks any; None: each has all."""
    if found.clients and found.scored is None and set(steps) <= set(found.steps):
        return None
    for client in range(len(found.clients)):
        for step in steps:
            if step not in found.steps or (
                found.scored is not None and not found.scored[found.steps.index(step), client]
            ):
                return step
    return None if found.clients else steps[0]


def averaged(result: RunResult, reading: Reading) -> frozenset[tuple[int, int, int]]:
    """Scores at the reading's stage that a cell averages: (round, step, client). Raises as `scored` does."""
    found = set()
    for one in scored(result, reading):
        few = smallest(one.clients, reading, result)
        clients = one.clients if few is None else [one.clients[place] for place in few]
        found |= {(one.round, step, client) for step in one.steps for client in clients}
    return frozenset(found)


@_once
def by_round(result: RunResult, reading: Reading) -> dict[int, float]:
    """A run's mean accuracy in percent after every round it was scored in."""
    by_column = replace(result, scores=scores_of(result.scores))
    means = _of_each(found, reading, result).mean(axis=1).tolist() if (found := _after_each(by_column, reading)) else []
    return {one.round: mean for one, mean in zip(found, means, strict=True)}


def _after_each(result: RunResult, reading: Reading) -> list[Scored]:
    """Scores of `after` for every round; rounds of the same clients and steps are looked up once."""
    found: list[Scored] = []
    before = _NOTHING
    for round, moment in scores_of(result.scores).at(reading.stage).items():
        if found and before.scored is moment.scored is None and before[:2] == moment[:2]:
            read = [moment.steps.index(step) for step in found[-1].steps]
            found.append(found[-1]._replace(values=moment.accuracies[read], counts=moment.counts[read[0]], round=round))
        else:
            found.append(after(result, reading, round))
        before = moment
    return found


def by_step(run: RunResult, reading: Reading) -> dict[int, float]:
    """A run's mean accuracy in percent after 0, 1, … fine-tuning steps."""
    assert run.spec.scoring.finetune is not None
    steps = tuple(range(run.spec.scoring.finetune.steps + 1))
    every = replace(reading, steps=steps)
    return dict(zip(steps, average(scored(run, every), every, run).tolist(), strict=True))


def average(rounds: Sequence[Scored], reading: Reading, sizes: RunResult) -> Floats:
    """The mean over the clients that count in percent, for each step: of every round, then over the rounds.

    `reading.mean` says how clients are averaged; `sizes` is a run that knows their numbers of support images.
    """
    return np.asarray(np.mean(_of_each(rounds, reading, sizes), axis=0))


def by_client(rounds: Sequence[Scored]) -> Scored:
    """Each client's mean over those of the rounds that it was scored in."""
    if len(rounds) == 1:
        return Scored(*rounds[0][:3])
    every = np.concatenate([np.array(one.clients) for one in rounds])
    order = np.argsort(every, kind="stable")  # each client's rounds side by side, in their order
    clients, first, often = np.unique(every[order], return_index=True, return_counts=True)
    scores = np.concatenate([one.values.T for one in rounds])[order]  # [score of a client, step]
    values = np.empty((scores.shape[1], len(clients)))
    for n in np.unique(often).tolist():
        alike = np.flatnonzero(often == n)
        several = scores[first[alike, None] + np.arange(n)]  # [client, round, step]
        values[:, alike] = several.mean(axis=1).T
    counts = np.concatenate([one.counts for one in rounds])[order][first]
    return Scored(tuple(clients.tolist()), values, counts)


def concerned(run: RunSpec) -> int:
    """Number of clients that a run scores, if each of them has something to score."""
    numbers = {"held-out": run.clients - run.training_clients, "training": run.training_clients, "all": run.clients}
    number = numbers[run.scoring.clients]
    return min(number, run.scoring.first or number)


def support(run: RunResult, clients: Sequence[int], reader: str) -> list[float]:
    """Number of support images of these clients. Raises `PflbenchError` if the run does not tell the `reader`."""
    known = metrics_of(run.metrics).named("support", 0)
    if lacking := [client for client in clients if client not in known]:
        whose = "there are (its scores are one for all)" if lacking == [EVERYBODY] else f"client {lacking[0]} has"
        raise PflbenchError(
            f"Run {run.spec.id} does not say how many support images {whose}, which {reader} needs. Personal models' "
            "runs do; compute an old one again with --redo always."
        )
    return [known[client] for client in clients]


def _of_each(rounds: Sequence[Scored], reading: Reading, sizes: RunResult) -> Floats:
    """The mean over the clients that count in percent, [round, step]."""
    if reading.smallest is None and reading.mean == "clients" and len({len(one.clients) for one in rounds}) == 1:
        return np.asarray(100 * np.stack([one.values for one in rounds]).mean(axis=2))
    return np.stack([_of_round(one, reading, sizes) for one in rounds])


def _of_round(one: Scored, reading: Reading, sizes: RunResult) -> Floats:
    values, counts = one.values, one.counts
    if (few := smallest(one.clients, reading, sizes)) is not None:
        values, counts = np.ascontiguousarray(values[:, few]), counts[few]
    if reading.mean == "examples":
        # No `@`: its last bits, which choose the best of equal rounds, are the processor's.
        return np.asarray(100 * (values * counts).sum(axis=1) / counts.sum())
    return np.asarray(100 * values.mean(axis=1))


def smallest(clients: tuple[int, ...], reading: Reading, sizes: RunResult) -> list[int] | None:
    """Positions of the clients with the fewest support images (ties: the lower number); None where all count."""
    if reading.smallest is None or clients == (EVERYBODY,):
        return None
    held = support(sizes, clients, f"a table of the {reading.smallest} smallest clients")
    return smallest_first(held, clients)[: reading.smallest]


def smallest_first(held: Sequence[float], clients: Sequence[int]) -> list[int]:
    """Positions of the clients by how many support images they have, the fewest first (ties: the lower number)."""
    order: list[int] = np.lexsort((clients, held)).tolist()
    return order


class Shelf:
    """The runs in a store. `stored` shrinks where reading a run shows that its file is damaged.

    `seeds`: what `cells.read_seeds` made of them, by run ids and reading.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seeds: dict[tuple[tuple[str, ...], Reading], Any] = {}
        self._results: dict[str, RunResult] = {}
        self.stored: dict[str, Stored] = {stored.spec.id: stored for stored in store.list()}

    @property
    def root(self) -> Path:
        """The folder that holds them."""
        return self._store.root

    @property
    def fresh(self) -> bool:
        """True if runs that came with pflbench are left out."""
        return self._store.fresh

    @property
    def specs(self) -> list[RunSpec]:
        """The specs of all stored runs."""
        return [stored.spec for stored in self.stored.values()]

    def read(self, run: RunSpec) -> RunResult | None:
        """The run's result if it is done."""
        if run.id not in self.stored or self.failed(run):
            return None
        if run.id not in self._results:
            try:
                self._results[run.id] = self._store.read(run.id)
            except MissingRun:  # damaged behind its metadata; the store has warned and set it aside
                del self.stored[run.id]
                return None
        return self._results[run.id]

    def fetch(self, runs: Iterable[RunSpec]) -> None:
        """Read those of these runs that are done and lie in packs, faster than one after the other."""
        wanted = {run.id for run in runs if run.id not in self._results}
        stored = (self.stored[id] for id in wanted & self.stored.keys())
        self._results |= self._store.read_several(one for one in stored if one.failure is None)

    def failed(self, run: RunSpec) -> bool:
        """True if the run is stored and failed."""
        return run.id in self.stored and self.stored[run.id].failure is not None


def readable(store: Store, data_dir: str | Path | None = None) -> UserSupplied:
    """Access to user-supplied code and data for reading a table: by the stored runs that it requested."""

    @cache
    def stored() -> list[Requested]:
        asked = requests_of(store)
        runs = sorted(store.list(), key=lambda run: (run.failure is None, run.finished, run.spec.id), reverse=True)
        return [Requested(run.spec, asked.get(run.spec.id, frozenset())) for run in runs]

    return UserSupplied(data_root(data_dir), stored=stored)
