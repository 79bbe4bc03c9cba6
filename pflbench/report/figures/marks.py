"""Series of a figure drawn with matplotlib, each in the look of its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pflbench.report.figures.panels import PRINTED, Drawing, Panel, Series
from pflbench.report.looks import Look, looks

_STACKED = ("", "////")
"""The hatches of bars on each other, in turn."""
_LEGIBLE = 0.075
"""The share of the highest bar that a part of one needs for a number in it."""
_STEPS = (1, 2, 5, 10)
"""Steps of the numbers along an axis, times a power of ten."""
_BESIDE = 0.6
"""The room left of the first and right of the last of what stands 1 apart."""
_MARKED = 8
"""About so many markers along a line that has some."""
_LIGHT = 0.6
"""Shades lighter than that have dark numbers on them."""
PERCENT = "(%)"
"""End of the name of an axis of percentages."""
MANY = 10_000
"""From here on numbers along the first axis are written in thousands."""


Looks = Mapping[str, Look]


def looks_of(drawing: Drawing) -> Looks:
    """Look of each label's series; the paper's numbers look like their row."""
    everything = [series for panel in drawing.panels for series in panel.series]
    there = dict.fromkeys(series.like or series.label for series in everything)
    return looks((*(label for label in drawing.order if label in there), *there))


def draw_panel(ax: Axes, panel: Panel, drawing: Drawing, looks: Looks) -> None:
    """Draw a panel's series, and number its axes."""
    hues = [hue for series in panel.series for hue in series.hues]
    for series in panel.series:
        if series.mark != "stacked":
            _add(ax, series, looks[series.like or series.label], hues)
    _stack(ax, [series for series in panel.series if series.mark == "stacked"])
    if hues:
        assert ax.figure is not None
        beside = ax.inset_axes((1.04, 0.0, 0.05, 1.0))
        colorbar = ax.figure.colorbar(ax.collections[0], cax=beside, label=drawing.hue)
        colorbar.ax.yaxis.set_major_locator(MaxNLocator(4, integer=True, steps=_STEPS))
    for place in panel.separators:
        ax.axvline(place, color="0.5", linewidth=0.6, linestyle="--")
    _within_percent(ax, drawing)
    if panel.span:
        ax.set_ylim(*panel.span)
    if panel.ticks:
        ax.set_xticks(range(len(panel.ticks)), panel.ticks)
        ax.set_xlim(-_BESIDE, len(panel.ticks) - 1 + _BESIDE)
    else:
        _number(ax, panel)
    if not panel.series:
        ax.set(xticks=[], yticks=[])
        ax.text(0.5, 0.5, "nothing done", ha="center", va="center", transform=ax.transAxes)


def _number(ax: Axes, panel: Panel) -> None:
    """Round numbers along both axes; small and large ones are short."""
    whole = all(float(point.x).is_integer() for series in panel.series for point in series.points)
    numbers(ax, 6, whole)
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    ax.ticklabel_format(axis="y", style="sci", scilimits=(-2, 5))
    if max(map(abs, ax.get_xlim())) >= MANY:
        ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")


def _within_percent(ax: Axes, drawing: Drawing) -> None:
    """End axes of percentages at 0 and 100; marks and lines at these ends are drawn whole."""
    if drawing.x.endswith(PERCENT):
        low, high = ax.get_xlim()
        ax.set_xlim(max(low, 0), min(high, 100))
    if drawing.y.endswith(PERCENT):
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, 0), min(high, 100))
        for line in ax.lines:
            values = np.asarray(line.get_ydata())
            line.set_clip_on(not len(values) or not all(0 <= y <= 100 for y in values))


def numbers(ax: Axes, most: int, whole: bool) -> None:
    """About so many numbers along the first axis."""
    ax.xaxis.set_major_locator(MaxNLocator(most, integer=whole, steps=_STEPS))


def _add(ax: Axes, series: Series, look: Look, hues: Sequence[float]) -> None:
    if series.mark == "cloud":
        _cloud(ax, series, look.marker, hues)
    elif series.mark == "spike":
        ax.axvline(series.points[0].x, color=look.color, linestyle="--", label=series.label)
    elif series.mark == "bars":
        _bars(ax, series, look)
    elif series.mark == "printed":
        _printed(ax, series, look)
    else:
        _points(ax, series, look)


def _numbers(series: Series) -> tuple[list[float], list[float], list[float]]:
    """Coordinates of the points, and their spreads."""
    y = [float("nan") if point.y is None else point.y for point in series.points]
    return [point.x for point in series.points], y, [point.spread or 0.0 for point in series.points]


def _bars(ax: Axes, series: Series, look: Look) -> None:
    x, y, around = _numbers(series)
    spread: Any = {"yerr": around, "capsize": 1.5, "error_kw": {"linewidth": 0.8}} if any(around) else {}
    shade: Any = {"color": look.color, "alpha": 0.55, "hatch": look.hatch, "edgecolor": "white", "linewidth": 0}
    ax.bar(x, y, series.width, label=series.label, **shade, **spread)


def _points(ax: Axes, series: Series, look: Look) -> None:
    """Points alone, with their spread, or joined by a line with a band around it."""
    x, y, around = _numbers(series)
    color: Any = {"color": look.color, "label": series.label}
    if series.mark in ("points", "mean") or len(x) == 1:
        drawn = look.line if series.mark == "points" else ""
        line: Any = {"marker": look.marker, "markersize": 3, "linestyle": drawn, "linewidth": 1, "capsize": 2}
        ax.errorbar(x, y, around if any(around) else None, **line, **color)
    else:
        often = max(1, len(x) // _MARKED)
        marks: Any = {"marker": look.marker, "markersize": 2.8, "markevery": often} if look.marked else {}
        ax.plot(x, y, linestyle=look.line, linewidth=1.0 if look.marked else 1.2, **marks, **color)
        if any(around):
            low, high = ([b + side * s for b, s in zip(y, around, strict=True)] for side in (-1, 1))
            ax.fill_between(x, low, high, color=look.color, alpha=0.2, linewidth=0)


def _stack(ax: Axes, stacked: Sequence[Series]) -> None:
    """Bars on each other, from dark to light, as classes have an order and no names; every second one is hatched.

    So neighbors differ by more than a shade. Each bar has its number in it where there is room.
    """
    shades = matplotlib.colormaps["cividis"]
    below: dict[float, float] = {}
    parts: list[tuple[Any, float, str, Any]] = []
    for i, series in enumerate(stacked):
        there = [(point.x, point.y) for point in series.points if point.y]
        color = shades(i / max(1, len(stacked) - 1))
        light = _brightness(color) > _LIGHT
        bars: Any = {"color": color, "edgecolor": "0.15" if light else "white", "linewidth": 0.4}
        bars |= {"hatch": _STACKED[i % len(_STACKED)], "label": series.label}
        made = ax.bar(
            *([x for x, _ in there], [y for _, y in there], series.width),
            bottom=[below.get(x, 0.0) for x, _ in there], **bars,
        )  # fmt: skip
        if not there:  # for the legend
            ax.bar([0.0], [0.0], **bars)
        for bar, (place, height) in zip(made, there, strict=True):
            below[place] = below.get(place, 0.0) + height
            parts.append((bar, height, series.label.split()[-1], color))
    room = max(below.values(), default=0.0) * _LEGIBLE
    for bar, height, name, color in parts:
        if height >= room:
            x, y = bar.get_x() + bar.get_width() / 2, bar.get_y() + height / 2
            ink = "black" if _brightness(color) > _LIGHT else "white"
            behind: Any = {"facecolor": color, "edgecolor": "none", "boxstyle": "square,pad=0.15"}
            ax.text(x, y, name, ha="center", va="center", fontsize=5.5, color=ink, bbox=behind)


def _brightness(color: Any) -> float:
    """Of a color in gray, from 0, black, to 1 (ITU-R BT.601)."""
    red, green, blue = color[:3]
    return float(0.299 * red + 0.587 * green + 0.114 * blue)


def _cloud(ax: Axes, series: Series, marker: str, hues: Sequence[float]) -> None:
    shades: Any = {"c": series.hues, "vmin": min(hues), "vmax": max(hues), "cmap": "viridis"}
    ax.scatter(
        [p.x for p in series.points], [p.y or 0.0 for p in series.points], marker=marker, s=9, linewidths=0, **shades
    )
    # The legend tells methods apart by their markers: its colors would be those of single points.
    ax.plot([], [], color="0.4", marker=marker, markersize=4, linestyle="", label=series.label)


def _printed(ax: Axes, series: Series, look: Look) -> None:
    """Hollow: in the row's own form where they alone are there of it, else all alike, beside ours."""
    alone = series.label != PRINTED  # which is the label of several colors
    hollow: Any = {"marker": look.marker if alone else "D", "markersize": 3.5, "markerfacecolor": "white"}
    hollow |= {"linestyle": "", "linewidth": 0.8}
    x, y, around = _numbers(series)
    ax.errorbar(x, y, around, color=look.color, capsize=0, **hollow)
    ax.plot([], [], color=look.color if alone else "0.3", label=series.label, **hollow)
