"""The outcome of a tuning search: its trials' accuracies, and the best values as TOML for the suite file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from pflbench.report.reading import Shelf, average, scored
from pflbench.running.training import Work
from pflbench.store.store import Store
from pflbench.suite.document import Suite
from pflbench.suite.labels import row_labels
from pflbench.suite.tuning import Search, Trial, text
from pflbench.units import count


class Verdict(NamedTuple):
    """A trial's accuracy on the validation rows in percent; without one, why it has none (empty: not run yet)."""

    accuracy: float | None
    failure: str = ""


class Target(NamedTuple):
    """Where the chosen values go: `[column.hyper.KEY]`. `beaten`: those of them that the row's own values win over."""

    key: str
    beaten: tuple[str, ...] = ()


def _target(search: Search, methods: Collection[str]) -> Target:
    """The method's values, but the row's where it has values of its own: only a column's by row id are stronger.

    `methods`: those of the suite's rows. A row whose id is one of them has no values by its id.
    """
    own = tuple(key for key in search.grid if key in search.own)
    if own and search.selected.row.id not in methods:
        return Target(search.selected.row.id)
    return Target(search.name, own)


@dataclass(frozen=True)
class Tuning:
    """A search with its outcome: what its method is called, where the chosen values go, and each trial's verdict."""

    search: Search
    label: str
    target: Target
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
        return "" if self.best is None else _toml(self, self.best)


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
    return [Tuning(one, _label(one, labels), _target(one, methods), _verdicts(one, shelf)) for one in searches]


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


def _toml(tuning: Tuning, best: int) -> str:
    search, target, verdicts = tuning.search, tuning.target, tuning.verdicts
    values, spec = search.trials[best]
    trials, failed = len(verdicts), sum(verdict.accuracy is None for verdict in verdicts)
    of = f"{count(trials, 'trial')}, {failed} of which failed" if failed else count(trials, "trial")
    tried = " × ".join(f"{key} of {', '.join(map(text, choice))}" for key, choice in search.grid.items())
    lines = [
        f"# Column {search.column.id}, {count(spec.rounds, 'round')}, seed {spec.seed}: "
        f"{verdicts[best].accuracy:.2f} % ({search.reading.stage}) on {100 * spec.validation:g} % of the training "
        "rows,",
        f"# the best of {of}: {tried}.",
    ]
    lines += [f"# Row {search.selected.row.id} has its own {key}, which wins." for key in target.beaten]
    if search.guest:
        name = search.selected.info.reference.rpartition(":")[2]
        lines.append(f"# Or: {' '.join(f'--set {name}.{key}={text(value)}' for key, value in values.items())}")
    lines.append(f"[column.hyper.{_key(target.key)}]")
    for key, value in values.items():
        lines.append(f"# {key}: none" if value is None else f'{key} = {{ value = {_value(value)}, source = "tuned" }}')
    return "\n".join(lines)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)
