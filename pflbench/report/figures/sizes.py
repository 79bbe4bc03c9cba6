"""How many rows clients have, over many partitions of a dataset's published shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.partitions.slicing import RandomSlicing, size_law
from pflbench.report.figures.panels import Panel, Point, Series
from pflbench.report.reading import Floats

Whole = npt.NDArray[np.int64]


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
        """How many types a client holds."""
        return {"labels": self.classes // 2, "concepts": self.classes, "none": self.types}[self.partition.skew]

    def sizes(self, seeds: Sequence[int]) -> Whole:
        """All clients' sizes in the partitions of these seeds."""
        kind = np.repeat(np.arange(self.types), self.per_type)
        labels = kind // (self.types // self.classes)
        found = (
            self.partition(labels, None if self.types == self.classes else kind, self.clients, seed) for seed in seeds
        )
        return np.array([len(rows) for partition in found for rows in partition])

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
