"""Pictures of figures, as large as they are printed. The same numbers give the same bytes: no dates, no random ids."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from pflbench.report.figures.labels import MANY, Names, at_ends, legend, legend_beside
from pflbench.report.figures.marks import draw_panel, looks_of, numbers
from pflbench.report.figures.panels import Drawing, Panel, plain_texts
from pflbench.report.figures.parts import in_a_line, least_to_most

METADATA: Mapping[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}
"""The formats there are, and what their files shall not say."""
STYLE = {
    "axes.facecolor": "none",  # the name of a reduced profile shows through
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlepad": 4,
    "axes.titlesize": 8,
    "figure.dpi": 200,  # what is measured is what a picture has
    "font.size": 8,
    "hatch.linewidth": 0.6,
    "legend.columnspacing": 1.4,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.labelspacing": 0.3,
    "pdf.fonttype": 42,  # fonts as such, which journals ask for
    "svg.hashsalt": "pflbench",
    "text.parse_math": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}
COLUMN, TEXT = 3.3, 6.9
"""Inches: the width of a column of a two-column page, and of both."""
_HEIGHTS = {1: 1.9, 2: 1.9, 3: 1.45}
"""Inches of a panel's axes, by how many stand beside each other."""
_DOTS = 16
"""With more dots beside each other a panel is as wide as both columns."""
_ABOVE_LEGEND = 0.06
_CHARACTERS = 17
"""Of the line below a picture in an inch."""
_SLANT = 30
"""Degrees that names along an axis are turned by."""
_WIDEST = 0.45
"""The share of a picture's width that a legend beside the panels may take."""
_TALLER = 1.6
"""Factor by which panels may be higher for a legend beside them."""
ACROSS = "profile"
"""Id of the text that a reduced profile has across its picture."""
_PAD, _GAP, _LINE = 0.04, 0.12, 0.15
"""Inches around the figure, between panels, and of a line of text below it."""


def picture(drawing: Drawing, format: str) -> bytes:
    """The figure as a file of this format."""
    with style.context(["default", STYLE]):  # whatever this user's own settings are
        file = io.BytesIO()
        figure_of(plain_texts(drawing)).savefig(file, format=format, metadata=METADATA[format])
        return file.getvalue()


def figure_of(drawing: Drawing) -> Figure:
    """The figure, in the style that is set. Panels without series are left out, unless all are without."""
    panels, across = _shown(drawing)
    many = len(drawing.labels) > MANY
    width = COLUMN if _slim(panels[0], across, many) else TEXT
    figure = Figure(figsize=(width, 1.0))
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    grid = _Grid(figure, panels, across, drawing)
    grid.place([0.0] * across, 0.0)
    room = None if drawing.beside or many else grid.names(renderer)
    named, aside = _legends(figure, drawing, grid, renderer) if room is None else (None, None)
    under = textwrap.wrap(foot_of(drawing), int(width * _CHARACTERS))
    foot = _PAD + _LINE * len(under) + _PAD
    below = foot - _PAD + (named.get_window_extent(renderer).height / figure.dpi + _ABOVE_LEGEND if named else 0.0)
    grid.place(room or [0.0] * across, below)
    if grid.crowded(renderer):
        grid.place(room or [0.0] * across, below)
    height = figure.get_figheight()
    if named is not None:
        named.set_bbox_to_anchor((0.5, foot / height))
    if aside is not None:
        aside.set_loc("center right")
        aside.set_bbox_to_anchor((1 - _PAD / width, (below + height) / 2 / height))
    figure.text(_PAD / width, _PAD / height, "\n".join(under), fontsize=6, va="bottom", linespacing=1.35, color="0.25")
    if drawing.profile != "paper":
        across_it: Any = {"ha": "center", "va": "center", "rotation": 25, "alpha": 0.08, "zorder": -1}
        figure.text(0.5, 0.5, drawing.profile, fontsize=16 * width, gid=ACROSS, **across_it)
    return figure


def _legends(figure: Figure, drawing: Drawing, grid: _Grid, renderer: Any) -> tuple[Legend | None, Legend | None]:
    """A legend that is to stand below the panels, or one beside them, for which these give way."""
    entries, width = _entries(drawing), figure.get_figwidth()
    aside = legend_beside(figure, entries, _WIDEST * width, grid.highest, renderer)
    if aside is None:
        return legend(figure, entries, width - 2 * _PAD, renderer), None
    grid.give_way(aside.get_window_extent(renderer), figure.dpi)
    return None, aside


def _entries(drawing: Drawing) -> dict[str, str]:
    """Entry of a legend for each label."""
    beside = drawing.beside
    return {label: f"{label}: {beside[label]}" if label in beside else label for label in drawing.labels}


def foot_of(drawing: Drawing) -> str:
    """`cafeme-fig3 · quick · n = 1–3 · Mean over seeds; …`: suite, profile, values behind a point, and the band."""
    points = (point for panel in drawing.panels for series in panel.series for point in series.points)
    numbers = {point.n for point in points if point.n}
    n = f"n = {least_to_most(numbers)}" if numbers else ""
    band = (fact.text.rstrip(".") for fact in drawing.facts if fact.kind == "spread")
    return " · ".join(filter(None, (drawing.suite, drawing.profile, n, *band)))


def _shown(drawing: Drawing) -> tuple[list[Panel], int]:
    """The panels, and how many stand in a line: at most four; of a longer line as many as make equal ones."""
    panels = [panel for panel in drawing.panels if panel.series] or list(drawing.panels[:1])
    asked = drawing.across
    if len(panels) < len(drawing.panels):
        return panels, in_a_line(len(panels))
    return panels, asked if asked <= 4 else next((n for n in (4, 3, 2) if asked % n == 0), 3)


def _turn(ax: Axes, boxes: Sequence[Any]) -> None:
    """Turn the names along the first axis as far as they must be not to cover each other; `boxes`: where they stand."""
    apart = min(b.x0 + b.x1 - a.x0 - a.x1 for a, b in pairwise(boxes)) / 2
    slanted = apart * math.sin(math.radians(_SLANT)) > max(box.height for box in boxes)
    ax.tick_params(axis="x", rotation=_SLANT if slanted else 90)
    for label in ax.get_xticklabels():
        label.set(ha="right", va="center_baseline" if not slanted else "top", rotation_mode="anchor")


def _slim(panel: Panel, across: int, many: bool) -> bool:
    """True for a panel that stands alone and fits the width of one column; `many`: with a legend beside it."""
    return (
        across == 1
        and not many
        and _DOTS >= sum(len(series.points) for series in panel.series if series.mark in ("mean", "printed"))
    )


class _Grid:
    """The panels' axes in lines of so many, where the space around each is as wide as what stands in it."""

    def __init__(self, figure: Figure, panels: Sequence[Panel], across: int, drawing: Drawing):
        self._figure, self._panels, self._across = figure, panels, across
        self._looks = looks_of(drawing)
        width = figure.get_figwidth() / across
        self._height = _HEIGHTS.get(across, _HEIGHTS[3])
        self._aside = 0.0
        self.axes: list[Axes] = []
        for i, panel in enumerate(panels):
            ax = figure.add_axes((0.1, 0.1, 0.75 * width / figure.get_figwidth(), self._height))  # about as it will be
            ax.set_title(panel.title)
            draw_panel(ax, panel, drawing, self._looks)
            if i + across >= len(panels):
                ax.set_xlabel(drawing.x)
            if i % across == 0:
                ax.set_ylabel(drawing.y)
            self.axes.append(ax)

    def names(self, renderer: Any) -> list[float] | None:
        """Write names at the ends of all lines: the inches that each column of panels needs for them.

        None where one of the panels has no room for its names; then none has any.
        """
        found: list[Names] = []
        width = self._figure.get_figwidth() / self._across
        limits = [(ax.get_xlim()) for ax in self.axes]
        for ax, panel in zip(self.axes, self._panels, strict=True):
            names = at_ends(ax, panel, self._looks, renderer, width, self._figure.dpi)
            if names is None:
                for done in found:
                    for text in done.texts:
                        text.remove()
                for other, limit in zip(self.axes, limits, strict=True):
                    other.set_xlim(limit)
                return None
            found.append(names)
        return [max(one.width for one in found[i :: self._across]) for i in range(self._across)]

    @property
    def highest(self) -> float:
        """The inches that a legend beside the panels may be high."""
        return _TALLER * self._height * self._lines

    @property
    def _lines(self) -> int:
        return -(-len(self.axes) // self._across)

    def give_way(self, legend: Any, dpi: float) -> None:
        """Leave room for a legend of this extent right of the panels, which are as high as it together."""
        self._aside = legend.width / dpi + 2 * _GAP
        self._height = max(self._height, legend.height / dpi / self._lines)

    def place(self, right: Sequence[float], below: float) -> None:
        """Set each panel's place, and the figure's height. Inches: for names beside each column, and under all."""
        margins = [self._margins(ax) for ax in self.axes]
        columns = [margins[i :: self._across] for i in range(self._across)]
        lines = [margins[i : i + self._across] for i in range(0, len(margins), self._across)]
        lefts = [max(m[0] for m in one) for one in columns]
        rights = [max(*(m[1] for m in one), room) for one, room in zip(columns, right, strict=True)]
        tops, bottoms = [max(m[3] for m in one) for one in lines], [max(m[2] for m in one) for one in lines]
        total = self._figure.get_figwidth()
        wide = (total - self._aside - sum(lefts) - sum(rights) - 2 * _PAD - _GAP * (self._across - 1)) / self._across
        high = self._height
        tall = below + sum(tops) + sum(bottoms) + high * len(lines) + 2 * _PAD + _GAP * (len(lines) - 1)
        self._figure.set_figheight(tall)
        top = tall - _PAD
        for line in range(len(lines)):
            top -= tops[line] + high
            left = _PAD
            for column, ax in enumerate(self.axes[line * self._across : (line + 1) * self._across]):
                left += lefts[column]
                ax.set_position((left / total, top / tall, wide / total, high / tall))
                left += wide + rights[column] + _GAP
            top -= bottoms[line] + _GAP

    def _margins(self, ax: Axes) -> tuple[float, float, float, float]:
        """Inches that numbers and titles take left, right, below and above of the axes."""
        canvas: Any = self._figure.canvas
        renderer, dpi = canvas.get_renderer(), self._figure.dpi
        whole, inner = ax.get_tightbbox(renderer), ax.get_window_extent(renderer)
        assert whole is not None
        sides = inner.x0 - whole.x0, whole.x1 - inner.x1, inner.y0 - whole.y0, whole.y1 - inner.y1
        left, right, below, above = (max(0.0, side / dpi) for side in sides)
        return left, right, below, above

    def crowded(self, renderer: Any) -> bool:
        """Take fewer numbers, or turn names, where they cover each other along a first axis; True if any did."""
        found = False
        for ax, panel in zip(self.axes, self._panels, strict=True):
            boxes = [label.get_window_extent(renderer) for label in ax.get_xticklabels() if label.get_text()]
            if any(a.x1 + 2 > b.x0 for a, b in pairwise(boxes)):
                found = True
                if panel.ticks:
                    _turn(ax, boxes)
                else:
                    numbers(ax, 3, False)
        return found
