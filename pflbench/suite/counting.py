"""What a suite of statistics counts: the datasets of its columns, divided among clients with every seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pflbench.names import Places
from pflbench.selection import EVERYTHING, Selection
from pflbench.spec import MethodSpec, RunSpec, Scoring
from pflbench.suite.cells import Caption
from pflbench.suite.document import Suite
from pflbench.suite.origins import notes
from pflbench.suite.resolve import places, shared
from pflbench.suite.select import select_columns
from pflbench.suite.shortfall import shortfall, stand_in
from pflbench.suite.statistics import Sizes

_DIVIDED = ("dataset", "partition", "clients", "training_clients", "query")
"""The settings of a column that its federation depends on."""


class ToCount(NamedTuple):
    """A dataset as it is divided among clients: the id and title of its line, and what the paper printed.

    `federations`: for each seed a run that nobody trains; its id tells the federation by content. `places`: where the
    code is of what in it is the user's own.
    """

    id: str
    title: str
    federations: tuple[RunSpec, ...]
    places: Places
    printed: Sizes | None


@dataclass(frozen=True)
class CountTable(Caption):
    """A table of statistics to fill: a line for each dataset."""

    command: str
    """What the command line calls the suite and what is asked for of it."""
    seeds: tuple[int, ...]
    datasets: tuple[ToCount, ...]


def counting(suite: Suite, part: Selection = EVERYTHING) -> CountTable:
    """What is to be counted of a suite of statistics. Raises `UsageError` for an unknown column or profile."""
    document = suite.document(part.profile or "paper")
    head, statistics = document.suite, document.statistics
    assert statistics is not None
    seeds = part.seeds or tuple(head.seeds)
    indices = select_columns(suite, document, part)
    datasets = []
    for index in indices:
        column, settings, code = document.column[index], shared(suite, document, index), places(suite, document, index)
        instead = stand_in(suite.document().column[index], column)
        title = f"{instead} for {column.title}" if instead else column.title
        divided = {key: settings[key] for key in _DIVIDED}
        federations = tuple(_nobodys(seed, **divided | suite.own.contents(settings, code, seed)) for seed in seeds)
        datasets.append(ToCount(column.id, title, federations, code, statistics.reference.get(column.id)))
    return CountTable(
        suite=suite.name,
        title=head.title,
        paper=head.paper,
        profile=part.profile or "paper",
        spread=head.spread,
        shows_spread=True,
        notes=notes(document, [], []),
        shortfall=shortfall(suite.document(), document, indices, None, seeds),
        command=part.but(suites=[str(suite.called or suite.path)]).options.strip(),
        seeds=seeds,
        datasets=tuple(datasets),
    )


def _nobodys(seed: int, **divided: object) -> RunSpec:
    """The run of a federation that nobody trains on; what a federation does not depend on is always the same."""
    nobody = MethodSpec(name="none", version="none")
    return RunSpec(method=nobody, model="none", cohort=1, batch=1, rounds=1, scoring=Scoring(), seed=seed, **divided)  # type: ignore[arg-type]
