"""Accuracy against the number of support rows, in bins of about equally many clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pflbench.report.figures.panels import Point, Series
from pflbench.report.figures.runs import Done, sizes
from pflbench.report.reading import Floats


def scatter(rows: Mapping[str, Sequence[Done]], bins: int) -> tuple[Series, ...]:
    """A series for each row, by title. All rows have the same bins: quantiles of their clients' sizes together."""
    pools = {title: _pool(seeds) for title, seeds in rows.items() if seeds}
    if not pools:
        return ()
    # A client of a seed counts once, however many rows have it.
    everyone = {
        (one.run.spec.seed, client): size
        for seeds in rows.values()
        for one in seeds
        for client, size in zip(one.scored.clients, sizes(one), strict=True)
    }
    between = cuts(np.array(list(everyone.values())), bins)
    return tuple(Series(title, "points", binned(*pool, between)) for title, pool in pools.items())


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


def _pool(seeds: Sequence[Done]) -> tuple[Floats, Floats]:
    """Sizes and accuracies in percent of all seeds' clients."""
    return (
        np.concatenate([sizes(one) for one in seeds]),
        np.concatenate([100 * one.scored.values.mean(axis=0) for one in seeds]),
    )
