"""Mean ranks along an axis, each with its name at a side, and bars over those that are not apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from pflbench.report.figures.marks import Looks
from pflbench.report.figures.panels import DIFFERENCE, Panel

_HEAD, _STEP, _BAR = 2.6, 1.0, 0.42
"""Room over the axis, between names, and between bars; a name is about 1 high."""
_OUT = 0.03
"""How far beyond the axis names begin, in its lengths."""
_SMALL = 7
"""Points of names and numbers."""


def of_ranks(panel: Panel) -> bool:
    """Whether a panel shows mean ranks."""
    return any(series.mark == "rank" for series in panel.series)


def draw(ax: Axes, panel: Panel, looks: Looks) -> None:
    """Draw the rows, from the best on, in the axes' own coordinates: ranks to the right, names downwards."""
    series, difference = panel.series, panel.series[0].numbers[DIFFERENCE]
    means, methods = [one.points[0].x for one in series], len(series)
    bars = groups(means, difference)
    ax.set_axis_off()
    below = 0.7 + _BAR * len(bars)
    depth = below + _STEP * ((methods + 1) // 2) - 0.4
    ax.set(xlim=(1, max(methods, 1 + difference)), ylim=(-depth, _HEAD))
    _axis(ax, methods, difference)
    for level, (first, last) in enumerate(bars):
        y = -0.45 - _BAR * level
        ends: Any = {"linewidth": 2.5, "color": "0.15", "solid_capstyle": "round"}
        ax.plot([means[first], means[last]], [y, y], **ends)
    left = (methods + 1) // 2
    out = _OUT * (ax.get_xlim()[1] - 1)
    for i, (one, mean) in enumerate(zip(series, means, strict=True)):
        low, color = i < left, looks[one.label].color
        y = -below - _STEP * (i if low else methods - 1 - i)
        end = 1 - out if low else ax.get_xlim()[1] + out
        ax.plot([mean, mean, end], [0, y, y], color=color, linewidth=0.9, clip_on=False)
        ax.plot([mean], [0], marker="o", markersize=3, color=color, clip_on=False)
        said = f"{one.label}  {mean:.2f} " if low else f" {mean:.2f}  {one.label}"
        ax.text(end, y, said, ha="right" if low else "left", va="center", fontsize=_SMALL)


def _axis(ax: Axes, methods: int, difference: float) -> None:
    """The ranks, and over them how far apart two of them must be."""
    line: Any = {"color": "0.15", "linewidth": 0.8, "clip_on": False}
    ax.plot([1, methods], [0, 0], **line)
    every = max(1, methods // 12)
    for rank in range(1, methods + 1, every):
        ax.plot([rank, rank], [0, 0.2], **line)
        ax.text(rank, 0.35, str(rank), ha="center", va="bottom", fontsize=_SMALL)
    ax.plot([1, 1, 1, 1 + difference, 1 + difference, 1 + difference], [1.6, 2.0, 1.8, 1.8, 2.0, 1.6], **line)
    ax.text(1, 2.1, f"critical difference {difference:.2f}", ha="left", va="bottom", fontsize=_SMALL)
    ax.text(ax.get_xlim()[1], 2.1, "mean rank, 1 is best", ha="right", va="bottom", fontsize=_SMALL)


def groups(means: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """The largest groups of mean ranks, in ascending order, that differ by less than this: their first and last."""
    found: list[tuple[int, int]] = []
    for first, mean in enumerate(means):
        last = max(i for i, other in enumerate(means) if other - mean < difference)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
