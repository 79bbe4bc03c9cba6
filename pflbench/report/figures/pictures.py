"""Pictures of figures. The same numbers give the same bytes: no dates, no random ids."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "font.size": 8,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # fonts as such, which journals ask for
    "savefig.dpi": 150,
    "svg.hashsalt": "pflbench",
    "text.parse_math": False,
}
_WIDTH, _HEIGHT = 3.6, 2.7
_LINE, _LEGEND, _MARGIN = 0.15, 0.25, 0.55
_NARROWEST = 6.8
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""Told apart by color-blind readers, too (Okabe and Ito, but for a yellow that is too light for a line)."""
_MARKERS = "o^sDvPX*"
_LINES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    (0, (5, 1)),
    (0, (3, 1, 1, 1)),
    (0, (7, 3)),
    (0, (1, 1)),
    (0, (3, 1, 1, 1, 1, 1)),
)
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "---", "+++", "ooo")


class _Look(NamedTuple):
    """How the series of a label look: in gray, lines, markers and hatches still tell them apart."""

    color: str
    marker: str
    line: Any
    hatch: str

    @classmethod
    def of(cls, i: int) -> _Look:
        """The look of the i-th label: as many as colors, and then again with other lines, markers and hatches."""
        other = i + i // len(_COLORS)
        return cls(
            *(_COLORS[i % len(_COLORS)], _MARKERS[other % len(_MARKERS)]),
            *(_LINES[other % len(_LINES)], _HATCHES[other % len(_HATCHES)]),
        )


_Looks = Mapping[str, _Look]


def picture(drawing: Drawing, format: str, *, caption: bool = False) -> bytes:
    """The figure as a file of this format. `caption`: its title above it, and its notes below it."""
    with style.context(["default", STYLE]):  # whatever this user's own settings are
        file = io.BytesIO()
        _figure(drawing, caption).savefig(file, format=format, metadata=METADATA[format])
        return file.getvalue()


def _figure(drawing: Drawing, caption: bool) -> Figure:
    across = drawing.across
    down = -(-len(drawing.panels) // across)
    width = max(_NARROWEST, across * _WIDTH)
    lines = [line for note in drawing.notes if caption for line in textwrap.wrap(note, int(width * 17))]
    labels = drawing.labels
    entries = {label: f"{label}: {beside}" if (beside := drawing.beside.get(label)) else label for label in labels}
    # As many entries of the legend beside each other as there is room for, all as wide as the longest.
    widest = max(1.3, 0.4 + 0.06 * max(map(len, entries.values()), default=0))
    columns = max(1, min(len(entries), int(width / widest)))
    below = _MARGIN + _LEGEND * -(-len(labels) // columns) + _LINE * len(lines)
    above = 1.2 * _MARGIN if caption else 0.3 if any(panel.title for panel in drawing.panels) else 0.1
    height = above + down * _HEIGHT + below
    figure = Figure(figsize=(width, height))
    if caption:
        figure.suptitle(drawing.title, y=1 - 0.15 / height, va="top", fontsize=11)
    axes = figure.subplots(down, across, squeeze=False)
    figure.subplots_adjust(
        left=0.8 / width,
        right=1 - 0.15 / width,
        top=1 - above / height,
        bottom=(below + 0.1) / height,
        wspace=0.32,
        hspace=0.35,
    )
    looks = _looks(drawing)
    for panel, ax in zip(drawing.panels, axes.flat, strict=False):
        _fill(ax, panel, drawing, looks)
    for ax in axes.flat[len(drawing.panels) :]:
        ax.set_axis_off()
    _legend(figure, entries, (_LINE * len(lines) + 0.05) / height, columns)
    if lines:
        figure.text(0.1 / width, 0.06 / height, "\n".join(lines), fontsize=6.5, va="bottom", linespacing=1.35)
    return figure


def _looks(drawing: Drawing) -> _Looks:
    """How each label's series look, and those that only the paper's numbers are there of."""
    alike = {series.like: None for panel in drawing.panels for series in panel.series if series.like}
    return {label: _Look.of(i) for i, label in enumerate(dict.fromkeys((*drawing.labels, *alike)))}


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
        if series.mark != "stacked":
            _add(ax, series, looks[series.like or series.label], hues)
    _stack(ax, [series for series in panel.series if series.mark == "stacked"])
    if hues:
        assert ax.figure is not None
        colorbar = ax.figure.colorbar(ax.collections[0], ax=ax, label=drawing.hue)
        colorbar.ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if panel.span:
        ax.set_ylim(*panel.span)
    if panel.ticks:
        ax.set_xticks(range(len(panel.ticks)), panel.ticks)
        return
    whole = all(float(point.x).is_integer() for series in panel.series for point in series.points)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=whole))
    if not panel.series:
        ax.set(xticks=[], yticks=[])
        ax.text(0.5, 0.5, "nothing done", ha="center", va="center", transform=ax.transAxes)


def _add(ax: Axes, series: Series, look: _Look, hues: Sequence[float]) -> None:
    color, marker = look.color, look.marker
    x = [point.x for point in series.points]
    y = [float("nan") if point.y is None else point.y for point in series.points]
    around = [point.spread or 0.0 for point in series.points]
    if series.mark == "cloud":
        _cloud(ax, series, marker, hues)
    elif series.mark == "spike":
        ax.axvline(x[0], color=color, linestyle="--", label=series.label)
    elif series.mark == "bars":
        bars: Any = {"yerr": around, "capsize": 2, "error_kw": {"linewidth": 1}} if any(around) else {}
        shade: Any = {"color": color, "alpha": 0.55, "hatch": look.hatch, "edgecolor": "white", "linewidth": 0}
        ax.bar(x, y, series.width, label=series.label, **shade, **bars)
    elif series.mark == "printed":
        _printed(ax, series, color)
    elif series.mark == "points":
        line: Any = {"marker": marker, "markersize": 3, "linestyle": look.line, "linewidth": 1, "capsize": 2}
        ax.errorbar(x, y, around, color=color, label=series.label, **line)
    else:
        alone = marker if len(x) == 1 else ""
        ax.plot(x, y, color=color, linestyle=look.line, linewidth=1.2, marker=alone, markersize=3, label=series.label)
        if any(around):
            low, high = ([b + side * s for b, s in zip(y, around, strict=True)] for side in (-1, 1))
            ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def _stack(ax: Axes, stacked: Sequence[Series]) -> None:
    """Bars on each other. Their many colors go from dark to light; classes have an order and no names."""
    shades = matplotlib.colormaps["cividis"]
    below: dict[float, float] = {}
    for i, series in enumerate(stacked):
        x, y = [point.x for point in series.points], [point.y or 0.0 for point in series.points]
        color = shades(i / max(1, len(stacked) - 1))
        bars: Any = {"color": color, "label": series.label, "edgecolor": "white", "linewidth": 0.3}
        ax.bar(x, y, series.width, bottom=[below.get(place, 0.0) for place in x], **bars)
        for place, height in zip(x, y, strict=True):
            below[place] = below.get(place, 0.0) + height


def _cloud(ax: Axes, series: Series, marker: str, hues: Sequence[float]) -> None:
    shades: Any = {"c": series.hues, "vmin": min(hues), "vmax": max(hues), "cmap": "viridis"}
    ax.scatter(
        [p.x for p in series.points], [p.y or 0.0 for p in series.points], marker=marker, s=14, linewidths=0, **shades
    )
    # The legend tells methods apart by their markers: its colors would be those of single points.
    ax.plot([], [], color="0.4", marker=marker, markersize=4, linestyle="", label=series.label)


def _printed(ax: Axes, series: Series, color: str) -> None:
    hollow: Any = {"marker": "D", "markersize": 4, "markerfacecolor": "white", "linestyle": "", "linewidth": 1}
    around = [point.spread or 0.0 for point in series.points]
    ax.errorbar(
        [p.x for p in series.points], [p.y or 0.0 for p in series.points], around, color=color, capsize=0, **hollow
    )
    one = series.label.startswith(series.like)  # else the label is that of several colors
    ax.plot([], [], color=color if one else "0.3", label=series.label, **hollow)
