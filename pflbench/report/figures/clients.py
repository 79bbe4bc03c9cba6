"""Figures of clients: accuracy against their size, densities of a metric, sizes in many partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.partitions.slicing import RandomSlicing, size_law
from pflbench.errors import PflbenchError, unknown
from pflbench.report.cells import SeedScores
from pflbench.report.figures.panels import Panel, Point, Series
from pflbench.report.reading import Floats, by_client, support
from pflbench.result import RunResult
from pflbench.suite.figure import Kde

POINTS = 201
CUT = 3
"""Bandwidths that a curve goes on beyond the outermost values."""
_ALIKE = 1e-6
_WHOLE = 1e-3


def scatter(rows: Mapping[str, Sequence[SeedScores]], bins: int) -> tuple[Series, ...]:
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


def densities(prefix: str, runs: Sequence[RunResult], figure: Kde, rare: list[str]) -> Iterator[Series]:
    """The density in each of the figure's rounds, over the clients of all these runs; `rare` is told what they lack."""
    # Runs that end earlier than asked for show their last round instead.
    for round in sorted({min(round, run.spec.rounds) for round in figure.rounds for run in runs[:1]}):
        found = [values for run in runs if len(values := _scaled(run, figure, round))]
        if len(found) < len(runs):
            some = f" (in {len(runs) - len(found)} of {len(runs)} runs)" if found else ""
            rare.append(f"{prefix}round {round}{some}")
        together = np.concatenate([values[np.isfinite(values)] for values in found] or [np.empty(0)])
        if len(together):
            yield density(f"{prefix}round {round}", together)


def density(label: str, values: Floats) -> Series:
    """A Gaussian kernel density, with Scott's bandwidth; a spike where all values are the same."""
    from scipy.stats import gaussian_kde  # takes a while to import

    if np.ptp(values) <= _ALIKE * np.abs(values).max():
        return Series(label, "spike", (Point(float(values.mean()), None, None, len(values)),))
    kernel = gaussian_kde(values)
    beyond = CUT * kernel.factor * values.std(ddof=1)
    x = np.linspace(values.min() - beyond, values.max() + beyond, POINTS)
    points = (Point(float(a), float(b), None, len(values)) for a, b in zip(x, kernel(x), strict=True))
    return Series(label, "line", tuple(points))


def dimension(run: RunResult, round: int) -> int:
    """Number of parameters of a head, from pFedVEM's metrics: tau * (trace + deviation)."""
    tau, trace, deviation = (_metric(run, name, round) for name in ("tau", "trace", "deviation"))
    products = tau * (trace + deviation)
    d = round_to_whole(products[np.isfinite(products)])
    if d is None:
        raise PflbenchError(
            f"Run {run.spec.id} does not tell the dimension of its heads: it has not pFedVEM's full tau."
        )
    return d


def round_to_whole(products: Floats) -> int | None:
    """The positive whole number that all of these are up to rounding; None if there is none."""
    whole = round(float(np.median(products))) if len(products) else 0
    return whole if whole > 0 and np.all(np.abs(products / whole - 1) < _WHOLE) else None


def _scaled(run: RunResult, figure: Kde, round: int) -> Floats:
    values = _metric(run, figure.metric, round)
    if not len(values) or figure.scale == "none":
        return values
    return values / (np.nansum(values) if figure.scale == "share" else dimension(run, round))


def _metric(run: RunResult, name: str, round: int) -> Floats:
    """A metric of all clients in a round; empty if it is not stored. Raises `UsageError` for one the run never has."""
    known = {m.name for m in run.metrics}
    if known and name not in known:
        raise unknown(f"metric of {run.spec.method.name}", name, known)
    return np.array([m.value for m in run.metrics if m.name == name and m.round == round])


class Slicing(NamedTuple):
    """A column of the figure: the number of clients, the partition, and how a dataset is labelled.

    `types` are the labels themselves, or their subclasses, equally many of each; there are `per_type` rows of each.
    """

    title: str
    clients: int
    partition: RandomSlicing
    classes: int
    types: int
    per_type: int

    @property
    def held(self) -> int:
        """Number of types that a client holds."""
        return {"labels": self.classes // 2, "concepts": self.classes, "none": self.types}[self.partition.skew]

    def sizes(self, seeds: Sequence[int]) -> npt.NDArray[np.int64]:
        """All clients' sizes in the partitions of these seeds."""
        holders = self.clients * self.held // self.types
        found = [self.partition.lengths(self.types, self.per_type, holders, seed) for seed in seeds]
        # Holders of a type are groups of clients that divide all types among themselves: these have equal sizes.
        return self.held * np.repeat(np.concatenate(found), self.clients // holders)

    def law(self) -> Floats | None:
        """The exact probability that a client has 1, 2, … rows of each of its types; None if cuts are not random."""
        if self.partition.cuts != "random":
            return None
        rows = self.partition.rows
        per_type = self.per_type if rows is None else rows // self.types
        return size_law(per_type, self.clients * self.held // self.types)


def histogram(column: Slicing, seeds: Sequence[int], bins: int) -> Panel:
    """Densities over sizes: of the partitions that were drawn, and of the exact law summed over the same bins.

    Sizes are whole multiples of the types a client holds, so bins are, too: at most so many as asked for.
    """
    held = column.held
    blocks = column.sizes(seeds) // held
    width = -(-int(blocks.max()) // bins)
    starts = np.arange(1, int(blocks.max()) + 1, width)
    counts = np.bincount((blocks - 1) // width, minlength=len(starts))
    centers = held * (starts + (width - 1) / 2)
    scale = held * width
    drawn = tuple(
        Point(float(x), float(count / len(blocks) / scale), None, int(count))
        for x, count in zip(centers, counts, strict=True)
    )
    series = [Series("drawn", "bars", drawn, float(scale))]
    law = column.law()
    if law is not None:
        shares = np.add.reduceat(law[: len(starts) * width], starts[starts <= len(law)] - 1) / scale
        exact = tuple(Point(float(x), float(y)) for x, y in zip(centers, shares, strict=True))
        series.append(Series("exact law", "line", exact))
    return Panel(column.title, tuple(series))
