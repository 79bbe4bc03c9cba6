"""Places of the names of lines: at their ends, if they fit there without covering each other, else in a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Annotation

from pflbench.report.figures.marks import Looks
from pflbench.report.figures.panels import Panel, Series

AWAY = 0.04
"""Inches from a line's end to its name."""
_WIDEST = 0.45
"""The share of a panel's width that names may take."""
_CHARACTERS = 17
"""Of a legend's entry in an inch."""
_HANDLE = 0.35
"""Inches of a legend's line or bar."""
MANY = 10
"""With more entries a legend stands beside the panels."""
_SAME_END = 0.02
"""Lines end at the same place if they differ by this share of the axis."""
_FARTHEST = 1.6
"""Largest distance of a name from the place wanted, in its heights."""


class Names(NamedTuple):
    """The names at the ends of a panel's lines, from above, and the inches that they take beside it."""

    texts: list[Annotation]
    width: float


def at_ends(ax: Axes, panel: Panel, looks: Looks, renderer: RendererBase, room: float, dpi: float) -> Names | None:
    """Write each line's name beside its end; None, and nothing is written, where they do not fit.

    `room`: the width of the panel in inches, of `dpi` pixels. The axes have their height already.
    """
    lines = [series for series in panel.series if series.points]
    least, most = ax.get_xlim()
    if not _end_together(lines, most - least):
        return None
    ax.set_xlim(least, max(one.points[-1].x for one in lines))
    texts = [_text(ax, one.label, looks[one.label].ink, one.points[-1].y or 0.0) for one in lines]
    boxes = [text.get_window_extent(renderer) for text in texts]
    height, width = max(box.height for box in boxes), max(box.width for box in boxes) / dpi
    inside = ax.get_window_extent(renderer).height
    places = spread_out([text.xy[1] * inside for text in texts], height, -height / 2, inside + height / 2)
    if places is None or width > _WIDEST * room:
        for text in texts:
            text.remove()
        ax.set_xlim(least, most)
        return None
    for text, place in zip(texts, places, strict=True):
        text.xy = (1.0, place / inside)
    return Names(texts, width + AWAY)


def spread_out(wanted: Sequence[float], height: float, low: float, high: float) -> list[float] | None:
    """Places as near to those wanted as may be, at least a height from each other and between the bounds.

    None where one of them would stand farther than `_FARTHEST` heights from the one wanted.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    if len(order) * height > high - low:
        return None
    groups: list[tuple[float, int]] = []  # mean of wanted places less those of the names below, and how many
    for rank, i in enumerate(order):
        mean, n = wanted[i] - rank * height, 1
        while groups and groups[-1][0] > mean:
            other, m = groups.pop()
            mean, n = (mean * n + other * m) / (n + m), n + m
        groups.append((mean, n))
    flat = [mean for mean, n in groups for _ in range(n)]
    top = high - height / 2 - (len(order) - 1) * height
    flat = [min(max(one, low + height / 2), top) for one in flat]
    places = dict(zip(order, (one + rank * height for rank, one in enumerate(flat)), strict=True))
    if any(abs(places[i] - wanted[i]) > _FARTHEST * height for i in order):
        return None
    return [places[i] for i in range(len(wanted))]


def _end_together(lines: Sequence[Series], length: float) -> bool:
    """True if all series are lines that end at about the same place of an axis of this length."""
    if not lines or any(one.mark != "line" or len(one.points) < 2 for one in lines):
        return False
    ends = [one.points[-1].x for one in lines]
    return max(ends) - min(ends) <= _SAME_END * length


def _text(ax: Axes, label: str, color: str, y: float) -> Annotation:
    """A name that stands in the panel's own coordinates, where its right edge is 1."""
    low, high = ax.get_ylim()
    where = (y - low) / (high - low)
    shift = AWAY * 72
    return ax.annotate(
        label, (1.0, where), xycoords="axes fraction", color=color, va="center", ha="left", fontsize="small",
        xytext=(shift, 0), textcoords="offset points",
    )  # fmt: skip


def legend(figure: Figure, entries: Mapping[str, str], width: float, renderer: RendererBase) -> Legend | None:
    """One for all panels, in the order of `entries`: what to write for each label. As wide as `width` inches at most.

    It stands nowhere yet; it is to stand below the panels.
    """
    handles = _handles(figure)
    if not handles:
        return None
    shown = [label for label in entries if label in handles]
    lines = 1
    while True:
        columns = -(-len(shown) // lines)
        made = _legend(figure, handles, {label: entries[label] for label in shown}, width, columns)
        if columns == 1 or made.get_window_extent(renderer).width <= width * figure.dpi:
            return made
        made.remove()
        lines = next(n for n in range(lines + 1, len(shown) + 1) if -(-len(shown) // n) < columns)


def legend_beside(
    figure: Figure, entries: Mapping[str, str], width: float, height: float, renderer: RendererBase
) -> Legend | None:
    """A legend of many lines that is to stand right of the panels; None where it is wider or higher than these inches.

    It stands nowhere yet.
    """
    handles = _handles(figure)
    shown = {label: said for label, said in entries.items() if label in handles}
    if len(shown) <= MANY:
        return None
    for columns in (1, 2):
        made = _legend(figure, handles, shown, width / columns, columns)
        box = made.get_window_extent(renderer)
        if box.width <= width * figure.dpi and box.height <= height * figure.dpi:
            return made
        made.remove()
    return None


def _handles(figure: Figure) -> dict[str, Any]:
    """Handle of a legend for each label: as in the first panel that has it."""
    found = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in reversed(figure.axes)]
    return {label: handle for of_panel in found for handle, label in of_panel}


def _legend(
    figure: Figure, handles: Mapping[str, Any], entries: Mapping[str, str], width: float, columns: int
) -> Legend:
    return figure.legend(
        handles=[handles[label] for label in entries],
        labels=[fill(said, max(12, int(_CHARACTERS * (width - _HANDLE)))) for said in entries.values()],
        loc="lower center",
        ncols=columns,
        borderaxespad=0.0,
        borderpad=0.0,
    )
