"""The outcome of a tuning search: its trials' accuracies, and the best values as TOML for the suite file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pflbench.errors import UsageError
from pflbench.report.reading import WINDOW, Shelf, average, by_client, by_round, scored
from pflbench.report.trials import edges, within_noise
from pflbench.running.again import scored_rounds
from pflbench.running.training import Work
from pflbench.spec import RunSpec
from pflbench.store.store import Store
from pflbench.suite.cells import Reading
from pflbench.suite.document import Suite
from pflbench.suite.tuning import FINETUNE, Search, Trial, set_text
from pflbench.units import count, seed_text


class TrialScore(NamedTuple):
    """A trial's accuracy on the validation rows in percent, the mean over its seeds; without one, why it has none.

    `failure` is empty where a run is not there yet. `seeds`: each seed's accuracy; `clients`: of a single seed, each
    scored client's.
    """

    accuracy: float | None
    failure: str = ""
    seeds: tuple[float, ...] = ()
    clients: tuple[float, ...] = ()


@dataclass(frozen=True)
class Tuning:
    """A search with its outcome: what its method is called, the trials' verdicts, and where the chosen values go.

    `verdicts`: one for each trial.
    `target`: KEY of `[column.hyper.KEY]`: the method, but the row where it has values or trials of its own, and its id
    is no method of the suite's: only a column's values by row id are stronger then.
    `command`: what found the values; empty: it is not told.
    """

    search: Search
    label: str
    target: str
    verdicts: Sequence[TrialScore]
    command: str = ""

    @property
    def title(self) -> str:
        """Column, row and seeds of the search, in a line."""
        seeds = [run.seed for run in self.search.trials[0].runs]
        return f"{self.search.column.id} · {self.label} · seed{'s' if len(seeds) > 1 else ''} {seed_text(seeds)}"

    @property
    def missing(self) -> int:
        """Number of trials that have neither a result nor a failure."""
        return sum(verdict == TrialScore(None) for verdict in self.verdicts)

    @property
    def best(self) -> int | None:
        """The trial with the best accuracy, the first of equals; None if one is missing or all failed."""
        return None if self.missing else next(iter(_ranked(self.verdicts)), None)

    @property
    def lacking(self) -> str:
        """Why there is no best."""
        return f"{count(self.missing, 'trial')} without a result" if self.missing else "every trial failed"

    @property
    def warnings(self) -> list[str]:
        """Sentences on how far the best can be trusted: what lies at the grid's edge, and a lead within noise."""
        if self.best is None:
            return []
        ways = {"smallest": "below", "largest": "above"}
        found = [
            f"{one} that was tried: what is best may lie {ways[one.which]} it."
            for one in edges(self.search.trials[self.best].values, self.search.grid)
        ]
        found += filter(None, [_lead(self.verdicts)])
        return found

    @property
    def toml(self) -> str:
        """The best values as tables of the column, under comments on how they were found; empty without a best."""
        if self.best is None:
            return ""
        search, values = self.search, self.search.trials[self.best].values
        lines = [f"# {self.command}"] * bool(self.command) + self._found(self.best)
        lines += [f"# Warning: {warning}" for warning in self.warnings]
        if self.target == search.name:
            own = (key for key in search.grid if key in search.row_values)
            lines += [f"# Row {search.selected.row.id} has its own {key}, which wins." for key in own]
        lines += self._elsewhere(values)
        plain = re.fullmatch(r"[A-Za-z0-9_-]+", self.target)
        target = self.target if plain else json.dumps(self.target)
        for table, prefix in (("hyper", ""), ("finetune", FINETUNE)):
            chosen = {k.removeprefix(FINETUNE): v for k, v in values.items() if k.startswith(FINETUNE) == bool(prefix)}
            lines += [f"[column.{table}.{target}]"] * bool(chosen) + [_assigned(*one) for one in chosen.items()]
        return "\n".join(lines)

    def _elsewhere(self, values: Mapping[str, Any]) -> list[str]:
        """Comment on options that set the same values."""
        search = self.search
        if search.guest:
            name = search.selected.info.reference.rpartition(":")[2]
            sets = (f"{'' if key.startswith(FINETUNE) else f'{name}.'}{key}={set_text(v)}" for key, v in values.items())
            return [f"# Or: {' '.join(f'--set {one}' for one in sets)}"]
        return []

    def _found(self, best: int) -> list[str]:
        """Comments on the search that found the best trial."""
        search, (first, *more) = self.search, self.search.trials[best].runs
        failed = sum(bool(verdict.failure) for verdict in self.verdicts)
        trials = count(len(search.trials), "trial")
        of = f"{trials}, {failed} of which failed" if failed else trials
        seeds = f"seeds {seed_text([first.seed, *(run.seed for run in more)])}" if more else f"seed {first.seed}"
        if search.listed:
            tried = "the suite's points"
        else:
            tried = " × ".join(f"{key} of {', '.join(map(set_text, choice))}" for key, choice in search.grid.items())
        return [
            f"# Column {search.column.id}, {count(first.rounds, 'round')}, {seeds}: "
            f"{self.verdicts[best].accuracy:.2f} % ({search.read}) on {100 * first.validation:g} % of the "
            "training rows,",
            f"# the best of {of}: {tried}.",
        ]


def _lead(verdicts: Sequence[TrialScore]) -> str | None:
    """A sentence where the best trial's lead over the next is within noise: over seeds, or of one over clients."""
    ranked = _ranked(verdicts)
    if len(ranked) < 2:
        return None
    first, second = (verdicts[trial] for trial in ranked[:2])
    lead = (first.accuracy or 0.0) - (second.accuracy or 0.0)
    if len(first.seeds) > 1:
        return within_noise(lead, first.seeds, second.seeds, "seeds")
    return within_noise(lead, first.clients, second.clients, "scored clients")


def _ranked(verdicts: Sequence[TrialScore]) -> list[int]:
    """The trials that have an accuracy, the best first, the first of equals."""
    found = {trial: verdict.accuracy for trial, verdict in enumerate(verdicts) if verdict.accuracy is not None}
    return sorted(found, key=lambda trial: (-found[trial], trial))


def _assigned(key: str, value: Any) -> str:
    written = json.dumps("none" if value is None else value) if isinstance(value, str | bool | None) else repr(value)
    return f'{key} = {{ value = {written}, source = "tuned" }}'


def work_of_searches(found: Collection[Tuning]) -> Work:
    """The runs of all trials."""
    runs = {run.id: (run, one, trial) for one in found for trial in one.search.trials for run in trial.runs}
    return Work(
        [run for run, *_ in runs.values()],
        {id: one.search.places for id, (_, one, _) in runs.items()},
        {id: _name(one, trial) for id, (_, one, trial) in runs.items()},
    )


def tuning_outcomes(
    suite: Suite, profile: str, searches: Collection[Search], store: Store, command: str = ""
) -> list[Tuning]:
    """The outcome of each search, from the stored results of its trials. `command`: what is told to have found it."""
    shelf = Shelf(store)
    methods = {row.method for row in suite.document(profile).row}
    found = []
    for one in searches:
        row, own = one.selected.row.id, one.of_row or any(key in one.row_values for key in one.grid)
        target = row if own and not one.guest and row not in methods else one.name
        told = f"{command} -m {one.selected.key if one.guest else row} --column {one.column.id}" if command else ""
        verdicts = [_verdict(trial.runs, one.reading, shelf) for trial in one.trials]
        found.append(Tuning(one, row, target, verdicts, told))
    return found


def _name(tuning: Tuning, trial: Trial) -> str:
    values = " ".join(f"{key}={set_text(value)}" for key, value in trial.values.items())
    return f"{tuning.search.column.id} {values} · {tuning.label}"


def _verdict(runs: Sequence[RunSpec], reading: Reading, shelf: Shelf) -> TrialScore:
    """Of a trial's runs, one for each seed: if one failed, the trial has."""
    results = [shelf.read(run) for run in runs]
    failures = [shelf.stored[run.id].failure for run in runs if shelf.failed(run)]
    there = [result for result in results if result is not None]
    if failures or len(there) < len(runs):
        return TrialScore(None, next((one for one in failures if one), ""))
    rounds = [scored(result, reading) for result in there]
    seeds = [float(average(one, reading, result).mean()) for one, result in zip(rounds, there, strict=True)]
    clients = 100 * by_client(rounds[0]).values.mean(axis=0) if len(there) == 1 else np.empty(0)
    return TrialScore(float(np.mean(seeds)), "", tuple(seeds), tuple(clients.tolist()))


def check_scored_rounds(searches: Collection[Search], store: Store, evaluate_every: int | None) -> None:
    """Raise `UsageError` where the last ten scored rounds are to choose and a trial is scored in fewer.

    `evaluate_every`: trials without a result are scored so often.
    """
    shelf = Shelf(store)
    for search in searches:
        for run in (run for trial in search.trials for run in trial.runs):
            planned = scored_rounds(run, evaluate_every)
            if search.reading.read_as == "last" or planned >= WINDOW:
                continue
            stored = shelf.read(run)
            if stored is None or len(by_round(stored, search.reading)) < WINDOW:
                few = f"the trials in column {search.column.id} are scored in {planned} of {count(run.rounds, 'round')}"
                raise UsageError(f"The last ten scored rounds choose for {search.name}, and {few}. {_advice(run)}")


def _advice(run: RunSpec) -> str:
    """The options that make ten scored rounds of a trial."""
    if run.rounds >= WINDOW:
        return f"Write --evaluate-every {run.rounds // WINDOW} or less, or more --rounds."
    return f"Write --rounds {WINDOW} or more, and --evaluate-every 1."
