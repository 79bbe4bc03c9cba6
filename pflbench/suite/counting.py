"""Datasets of a suite of statistics, whose images are counted: divided among clients with every seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pflbench.names import Places
from pflbench.selection import EVERYTHING, Selection
from pflbench.spec import MethodSpec, RunSpec, Scoring
from pflbench.suite.cells import Caption
from pflbench.suite.document import Document, Suite
from pflbench.suite.figure import Sizes
from pflbench.suite.resolve import places, shared
from pflbench.suite.scoped import Note
from pflbench.suite.select import select_columns
from pflbench.suite.shortfall import shortfall, stand_in

_DIVIDED = ("dataset", "partition", "clients", "training_clients", "query")
"""The settings of a column that its federation depends on."""
_UNTRAINED: dict[str, Any] = {
    "method": MethodSpec(name="none", version="none"),
    "model": "none",
    "cohort": 1,
    "batch": 1,
    "rounds": 1,
    "scoring": Scoring(),
}
"""Fixed values of the fields that a federation does not depend on."""


class ToCount(NamedTuple):
    """A dataset divided among clients.

    Attributes:
        federations: For each seed the spec of a run that is never trained; its id identifies the federation.
        places: Where the code is of what in it is the user's own.
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
    """The selection as options of the command line."""
    seeds: tuple[int, ...]
    datasets: tuple[ToCount, ...]


def untrained(suite: Suite, document: Document, index: int, seeds: Sequence[int]) -> tuple[tuple[RunSpec, ...], Places]:
    """For each seed a spec with the federation of a column's runs, and where that is what it has of the user's own."""
    settings, code = shared(suite, document, index), places(suite, document, index)
    divided = {key: settings[key] for key in _DIVIDED}
    specs = (RunSpec(**_UNTRAINED | divided | suite.own.contents(settings, code, seed), seed=seed) for seed in seeds)
    return tuple(specs), code


def counting(suite: Suite, part: Selection = EVERYTHING) -> CountTable:
    """Expand a suite of statistics to its datasets. Raises `UsageError` for an unknown column or profile."""
    document = suite.document(part.profile or "paper")
    head, statistics = document.suite, document.statistics
    assert statistics is not None
    seeds = part.seeds or tuple(head.seeds)
    indices = select_columns(suite, document, part)
    datasets = []
    for index in indices:
        column = document.column[index]
        instead = stand_in(suite.document().column[index], column)
        title = f"{instead} for {column.title}" if instead else column.title
        federations, code = untrained(suite, document, index, seeds)
        datasets.append(ToCount(column.id, title, federations, code, statistics.reference.get(column.id)))
    return CountTable(
        suite=suite.name,
        title=head.title,
        paper=head.paper,
        profile=part.profile or "paper",
        spread=head.spread,
        shows_spread=True,
        notes=tuple(note.text for note in document.layer.found(Note, None, None)),
        shortfall=shortfall(suite.document(), document, dict.fromkeys(indices, seeds), None),
        command=part.but(suites=[suite.called]).options.strip(),
        seeds=seeds,
        datasets=tuple(datasets),
    )
