"""The outcome of a tuning search: its trials' accuracies, and the best values as TOML for the suite file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pflbench.errors import UsageError
from pflbench.report.reading import WINDOW, Shelf, average, by_round, scored
from pflbench.report.trials import edges
from pflbench.running.again import scored_rounds
from pflbench.running.job import Job
from pflbench.spec import RunSpec
from pflbench.store.store import Store
from pflbench.suite.cells import Reading
from pflbench.suite.tuning import FINETUNE, Search, set_text
from pflbench.units import count, seed_text


class TrialScore(NamedTuple):
    """A trial's accuracy on the validation rows in percent, the mean over its seeds.

    `accuracy`: None without a result. `failure`: empty where a run is missing.
    """

    accuracy: float | None
    failure: str = ""


@dataclass(frozen=True)
class Tuning:
    """A search with its outcome. `scores`: one for each trial; `command`: makes the search."""

    search: Search
    scores: Sequence[TrialScore]
    command: str

    @property
    def title(self) -> str:
        """Column, row and seeds of the search, in a line."""
        seeds = seed_text(run.seed for run in self.search.trials[0].runs)
        return f"{self.search.column.id} · {self.search.selected.row.id} · seeds {seeds}"

    @property
    def missing(self) -> int:
        """Number of trials that have neither a result nor a failure."""
        return sum(one == TrialScore(None) for one in self.scores)

    @property
    def best(self) -> int | None:
        """The trial with the best accuracy, the first of equals; None if one is missing or all failed."""
        done = {trial: one.accuracy for trial, one in enumerate(self.scores) if one.accuracy is not None}
        return None if self.missing or not done else max(done, key=lambda trial: done[trial])

    @property
    def toml(self) -> str:
        """The best values as tables of the column, under comments on the search; empty without a best."""
        if self.best is None:
            return ""
        search, values = self.search, self.search.trials[self.best].values
        run, failed = search.trials[0].run, sum(bool(one.failure) for one in self.scores)
        accuracy = f"{self.scores[self.best].accuracy:.2f} % ({search.read})"
        tried = " × ".join(f"{key} of {', '.join(map(set_text, choice))}" for key, choice in search.grid.items())
        lines = [
            f"# {self.command}",
            f"# Column {self.title}, {count(run.rounds, 'round')}: {accuracy} on {100 * run.validation:g} % of the "
            "training rows,",
            f"# the best of {count(len(search.trials), 'trial')} ({failed} failed): {tried}.",
            *(f"# Warning: {one} that was tried: the best may lie beyond." for one in edges(values, search.grid)),
        ]
        target = search.name if search.guest else search.selected.row.id
        if target == search.name:  # a column's values by method, which are weaker than a row's own
            of_row = search.selected.entry.hyper.keys() & search.grid.keys()
            lines += [f"# Row {target} has its own {key}, which wins." for key in sorted(of_row)]
        target = target if re.fullmatch(r"[A-Za-z0-9_-]+", target) else json.dumps(target)
        for table, prefix in (("hyper", ""), ("finetune", FINETUNE)):
            chosen = {key: value for key, value in values.items() if key.startswith(FINETUNE) == bool(prefix)}
            lines += [f"[column.{table}.{target}]"] * bool(chosen)
            lines += [_assigned(key.removeprefix(prefix), value) for key, value in chosen.items()]
        return "\n".join(lines)


def _assigned(key: str, value: Any) -> str:
    written = json.dumps("none" if value is None else value) if isinstance(value, str | bool | None) else repr(value)
    return f'{key} = {{ value = {written}, source = "tuned" }}'


def jobs_of_searches(searches: Collection[Search]) -> list[Job]:
    """The runs of all trials, each as a job."""
    jobs = {}
    for one in searches:
        for trial in one.trials:
            values = " ".join(f"{key}={set_text(value)}" for key, value in trial.values.items())
            for run in trial.runs:
                jobs[run.id] = Job((run,), one.places, f"{one.column.id} {values} · {one.selected.row.id}")
    return list(jobs.values())


def tuning_outcomes(searches: Collection[Search], store: Store, command: str) -> list[Tuning]:
    """The outcome of each search, from the stored results of its trials. `command`: without method and column."""
    shelf, outcomes = Shelf(store), []
    for one in searches:
        method = one.selected.entry.method if one.guest else one.selected.row.id
        scores = [_score(trial.runs, one.reading, shelf) for trial in one.trials]
        outcomes.append(Tuning(one, scores, f"{command} -m {method} --column {one.column.id}"))
    return outcomes


def _score(runs: Sequence[RunSpec], reading: Reading, shelf: Shelf) -> TrialScore:
    """Score of a trial's runs, one for each seed: if one failed, the trial has."""
    results = [shelf.read(run) for run in runs]
    failures = [shelf.stored[run.id].failure for run in runs if shelf.failed(run)]
    done = [result for result in results if result is not None]
    if failures or len(done) < len(runs):
        return TrialScore(None, next(filter(None, failures), ""))
    return TrialScore(float(np.mean([average(scored(one, reading), reading, one).mean() for one in done])))


def check_scored_rounds(searches: Collection[Search], store: Store, evaluate_every: int | None) -> None:
    """Raise `UsageError` where the last ten scored rounds are to choose and a trial is scored in fewer.

    `evaluate_every`: interval of scored rounds of trials without a result.
    """
    shelf = Shelf(store)
    for search in searches:
        for run in (run for trial in search.trials for run in trial.runs):
            planned = scored_rounds(run, evaluate_every)
            if search.reading.read_as == "last" or planned >= WINDOW:
                continue
            stored = shelf.read(run)
            if stored is None or len(by_round(stored, search.reading)) < WINDOW:
                raise UsageError(
                    f"The last {WINDOW} scored rounds choose for {search.name}, and the trials in column "
                    f"{search.column.id} are scored in {planned} of {count(run.rounds, 'round')}. Write --rounds "
                    f"{max(WINDOW, run.rounds)} or more, and --evaluate-every {max(1, run.rounds // WINDOW)} or less."
                )
