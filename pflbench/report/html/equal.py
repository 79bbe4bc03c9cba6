"""Comparison at equal cost: each row's accuracy after it spent as much as the column's cheapest row in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from pflbench.report import text
from pflbench.report.cells import SeedScores, summarize
from pflbench.report.figures.curves import AXES
from pflbench.report.layout import Filled
from pflbench.report.reading import by_round
from pflbench.report.table import CellValue
from pflbench.store.columns import scores_of
from pflbench.suite.cells import Expansion

COSTS = {"gradients": ("gradients", "of a client"), "seconds": ("s", "of all clients"), "bytes": ("MB", "of a client")}
"""Costs that may be equal, by axis: unit, and whose cost it is. All rounds of a run cost the same."""
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
    """Total cost of a column's cheapest row: as a number, in short, and in words for a sentence."""

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
    for name, head in product(COSTS, dict.fromkeys(head for _, head in walks)):
        of = {place: told[name] for place, told in paces.items() if place[1] == head and told[name]}
        column = _Column(filled, walks, of, name)
        budget = column.budget()
        found = column.cells(budget.most) if budget else {}
        if budget and len(found) > 1:
            cells[name] |= found
            budgets[name][head] = budget
    return AtEqualCost(cells, budgets, paces, walks)


def _single(done: Sequence[SeedScores]) -> bool:
    """True if each seed has one run: where clients choose among several, no round belongs to the cell."""
    return bool(done) and all(len(one.runs) == 1 for one in done)


def _walks(done: Sequence[SeedScores], filled: Filled, place: Spot) -> Walks:
    """Accuracies of each seed by round; of a seed scored in the cell's rounds alone, its value after all rounds."""
    reading, found = filled.cells[place].reading, dict[int, Mapping[int, float]]()
    for one in done:
        seed, last = one.result.spec.seed, one.result.spec.rounds
        scored = scores_of(one.result.scores).at(reading.stage).keys()
        walk = by_round(one.result, reading) if len(scored) > 1 else {}
        found[seed] = {n: mean for n, mean in walk.items() if np.isfinite(mean)} | {
            last: filled.grid[place].seeds.get(seed, float("nan"))
        }
    return found


def _paces(done: Sequence[SeedScores], name: str) -> dict[int, float]:
    """Cost of a round for each seed; empty if one run does not tell."""
    told = {one.result.spec.seed: AXES[name].pace(one.result) for one in done}
    found = {seed: pace for seed, pace in told.items() if pace is not None}
    return found if len(found) == len(told) else {}


def shortened(value: float) -> str:
    """Three digits, or all those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class _Column(NamedTuple):
    """A column of a table and a cost; `paces`: what a round costs each seed, by the places of rows that tell it."""

    filled: Filled
    walks: Mapping[Spot, Walks]
    paces: Mapping[Spot, Mapping[int, float]]
    name: str

    def budget(self) -> Budget | None:
        """The least that one of the suite's rows spends in all, in the seed in which it spends most.

        Rows that cost nothing do not count, nor those with other rounds than the column's: Local has one round. None
        without a row, and for seconds of several devices.
        """
        runs = (one.result for place in self.paces for one in self.filled.found[place])
        if self.name == "seconds" and len({str(run.provenance.get("device")) for run in runs}) > 1:
            return None
        titles = {row.id: row.title for row in self.filled.table.rows}
        cells = ((place, self.filled.cells[place]) for place in self.paces if place[0] in titles)
        whole = {place: cell for place, cell in cells if cell.needed[0].rounds == cell.column.rounds}
        totals = {place: cell.column.rounds * max(self.paces[place].values()) for place, cell in whole.items()}
        most, place = min(((total, place) for place, total in totals.items() if total > 0), default=(0.0, ("", "")))
        if not most:
            return None
        unit, whose = COSTS[self.name]
        short = f"{shortened(most)} {unit}"
        return Budget(most, short, f"{short} {whose} (the whole run of {titles[place[0]]})")

    def cells(self, most: float) -> dict[Spot, Equal]:
        """The cells of a column all of whose seeds were scored before they had spent more than that."""
        at: dict[Spot, list[tuple[int, float]]] = {}
        for place, paces in self.paces.items():
            spent = [_last(walk, paces[seed], most) for seed, walk in self.walks[place].items()]
            if None not in spent:
                at[place] = [one for one in spent if one is not None]
        best = self._best({place: float(np.mean([mean for _, mean in found])) for place, found in at.items()})
        return {
            place: Equal(
                _told(found, self.filled.grid[place], self.filled.table),
                text.ranges({n for n, _ in found}),
                place in best,
            )
            for place, found in at.items()
        }

    def _best(self, means: Mapping[Spot, float]) -> set[Spot]:
        """Rows of the suite whose printed number is the largest, with all their seeds or without.

        None of one alone, and none where a row of the suite has runs and no number: that row may be ahead.
        """
        grid, suites = self.filled.grid, {row.id for row in self.filled.table.rows}
        heads = {head for _, head in means}
        with_runs = {place for place, done in self.filled.found.items() if done and place[1] in heads}
        if any(place[0] in suites and place not in means for place in with_runs):
            return set()
        ranked = {
            place: round(mean, self.filled.table.layout.decimals)
            for place, mean in means.items()
            if place[0] in suites and not grid[place].mixed
        }
        top = max(ranked.values(), default=0.0)
        return {place for place, mean in ranked.items() if mean == top and len(ranked) > 1}


def _last(walk: Mapping[int, float], pace: float, most: float) -> tuple[int, float] | None:
    """The last scored round in which a seed has spent no more than that, and its mean; None without one."""
    within = [n for n, mean in walk.items() if n and n * pace <= most * _ALIKE and np.isfinite(mean)]
    return (max(within), walk[max(within)]) if within else None


def _told(found: Sequence[tuple[int, float]], value: CellValue, table: Expansion) -> str:
    made = summarize(np.array([[mean] for _, mean in found]), table.spread)
    shown = text.number(made.mean, made.spread if table.shows_spread else None, table.layout.decimals)
    return shown + text.rests(value) + ("" if value.complete else f" ({value.done}/{value.expected})")
