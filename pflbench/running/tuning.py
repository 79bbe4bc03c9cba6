"""The outcome of a tuning search: its trials' accuracies, and the best values as TOML for the suite file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from pflbench.report.reading import Shelf, average, scored
from pflbench.running.training import Work
from pflbench.store.store import Store
from pflbench.suite.document import Suite
from pflbench.suite.expand import row_labels
from pflbench.suite.tuning import Search, Trial, text
from pflbench.units import count


class Verdict(NamedTuple):
    """A trial's accuracy on the validation rows in percent; without one, why it has none (empty: not run yet)."""

    accuracy: float | None
    failure: str = ""


@dataclass(frozen=True)
class Tuning:
    """A search with its outcome: what its method is called, each trial's verdict, and where the chosen values go.

    `target`: KEY of `[column.hyper.KEY]`: the method, but the row where it has values of its own and its id is no
    method of the suite's: only a column's values by row id are stronger then.
    """

    search: Search
    label: str
    target: str
    verdicts: tuple[Verdict, ...]

    @property
    def title(self) -> str:
        """What was searched, in a line."""
        return f"{self.search.column.id} · {self.label} · seed {self.search.trials[0].run.seed}"

    @property
    def missing(self) -> int:
        """How many trials have neither a result nor a failure."""
        return sum(verdict == Verdict(None) for verdict in self.verdicts)

    @property
    def best(self) -> int | None:
        """The trial with the best accuracy, the first of equals; None if one is missing or all failed."""
        there = [i for i, verdict in enumerate(self.verdicts) if verdict.accuracy is not None]
        return max(there, key=lambda i: self.verdicts[i].accuracy or 0.0) if there and not self.missing else None

    @property
    def toml(self) -> str:
        """The best values as a table of the column, under comments that say how they were found; empty without a best.

        Values of None stand as comments, since TOML has none.
        """
        if self.best is None:
            return ""
        search, trials = self.search, count(len(self.verdicts), "trial")
        values, spec = search.trials[self.best]
        failed = sum(verdict.accuracy is None for verdict in self.verdicts)
        of = f"{trials}, {failed} of which failed" if failed else trials
        tried = " × ".join(f"{key} of {', '.join(map(text, choice))}" for key, choice in search.grid.items())
        lines = [
            f"# Column {search.column.id}, {count(spec.rounds, 'round')}, seed {spec.seed}: "
            f"{self.verdicts[self.best].accuracy:.2f} % ({search.reading.stage}) on {100 * spec.validation:g} % of the "
            "training rows,",
            f"# the best of {of}: {tried}.",
        ]
        if self.target == search.name:
            own = (key for key in search.grid if key in search.own)
            lines += [f"# Row {search.selected.row.id} has its own {key}, which wins." for key in own]
        if search.guest:
            name = search.selected.info.reference.rpartition(":")[2]
            lines.append(f"# Or: {' '.join(f'--set {name}.{key}={text(value)}' for key, value in values.items())}")
        plain = re.fullmatch(r"[A-Za-z0-9_-]+", self.target)
        lines.append(f"[column.hyper.{self.target if plain else json.dumps(self.target)}]")
        for key, value in values.items():
            written = json.dumps(value) if isinstance(value, str | bool) else repr(value)
            lines.append(f"# {key}: none" if value is None else f'{key} = {{ value = {written}, source = "tuned" }}')
        return "\n".join(lines)


def work_of_searches(suite: Suite, profile: str, searches: Collection[Search]) -> Work:
    """All trials, as runs to train."""
    labels = row_labels(suite, profile)
    return Work(
        [trial.run for search in searches for trial in search.trials],
        {trial.run.id: search.places for search in searches for trial in search.trials},
        {t.run.id: _name(search, t, _label(search, labels)) for search in searches for t in search.trials},
    )


def judged(suite: Suite, profile: str, searches: Collection[Search], store: Store) -> list[Tuning]:
    """The outcome of each search, from the stored results of its trials."""
    shelf, labels = Shelf(store), row_labels(suite, profile)
    methods = {row.method for row in suite.document(profile).row}
    found = []
    for one in searches:
        row, own = one.selected.row.id, any(key in one.own for key in one.grid)
        target = row if own and row not in methods else one.name
        found.append(Tuning(one, _label(one, labels), target, _verdicts(one, shelf)))
    return found


def _label(search: Search, labels: dict[str, str]) -> str:
    return labels.get(search.selected.row.id, search.selected.info.name)


def _name(search: Search, trial: Trial, label: str) -> str:
    values = " ".join(f"{key}={text(value)}" for key, value in trial.values.items())
    return f"{search.column.id} {values} · {label}"


def _verdicts(search: Search, shelf: Shelf) -> tuple[Verdict, ...]:
    reading, found = search.reading, []
    for _, spec in search.trials:
        result = shelf.read(spec)
        if result is not None:
            found.append(Verdict(float(average(scored(result, reading), reading, result).mean())))
        else:
            found.append(Verdict(None, (shelf.stored[spec.id].failure or "") if shelf.failed(spec) else ""))
    return tuple(found)
