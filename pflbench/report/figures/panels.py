"""Content of a figure as plain numbers: panels of series of points. One shape for all kinds of figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from pflbench.output import plain
from pflbench.report.facts import Fact
from pflbench.report.text import in_csv

Mark = Literal["points", "line", "bars", "spike", "cloud", "printed", "stacked", "mean"]

PRINTED = "the paper"
"""The label of what the paper printed."""


class Point(NamedTuple):
    """A point, the spread of `y`, and how many values it is the mean of. None where there is no such number."""

    x: float
    y: float | None
    spread: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Series:
    """Points with a common label.

    `width` is that of bars. The mark "spike" is a density of values that are all the same: a line at `x`; "printed" are
    the paper's numbers; "stacked" are bars that stand on those of the series before; "mean" is points with spreads and
    no line.
    `like`: the label of the series whose color it has. `row`: title of the row that it shows. `hues`: for a cloud, the
    number that each point's color stands for. `numbers`: further numbers, by name.
    """

    label: str
    mark: Mark
    points: tuple[Point, ...]
    width: float = 0.0
    hues: tuple[float, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    like: str = ""
    row: str = ""


@dataclass(frozen=True)
class Panel:
    """Series over common axes.

    `ticks`: what stands at 0, 1, … of the first axis, where that is no number. `span`: the part of the second axis that
    is shown; None: all. `separators`: places of dashed lines along the first axis.
    """

    title: str
    series: tuple[Series, ...]
    ticks: tuple[str, ...] = ()
    span: tuple[float, float] | None = None
    separators: tuple[float, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """A whole figure: the names of the axes, the panels, `across` of them in a line, and the facts under it.

    `order`: labels that come first in the legend, in this order. `hue`: what the colors of clouds stand for. `beside`:
    what the legend adds to a label.
    """

    suite: str
    title: str
    profile: str
    x: str
    y: str
    panels: tuple[Panel, ...]
    across: int
    facts: tuple[Fact, ...] = ()
    order: tuple[str, ...] = ()
    hue: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """Texts of its facts."""
        return tuple(fact.text for fact in self.facts)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all series, each once."""
        there = dict.fromkeys(series.label for panel in self.panels for series in panel.series)
        return tuple(dict.fromkeys((*(label for label in self.order if label in there), *there)))


def plain_texts(drawing: Drawing) -> Drawing:
    """The drawing with its texts as they can be shown; no file of a picture can hold control characters."""
    panels = []
    for panel in drawing.panels:
        series = (replace(one, label=plain(one.label), like=plain(one.like)) for one in panel.series)
        ticks = tuple(map(plain, panel.ticks))
        panels.append(replace(panel, title=plain(panel.title), ticks=ticks, series=tuple(series)))
    return replace(
        drawing,
        title=plain(drawing.title),
        panels=tuple(panels),
        facts=tuple(fact._replace(text=plain(fact.text)) for fact in drawing.facts),
        order=tuple(map(plain, drawing.order)),
        beside={plain(label): plain(more) for label, more in drawing.beside.items()},
    )


def to_csv(drawing: Drawing) -> str:
    """A line per point, at full precision; the axes' names are the headers of its two numbers.

    Where points have colors, a column tells them, and the numbers of a series stand in each of its lines.
    """
    everything = [(panel, series) for panel in drawing.panels for series in panel.series]
    names = tuple(dict.fromkeys(name for _, series in everything for name in series.numbers))
    hue = [drawing.hue] if drawing.hue else []
    ticks = ["column"] if any(panel.ticks for panel in drawing.panels) else []
    head = ["figure", "profile", "panel", "series", drawing.x, drawing.y, "spread", "n", *hue, *names, *ticks]
    lines: list[list[object]] = [[*head]]
    for panel, series in everything:
        own = [series.numbers.get(name) for name in names]
        for i, point in enumerate(series.points):
            hues = [series.hues[i] if series.hues else None for _ in hue]
            at = [panel.ticks[round(point.x)] for _ in ticks]
            lines.append([drawing.suite, drawing.profile, panel.title, series.label, *point, *hues, *own, *at])
    return "".join(f"{in_csv(line)}\n" for line in lines)
