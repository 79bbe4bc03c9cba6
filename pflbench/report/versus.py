"""A named rival against the other rows of a table: paired seed by seed and, with one seed, client by client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pflbench.errors import UsageError, unknown
from pflbench.report.cells import Read
from pflbench.report.reading import EVERYBODY
from pflbench.report.statistics import holm, paired
from pflbench.report.table import Against, Grid, Versus
from pflbench.suite.cells import Expansion

Place = tuple[str, str]
"""The ids of a row and of a column head."""


def rival(table: Expansion, name: str) -> str:
    """The id of the row that a rival's name means: a row's, or a method's that one row shows.

    Raises `UsageError` where it means none, or several.
    """
    ids = [row.id for row in table.rows]
    if name in ids:
        return name
    found = [row.id for row in table.rows if row.method == name]
    if len(found) > 1:
        raise UsageError(f"--versus {name} has several rows in {table.suite}: name one, {' or '.join(found)}.")
    if not found:
        raise unknown("row", name, ids)
    return found[0]


def held_against(name: str, table: Expansion, grid: Grid, found: Mapping[Place, Sequence[Read]]) -> Versus:
    """Every cell against the rival's in its column, where both have a seed in common and data are not mixed.

    Args:
        name: The rival's row, or its method.
        table: Whose columns these are.
        grid: The filled cells.
        found: What was read of each cell, by its place.

    Raises:
        UsageError: The name means no row, or several.
    """
    of = rival(table, name)
    compared: dict[Place, Against] = {}
    for head in table.heads:
        theirs = of, head.id
        column: dict[Place, Against] = {}
        for place, value in grid.items():
            if place[1] != head.id or place == theirs or theirs not in grid or value.mixed:
                continue
            common = [seed for seed in value.seeds if seed in grid[theirs].seeds]
            if len(common) > 1:
                column[place] = Against(paired([value.seeds[seed] - grid[theirs].seeds[seed] for seed in common]))
            elif common:
                column |= _by_clients(place, found[place], found[theirs], common[0])
        compared |= _adjusted(column)
    (title,) = (row.title for row in table.rows if row.id == of)
    return Versus(title, compared)


def _by_clients(place: Place, ours: Sequence[Read], theirs: Sequence[Read], seed: int) -> dict[Place, Against]:
    """The cell against the rival's of one seed, over the clients that both score; empty where that is nobody."""
    mine, other = (clients(one) for side in (ours, theirs) for one in side if one.result.spec.seed == seed)
    common = [client for client in mine if client in other and client != EVERYBODY]
    return {place: Against(paired([mine[one] - other[one] for one in common], tested=False), seed)} if common else {}


def clients(one: Read) -> dict[int, float]:
    """Each client's accuracy in percent, the mean over the rounds and fine-tuning steps that are read."""
    found, values = one.each
    return dict(zip(found, values.tolist(), strict=True))


def _adjusted(column: Mapping[Place, Against]) -> dict[Place, Against]:
    """The column with p-values adjusted over all of its comparisons that have one."""
    tested = {place: one for place, one in column.items() if one.seed is None}
    by_t = holm([1.0 if one.paired.p_t is None else one.paired.p_t for one in tested.values()])
    by_sign = holm([1.0 if one.paired.p_sign is None else one.paired.p_sign for one in tested.values()])
    judged = {
        place: replace(one, p=p, guard=guard)
        for (place, one), p, guard in zip(tested.items(), by_t, by_sign, strict=True)
    }
    return {**column, **judged}
