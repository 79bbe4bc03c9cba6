"""What a figure shows, as plain numbers: panels of series of points. One shape for all kinds of figures."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Literal, NamedTuple

Mark = Literal["points", "line", "bars", "spike"]


class Point(NamedTuple):
    """A place, the spread around `y`, and how many values it stands for. None: there is none."""

    x: float
    y: float | None
    spread: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Series:
    """Points under one label; `width`: that of bars. A spike is a density whose values are all the same, at `x`."""

    label: str
    mark: Mark
    points: tuple[Point, ...]
    width: float = 0.0


@dataclass(frozen=True)
class Panel:
    """Series over common axes."""

    title: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Drawing:
    """A whole figure: the axes' names, the panels with so many `across`, and the lines under it.

    `order`: labels that stand before others, in this order.
    """

    suite: str
    title: str
    profile: str
    x: str
    y: str
    panels: tuple[Panel, ...]
    across: int
    notes: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all series, each once."""
        there = dict.fromkeys(series.label for panel in self.panels for series in panel.series)
        return tuple(dict.fromkeys((*(label for label in self.order if label in there), *there)))


def to_csv(drawing: Drawing) -> str:
    """A line per point, at full precision; the axes' names are the headers of its two numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["figure", "profile", "panel", "series", drawing.x, drawing.y, "spread", "n"])
    for panel in drawing.panels:
        for series in panel.series:
            for point in series.points:
                numbers = ["" if value is None else repr(value) for value in point]
                writer.writerow([drawing.suite, drawing.profile, panel.title, series.label, *numbers])
    return text.getvalue()
