"""Parts that all figures share: a panel's cells, and facts on how it is read and on what it leaves out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pflbench.report.cells import summarize
from pflbench.report.facts import Fact, facts
from pflbench.report.figures.panels import Panel, Point, Series
from pflbench.report.provenance import mixtures, not_compared, shipped, shown_runs
from pflbench.report.reading import Shelf
from pflbench.report.text import grouped, ranges
from pflbench.suite.cells import Cell, ColumnHead, Expansion
from pflbench.suite.schema import Spread
from pflbench.units import count

Remarks = defaultdict[str, list[tuple[str, str, str]]]
"""Rows that a figure leaves out or draws in another way: by reason, each with the part, the row, and the place."""


def remarks_of() -> Remarks:
    """Remarks, of which there are none yet."""
    return defaultdict(list)


def remarked(remarks: Remarks, reasons: Mapping[str, Fact], places: Collection[str]) -> list[Fact]:
    """A fact for each reason that has remarks: `round 1 of FedAvg in A, B`; places are left out where it is all."""
    found = ((fact, _joined(remarks[reason], places)) for reason, fact in reasons.items() if remarks[reason])
    return [fact._replace(text=f"{fact.text}: {where}.") for fact, where in found]


UNEVEN = Fact("left out", "Left out, so that all points of a line are of the same seeds")
"""Reason for parts of rows that a line over seeds does not show."""


def in_a_line(panels: int) -> int:
    """Number of panels in a line, of this number of panels."""
    return panels if panels <= 3 else 2 if panels == 4 else 3


def least_to_most(numbers: Collection[int]) -> str:
    """The smallest and the largest number, `1–3`; `3` if they are equal."""
    return "–".join(map(str, dict.fromkeys((min(numbers), max(numbers)))))


def cells_of(table: Expansion, head: ColumnHead) -> dict[str, Cell]:
    """The cells of a panel by their rows' titles, in the suite's order."""
    return {row.title: cell for row in table.rows if (cell := table.places.get((row.id, head.id)))}


def not_done(table: Expansion, heads: Sequence[ColumnHead], shelf: Shelf) -> tuple[Remarks, set[int]]:
    """Rows with the seeds that are not done, and the seeds that are done of some row."""
    lacking, seeds = remarks_of(), set[int]()
    for head in heads:
        for title, cell in cells_of(table, head).items():
            asked = {needed[0].seed for needed in cell.by_seed}
            done = {needed[0].seed for needed in cell.by_seed if all(shelf.read(run) for run in needed)}
            seeds |= done
            if left := asked - done:
                which = f" (seeds {ranges(left)})" if done else ""
                lacking["missing"].append(("", f"{title}{which}", head.column.setting))
    return lacking, seeds


def missing_facts(table: Expansion, heads: Sequence[ColumnHead], shelf: Shelf) -> list[Fact]:
    """Facts on runs that are not done: of the columns that have some, and on which columns have none."""
    lacking, _ = not_done(table, heads, shelf)
    begun = {head.column.setting for head in heads for cell in cells_of(table, head).values() if _begun(cell, shelf)}
    every = list(dict.fromkeys(head.column.setting for head in heads))
    bare = [setting for setting in every if setting not in begun] if begun else []
    here = [setting for setting in every if setting not in bare]
    lacking["missing"] = [one for one in lacking["missing"] if one[2] in here]
    runs = remarked(lacking, {"missing": Fact("missing", "Missing or failed runs")}, here)
    return [*runs, *facts("missing", f"No results yet in {comma_list(bare)}." if bare else "")]


def _begun(cell: Cell, shelf: Shelf) -> bool:
    return any(all(shelf.read(run) for run in needed) for needed in cell.by_seed)


def _joined(remarks: Sequence[tuple[str, str, str]], places: Collection[str]) -> str:
    of_parts = grouped((part, (row, place)) for part, row, place in remarks)
    return "; ".join(f"{part} of " * bool(part) + _rows(several, places) for part, several in of_parts.items())


def _rows(rows: Sequence[tuple[str, str]], places: Collection[str]) -> str:
    alike = grouped((tuple(columns), row) for row, columns in grouped(rows).items())
    return "; ".join(
        comma_list(several) + ("" if set(columns) >= set(places) else f" in {comma_list(columns)}")
        for columns, several in alike.items()
    )


def comma_list(names: Iterable[str]) -> str:
    """Names with commas between them; one that has a comma itself, but in parentheses, is in quotation marks."""
    return ", ".join(f'"{name}"' if "," in re.sub(r"\(.*?\)", "", name) else name for name in names)


def settings(table: Expansion) -> list[str]:
    """Names of the columns."""
    return [column.setting for column in table.columns]


def facts_of(table: Expansion, seeds: Iterable[int], drawn: Iterable[Cell]) -> list[Fact]:
    """Last facts of a figure: its paper and protocol, then the suite's own notes on its cells."""
    first = f"Paper: {table.paper}. Protocol: {table.protocol}. Seeds: {ranges(seeds)}."
    return [Fact("protocol", first), *facts("note", *table.notes_on(drawn))]


def in_panels(table: Expansion) -> dict[str, ColumnHead]:
    """The columns by the titles of their panels: a line of panels for each stage that the table shows."""
    stages = list(dict.fromkeys(head.stage for head in table.heads))
    heads = sorted(table.heads, key=lambda head: stages.index(head.stage))
    return {head.name if len(stages) > 1 else head.column.setting: head for head in heads}


def drawn_in(table: Expansion, heads: Iterable[ColumnHead], panels: Iterable[Panel]) -> list[Cell]:
    """The cells that these panels show; `heads`: one for each panel."""
    return [
        cell
        for head, panel in zip(heads, panels, strict=True)
        for title, cell in cells_of(table, head).items()
        if title in {series.row for series in panel.series}
    ]


def in_order(table: Expansion, panels: Iterable[Panel]) -> tuple[str, ...]:
    """The labels of a legend in the order of the rows, where these have lines for each seed, too."""
    labels = grouped((series.row, series.label) for panel in panels for series in panel.series)
    return tuple(dict.fromkeys(label for row in table.rows for label in (row.title, *labels.get(row.title, ()))))


def mixed(table: Expansion, shelf: Shelf) -> list[Fact]:
    """Warnings on columns whose runs saw different data or versions of a method; and which runs came with pflbench."""
    shown = shown_runs(table.places, {row.id: row.title for row in table.rows}, shelf.stored)
    warnings = facts("mixed", *not_compared(mixtures(table, shown)), severity="warning")
    return [*warnings, *facts("progress", shipped(shown))]


Walk = Mapping[int, float]
"""A run's numbers, by round or by fine-tuning step."""
_FEW = 3
"""Most rounds that are named; of more the number is given."""


class Lines(NamedTuple):
    """Lines of a row in a panel.

    Attributes:
        series: One line over seeds; a line for each seed where they have no two rounds in common; none without numbers.
        left_out: What is not drawn, so that all points of a line have the same seeds, in words; empty: nothing.
        apart: Whether each seed has a line of its own.
    """

    series: tuple[Series, ...]
    left_out: str = ""
    apart: bool = False


def over_seeds(
    title: str,
    walks: Mapping[int, Walk],
    spread: Spread,
    numbers: Mapping[str, float] | None = None,
    paces: Mapping[int, float] | None = None,
) -> Lines:
    """The line of a row from its runs' numbers; both mappings go by seed.

    Seeds that were scored once are left out where another one was scored more often. The others' line has the rounds
    in which all of them were scored. `paces`: how much of the axis's unit is in a round; those it does not have are the
    mean of the others.
    """
    paces = paces or dict.fromkeys(walks, 1.0)
    kept = _kept(walks)
    if not kept:
        return Lines(())
    left = [_once(seed, walk) for seed, walk in walks.items() if walk and seed not in kept]
    every = set[int]().union(*kept.values())
    common = every.intersection(*kept.values())
    if len(common) < min(2, len(every)):
        return Lines(tuple(_each(title, kept, spread, paces)), "; ".join(left), apart=True)
    left += _lacking(kept, every - common)
    told = [paces[seed] for seed in kept if seed in paces] or list(paces.values())
    points = _points(list(kept.values()), sorted(common), spread, float(np.mean(told)))
    series = Series(title, "line", points, numbers=numbers or {}, row=title)
    return Lines((series,), "; ".join(left))


def _kept(walks: Mapping[int, Walk]) -> dict[int, Walk]:
    """The seeds of which there is more than a point; where none has more, those that have one."""
    longer = {seed: walk for seed, walk in walks.items() if len(walk) > 1}
    return longer or {seed: walk for seed, walk in walks.items() if walk}


def _each(title: str, walks: Mapping[int, Walk], spread: Spread, paces: Mapping[int, float]) -> Iterator[Series]:
    usual = float(np.mean(list(paces.values())))
    for seed, walk in sorted(walks.items()):
        points = _points([walk], sorted(walk), spread, paces.get(seed, usual))
        yield Series(f"{title}, seed {seed}", "line", points, row=title)


def _lacking(walks: Mapping[int, Walk], rounds: Collection[int]) -> list[str]:
    """The rounds in which not all of these seeds were scored, and which were, in words; nothing without such rounds."""
    if not rounds:
        return []
    seeds = [seed for seed, walk in walks.items() if not walk.keys().isdisjoint(rounds)]
    which = _numbered("round", rounds) if len(rounds) <= _FEW else count(len(rounds), "round")
    return [f"{which} of {_numbered('seed', seeds)}"]


def _numbered(noun: str, numbers: Collection[int]) -> str:
    """`seed 3`, `rounds 5, 15`."""
    return f"{noun if len(numbers) == 1 else f'{noun}s'} {ranges(numbers)}"


def _once(seed: int, walk: Walk) -> str:
    return f"seed {seed} (scored after round {min(walk)} alone)"


def _points(walks: Sequence[Walk], places: Sequence[int], spread: Spread, pace: float) -> tuple[Point, ...]:
    found = []
    for place in places:
        summary = summarize(np.array([[walk[place]] for walk in walks]), spread)
        found.append(Point(pace * place, summary.mean, summary.spread, summary.n))
    return tuple(found)
