"""Accuracy against the number of support rows, in bins of about equally many clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pflbench.report.cells import Read
from pflbench.report.figures.panels import Point, Series
from pflbench.report.reading import Floats, by_client, support


def scatter(rows: Mapping[str, Sequence[Read]], bins: int) -> tuple[Series, ...]:
    """A series for each row, by title. All rows have the same bins: quantiles of their clients' sizes together."""
    pools: dict[str, list[tuple[list[float], Floats]]] = {}
    everyone: dict[tuple[int, int], float] = {}  # a client of a seed counts once, however many rows have it
    for title, seeds in rows.items():
        for one in seeds:
            scored = by_client(one.rounds)
            sizes = support(one.result, scored.clients, "the figure")
            everyone |= {(one.result.spec.seed, c): size for c, size in zip(scored.clients, sizes, strict=True)}
            pools.setdefault(title, []).append((sizes, 100 * scored.values.mean(axis=0)))
    between = cuts(np.array(list(everyone.values())), bins) if pools else np.empty(0)
    series = []
    for title, pool in pools.items():
        x, y = (np.concatenate(parts) for parts in zip(*pool, strict=True))
        series.append(Series(title, "points", binned(x, y, between)))
    return tuple(series)


def cuts(sizes: Floats, bins: int) -> Floats:
    """The inner edges of so many bins with equally many of these sizes; fewer where many are equal."""
    return np.unique(np.quantile(sizes, np.linspace(0, 1, bins + 1)))[1:-1]


def binned(x: Floats, y: Floats, between: Floats) -> tuple[Point, ...]:
    """For every bin that has values its means, and the SEM of its y; an edge belongs to the bin below."""
    where = np.searchsorted(between, x, side="left")
    points = []
    for bin in np.unique(where):
        inside = y[where == bin]
        n = len(inside)
        sem = float(inside.std(ddof=1) / np.sqrt(n)) if n > 1 else None
        points.append(Point(float(x[where == bin].mean()), float(inside.mean()), sem, n))
    return tuple(points)
