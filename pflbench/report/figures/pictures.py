"""Pictures of figures. The same numbers give the same bytes: no dates, no random ids."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pflbench.report.figures.panels import Drawing, Panel, Series

METADATA: Mapping[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}
"""The formats there are, and what their files shall not say."""
STYLE = {
    "axes.titlesize": 9,
    "font.size": 8,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "svg.hashsalt": "pflbench",
    "text.parse_math": False,
}
_WIDTH, _HEIGHT = 3.6, 2.7
_LINE, _LEGEND, _MARGIN = 0.15, 0.25, 0.55
_NARROWEST = 6.8
_MARKERS = "o^sDvPX*"


_Looks = Mapping[str, tuple[Any, str]]
"""How the series of each label look: their color and, in a cloud, their marker."""


def picture(drawing: Drawing, format: str) -> bytes:
    """The figure as a file of this format."""
    with style.context(["default", STYLE]):  # whatever this user's own settings are
        file = io.BytesIO()
        _figure(drawing).savefig(file, format=format, metadata=METADATA[format])
        return file.getvalue()


def _figure(drawing: Drawing) -> Figure:
    across = drawing.across
    down = -(-len(drawing.panels) // across)
    width = max(_NARROWEST, across * _WIDTH)
    lines = [line for note in drawing.notes for line in textwrap.wrap(note, int(width * 17))]
    labels = drawing.labels
    entries = {label: f"{label}: {beside}" if (beside := drawing.beside.get(label)) else label for label in labels}
    # As many entries of the legend beside each other as there is room for, all as wide as the longest.
    widest = max(1.3, 0.4 + 0.06 * max(map(len, entries.values()), default=0))
    columns = max(1, min(len(entries), int(width / widest)))
    below = _MARGIN + _LEGEND * -(-len(labels) // columns) + _LINE * len(lines)
    height = _MARGIN + down * _HEIGHT + below
    figure = Figure(figsize=(width, height))
    figure.suptitle(drawing.title, y=1 - 0.15 / height, va="top", fontsize=11)
    axes = figure.subplots(down, across, squeeze=False)
    figure.subplots_adjust(
        left=0.8 / width,
        right=1 - 0.15 / width,
        top=1 - 1.2 * _MARGIN / height,
        bottom=(below + 0.1) / height,
        wspace=0.32,
        hspace=0.35,
    )
    twenty = matplotlib.colormaps["tab20"]
    looks = {
        label: (f"C{i}" if len(labels) <= 10 else twenty(i % 20), _MARKERS[i % len(_MARKERS)])
        for i, label in enumerate(labels)
    }
    for panel, ax in zip(drawing.panels, axes.flat, strict=False):
        _fill(ax, panel, drawing, looks)
    for ax in axes.flat[len(drawing.panels) :]:
        ax.set_axis_off()
    _legend(figure, entries, (_LINE * len(lines) + 0.05) / height, columns)
    figure.text(0.1 / width, 0.06 / height, "\n".join(lines), fontsize=6.5, va="bottom", linespacing=1.35)
    return figure


def _legend(figure: Figure, entries: Mapping[str, str], bottom: float, columns: int) -> None:
    """One for all panels, in the order of the labels; `entries`: what to write for each of them."""
    found = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in reversed(figure.axes)]
    handles = {label: handle for of_panel in found for handle, label in of_panel}  # those of the first panel
    if handles:
        figure.legend(
            handles=[handles[label] for label in entries],
            labels=list(entries.values()),
            loc="lower center",
            bbox_to_anchor=(0.5, bottom),
            ncols=columns,
        )


def _fill(ax: Axes, panel: Panel, drawing: Drawing, looks: _Looks) -> None:
    ax.set_title(panel.title)
    ax.set_xlabel(drawing.x)
    ax.set_ylabel(drawing.y)
    hues = [hue for series in panel.series for hue in series.hues]
    for series in panel.series:
        _add(ax, series, *looks[series.label], hues)
    if hues:
        assert ax.figure is not None
        colorbar = ax.figure.colorbar(ax.collections[0], ax=ax, label=drawing.hue)
        colorbar.ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    whole = all(float(point.x).is_integer() for series in panel.series for point in series.points)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=whole))
    if not panel.series:
        ax.set(xticks=[], yticks=[])
        ax.text(0.5, 0.5, "nothing done", ha="center", va="center", transform=ax.transAxes)


def _add(ax: Axes, series: Series, color: Any, marker: str, hues: Sequence[float]) -> None:
    x = [point.x for point in series.points]
    y = [float("nan") if point.y is None else point.y for point in series.points]
    around = [point.spread or 0.0 for point in series.points]
    if series.mark == "cloud":
        shades: Any = {"c": series.hues, "vmin": min(hues), "vmax": max(hues), "cmap": "viridis"}
        ax.scatter(x, y, marker=marker, s=14, linewidths=0, **shades)
        # The legend tells methods apart by their markers: its colors would be those of single points.
        ax.plot([], [], color="0.4", marker=marker, markersize=4, linestyle="", label=series.label)
    elif series.mark == "spike":
        ax.axvline(x[0], color=color, linestyle="--", label=series.label)
    elif series.mark == "bars":
        ax.bar(x, y, series.width, color=color, alpha=0.5, label=series.label)
    elif series.mark == "points":
        ax.errorbar(x, y, around, color=color, marker="o", markersize=3, linewidth=1, capsize=2, label=series.label)
    else:
        alone = "o" if len(x) == 1 else ""
        ax.plot(x, y, color=color, linewidth=1.2, marker=alone, markersize=3, label=series.label)
        if any(around):
            low, high = ([b + side * s for b, s in zip(y, around, strict=True)] for side in (-1, 1))
            ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
