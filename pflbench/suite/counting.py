"""Datasets of a suite of statistics, whose images are counted: divided among clients with every seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pflbench.names import Places
from pflbench.selection import EVERYTHING, Selection
from pflbench.spec import RunSpec
from pflbench.suite.cells import Caption
from pflbench.suite.document import Suite
from pflbench.suite.figure import Sizes
from pflbench.suite.layers import every_column, select_columns
from pflbench.suite.scoped import Note
from pflbench.suite.shortfall import shortfall, stand_in


class ToCount(NamedTuple):
    """A dataset divided among clients.

    Attributes:
        federations: For each seed the spec of a run that is never trained; its id identifies the federation.
        places: Paths of its user-supplied code and data.
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


def counting(suite: Suite, part: Selection = EVERYTHING) -> CountTable:
    """Expand a suite of statistics to its datasets. Raises `UsageError` for an unknown column or profile."""
    document = suite.document(part.profile or "paper")
    head, statistics = document.suite, document.statistics
    assert statistics is not None
    seeds = part.seeds or tuple(head.seeds)
    chosen = select_columns(every_column(suite, document), part)
    datasets = []
    for column in chosen:
        instead, id_, title = stand_in(column.whole.entry, column.entry), column.entry.id, column.entry.title
        title = f"{instead} for {title}" if instead else title
        datasets.append(ToCount(id_, title, column.federations(seeds), column.places, statistics.reference.get(id_)))
    return CountTable(
        suite=suite.name,
        title=head.title,
        paper=head.paper,
        profile=part.profile or "paper",
        spread=head.spread,
        shows_spread=True,
        notes=tuple(note.text for note in document.layer.found(Note, None, None)),
        shortfall=shortfall(suite.document(), document, {column.index: seeds for column in chosen}, None),
        command=part.but(suites=[suite.called]).options.strip(),
        seeds=seeds,
        datasets=tuple(datasets),
    )
