"""A picture of a federation: how many rows of each class each client has, and how many in all."""

from __future__ import annotations

import io
import textwrap

import matplotlib
import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pflbench.output import plain
from pflbench.report.figures.pictures import METADATA, STYLE
from pflbench.report.holdings import Holdings, Ints
from pflbench.report.reading import Floats

CIRCLES = (60, 30)
"""With more clients, or more classes, counts are a heat map."""
_CELL = 0.21
"""Inches between two clients, and between two classes."""
_LEFT, _RIGHT, _TOP, _BOTTOM, _SIZES, _GAP = 0.75, 1.15, 0.45, 0.55, 0.8, 0.1
"""Inches around the cells; the bars of sizes; and between bars and cells."""
_WIDEST, _HIGHEST = 9.0, 6.0
"""Inches of a heat map's cells."""
_LINE = 0.14
_SUPPORT, _QUERY, _HELD_OUT = "C0", "C1", "0.88"
_DOTS_PER_INCH = 72.0
_FINE = 150
"""Dots of an image in an inch."""


def holdings_picture(of: Holdings, format: str, *, query: bool = False) -> bytes:
    """As a file of this format. Counts are those of support rows, or with `query` of query rows."""
    with style.context(["default", STYLE, {"figure.dpi": _FINE}]):  # whatever this user's own settings are
        file = io.BytesIO()
        _figure(of, query).savefig(file, format=format, metadata=METADATA[format])
        return file.getvalue()


def _figure(of: Holdings, query: bool) -> Figure:
    numbers = of.query if query else of.support
    circles = of.clients <= CIRCLES[0] and of.classes <= CIRCLES[1]
    across = max(2.4, of.clients * _CELL) if circles else min(_WIDEST, max(4.0, of.clients * _CELL))
    down = max(0.6, of.classes * _CELL) if circles else min(_HIGHEST, max(1.5, of.classes * _CELL))
    width = _LEFT + across + _RIGHT
    lines = [line for said in _notes(of) for line in textwrap.wrap(said, int(width * 17))]
    below = _BOTTOM + _LINE * len(lines)
    height = _TOP + _SIZES + _GAP + down + below
    figure = Figure(figsize=(width, height))
    part = "query" if query else "support"
    title = textwrap.shorten(plain(of.title), int(width * 13), placeholder="…")
    figure.suptitle(title, x=_LEFT / width, y=1 - 0.12 / height, ha="left", va="top", fontsize=9)
    cells = figure.add_axes((_LEFT / width, below / height, across / width, down / height))
    bars = figure.add_axes(
        (_LEFT / width, (below + down + _GAP) / height, across / width, _SIZES / height), sharex=cells
    )
    _bars(bars, of, query)
    aside = 1 - (_RIGHT - 0.15) / width
    if circles:
        _circles(cells, numbers, across / of.clients, down / of.classes)
        _band(cells, of)
        circles_of, counts = _scale(cells, numbers, across / of.clients, down / of.classes)
        cells.legend(
            circles_of,
            counts,
            title=f"{part} rows",
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            borderaxespad=0.0,
            labelspacing=1.1,
        )
    else:
        image = cells.imshow(
            np.ma.masked_equal(numbers.T, 0), aspect="auto", interpolation="nearest", cmap=_blues(), vmin=0
        )
        bar = figure.add_axes((aside, below / height, 0.12 / width, down / height))
        figure.colorbar(image, cax=bar, label=f"{part} rows").ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    cells.set(xlim=(-0.5, of.clients - 0.5), ylim=(of.classes - 0.5, -0.5), xlabel="client", ylabel="class")
    _ticks(cells, of, across / of.clients, down / of.classes)
    figure.text(0.1 / width, 0.06 / height, "\n".join(lines), fontsize=6.5, va="bottom", linespacing=1.35)
    return figure


def _notes(of: Holdings) -> list[str]:
    held_out = [] if of.training.all() else ["Gray: held-out clients."]
    return [*held_out, of.settings, str(of.overlaps), f"Content: data {of.hash}, split {of.split}."]


def _bars(ax: Axes, of: Holdings, query: bool) -> None:
    """Sizes; of one part only where clients share what they are scored on, as that is much more than their support."""
    x, below = np.arange(of.clients), np.zeros(of.clients, dtype=np.int64)
    parts = {"support": (of.support.sum(1), _SUPPORT), "query": (of.query.sum(1), _QUERY)}
    if of.overlaps.query:
        del parts["support" if query else "query"]
    for label, (rows, color) in parts.items():
        ax.bar(x, rows, 0.8, bottom=below, color=color, label=label)
        below = below + rows
    ax.set_ylabel("rows")
    ax.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    ax.tick_params(labelbottom=False, length=2)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, handlelength=1.0)
    _band(ax, of)


def _band(ax: Axes, of: Holdings) -> None:
    """Mark the held-out clients."""
    for client in np.flatnonzero(~of.training):
        ax.axvspan(client - 0.5, client + 0.5, color=_HELD_OUT, linewidth=0, zorder=0)


def _circles(ax: Axes, numbers: Ints, across: float, down: float) -> None:
    """A circle for each client and class, whose area is the count; the largest one fills a cell."""
    x, y = np.nonzero(numbers)
    ax.scatter(x, y, s=_areas(numbers[x, y], int(numbers.max()), across, down), color=_SUPPORT, linewidths=0, zorder=2)


def _areas(numbers: Ints, most: int, across: float, down: float) -> Floats:
    """In the square of points, as matplotlib takes them."""
    largest = (0.95 * min(across, down, 1.4 * _CELL) * _DOTS_PER_INCH) ** 2
    areas: Floats = largest * numbers / max(most, 1)
    return areas


def _scale(ax: Axes, numbers: Ints, across: float, down: float) -> tuple[list[Artist], list[str]]:
    """Circles for a legend, and the counts that they stand for."""
    most = int(numbers.max())
    counts = sorted({most, -(-most // 4), -(-most // 16)}, reverse=True)
    areas = _areas(np.array(counts), most, across, down)
    handles: list[Artist] = [ax.scatter([], [], s=area, color=_SUPPORT, linewidths=0) for area in areas]
    return handles, [f"{n:,}" for n in counts]


def _blues() -> ListedColormap:
    """From a blue that is told from white, where there are no rows, to a dark one."""
    return ListedColormap(matplotlib.colormaps["Blues"](np.linspace(0.2, 1, 256)))


def _ticks(ax: Axes, of: Holdings, across: float, down: float) -> None:
    """As many labels as there is room for."""
    widest = 0.07 * len(str(of.clients - 1)) + 0.06
    for axis, number, room, least in ((ax.xaxis, of.clients, across, widest), (ax.yaxis, of.classes, down, 0.18)):
        steps = (one * 10**zeros for zeros in range(9) for one in (1, 2, 5))
        step = next(step for step in steps if step * room >= least)
        axis.set_ticks(range(0, number, step))
    ax.tick_params(length=2)
