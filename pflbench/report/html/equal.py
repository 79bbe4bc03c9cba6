"""Who is ahead at equal cost: each row's accuracy where it has spent no more than the column's cheapest row in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pflbench.report import text
from pflbench.report.cells import Read, summarize
from pflbench.report.figures.pace import AXES
from pflbench.report.layout import Filled
from pflbench.report.reading import by_round
from pflbench.report.table import CellValue
from pflbench.suite.cells import Expansion

COSTS = {"gradients": ("gradients", "of a client"), "seconds": ("s", "of all clients"), "bytes": ("MB", "of a client")}
"""What may be equal, by the name of its axis: its unit, and whose. A run's rounds cost the same, each."""
_ALIKE = 1.01
"""Costs that differ by a hundredth count as equal: of two networks' bytes one is hardly ever the other's."""
Spot = tuple[str, str]
"""Ids of a row and of a head."""
Walks = Mapping[int, Mapping[int, float]]
"""For each seed its mean accuracy in percent after each round that it was scored in."""


class Equal(NamedTuple):
    """A cell at equal cost: mean and spread as a text, after which rounds, and whether it is the column's best."""

    text: str
    rounds: str
    best: bool


class Budget(NamedTuple):
    """What the cheapest row of a column spends in all: as a number, in short, and in a sentence's words."""

    most: float
    short: str
    told: str


@dataclass(frozen=True)
class AtEqualCost:
    """A table at equal cost.

    Attributes:
        cells: By the name of a cost, the cells that have such a number.
        budgets: By the name of a cost, what is equal in each column, by its head's id.
        paces: By place and the name of a cost, what a round costs each seed.
        walks: What was scored of each place.
    """

    cells: Mapping[str, Mapping[Spot, Equal]]
    budgets: Mapping[str, Mapping[str, Budget]]
    paces: Mapping[Spot, Mapping[str, Mapping[int, float]]]
    walks: Mapping[Spot, Walks]


def at_equal_cost(filled: Filled) -> AtEqualCost:
    """The table at equal gradients, seconds and bytes, as far as its runs tell their costs and were scored on the way.

    Of a column there is nothing unless two rows have a number. Seconds are equal only among runs of one device.
    """
    walks = {place: _walks(done, filled, place) for place, done in filled.found.items() if _single(done)}
    paces = {place: {name: _paces(filled.found[place], name) for name in COSTS} for place in walks}
    cells: dict[str, dict[Spot, Equal]] = {name: {} for name in COSTS}
    budgets: dict[str, dict[str, Budget]] = {name: {} for name in COSTS}
    for name in COSTS:
        for head in dict.fromkeys(head for _, head in walks):
            column = [place for place in walks if place[1] == head and paces[place][name]]
            if name == "seconds" and _devices(filled, column) > 1:
                continue
            budget = _budget(filled, column, {place: paces[place][name] for place in column}, name)
            found = {} if budget is None else _column(filled, column, walks, paces, name, budget.most)
            if budget is not None and len(found) > 1:
                cells[name] |= found
                budgets[name][head] = budget
    return AtEqualCost(cells, budgets, paces, walks)


def _single(done: Sequence[Read]) -> bool:
    """Whether there are runs, and each seed is one: where clients choose among several, no round is a cell's."""
    return bool(done) and all(len(one.runs) == 1 for one in done)


def _walks(done: Sequence[Read], filled: Filled, place: Spot) -> Walks:
    """What each seed was scored; of one that was scored in the rounds of the cell alone its value, after all rounds."""
    reading, found = filled.cells[place].reading, dict[int, Mapping[int, float]]()
    for one in done:
        seed, last = one.result.spec.seed, one.result.spec.rounds
        scored = {score.round for score in one.result.scores if score.stage == reading.stage}
        walk = by_round(one.result, reading) if len(scored) > 1 else {}
        found[seed] = {n: mean for n, mean in walk.items() if np.isfinite(mean)} | {
            last: filled.grid[place].seeds.get(seed, float("nan"))
        }
    return found


def _paces(done: Sequence[Read], name: str) -> dict[int, float]:
    """What a round costs each seed; empty where one does not tell."""
    told = {one.result.spec.seed: AXES[name].pace(one.result) for one in done}
    found = {seed: pace for seed, pace in told.items() if pace is not None}
    return found if len(found) == len(told) else {}


def _devices(filled: Filled, places: Sequence[Spot]) -> int:
    runs = (one.result for place in places for one in filled.found[place])
    return len({str(run.provenance.get("device")) for run in runs})


def _budget(
    filled: Filled, places: Sequence[Spot], paces: Mapping[Spot, Mapping[int, float]], name: str
) -> Budget | None:
    """The least that one of the suite's rows spends in all, in the seed in which it spends most.

    Rows that cost nothing do not count, nor those with other rounds than the column's: Local has one round.
    """
    titles = {row.id: row.title for row in filled.table.rows}
    totals = {}
    for place in places:
        cell = filled.cells[place]
        total = cell.column.rounds * max(paces[place].values())
        if place[0] in titles and cell.needed[0].rounds == cell.column.rounds and total > 0:
            totals[place] = total
    if not totals:
        return None
    least = min(totals, key=lambda place: totals[place])
    unit, whose = COSTS[name]
    short = f"{shortened(totals[least])} {unit}"
    return Budget(totals[least], short, f"{short} {whose} (the whole run of {titles[least[0]]})")


def shortened(value: float) -> str:
    """Three digits, or all those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _column(
    filled: Filled,
    places: Sequence[Spot],
    walks: Mapping[Spot, Walks],
    paces: Mapping[Spot, Mapping[str, Mapping[int, float]]],
    name: str,
    most: float,
) -> dict[Spot, Equal]:
    """The cells of a column all of whose seeds were scored before they had spent more than that."""
    at: dict[Spot, list[tuple[int, float]]] = {}
    for place in places:
        spent = [_last(walk, paces[place][name][seed], most) for seed, walk in walks[place].items()]
        if None not in spent:
            at[place] = [one for one in spent if one is not None]
    table, suites = filled.table, {row.id for row in filled.table.rows}
    means = {place: float(np.mean([mean for _, mean in found])) for place, found in at.items()}
    ranked = {
        place: round(mean, table.layout.decimals)
        for place, mean in means.items()
        if place[0] in suites and filled.grid[place].complete and not filled.grid[place].mixed
    }
    top = max(ranked.values(), default=None) if len(ranked) > 1 else None
    return {
        place: Equal(
            _told(found, filled.grid[place], table),
            text.ranges({n for n, _ in found}),
            place in ranked and ranked[place] == top,
        )
        for place, found in at.items()
    }


def _last(walk: Mapping[int, float], pace: float, most: float) -> tuple[int, float] | None:
    """The last scored round in which a seed has spent no more than that, and its mean; None without one."""
    within = [n for n, mean in walk.items() if n and n * pace <= most * _ALIKE and np.isfinite(mean)]
    return (max(within), walk[max(within)]) if within else None


def _told(found: Sequence[tuple[int, float]], value: CellValue, table: Expansion) -> str:
    made = summarize(np.array([[mean] for _, mean in found]), table.spread)
    shown = text.number(made.mean, made.spread if table.shows_spread else None, table.layout.decimals)
    return shown + text.marks(value) + ("" if value.complete else f" ({value.done}/{value.expected})")
