"""Looks of methods, the same in every figure and on the page: a color, a line, a marker and a hatch for each.

Colors are told apart by color-blind readers as far as their number allows; in gray, lines, markers and hatches differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

COLORS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933"),
    *("#882255", "#44AA99", "#332288", "#AA4466"),
)
"""Okabe and Ito's, but for a yellow that is too light for a line, and four of Tol's muted ones."""
_METHODS = {
    **{"fedavg": 0, "fedprox": 9, "scaffold": 1, "ifca": 2, "ditto": 3, "fedrep": 4, "perfedavg": 5, "local": 6},
    **{"fedper": 7, "pfedme": 8, "pfedbayes": 3, "pfedvem": 10, "cafeme": 10, "fedec": 10, "lgfedavg": 9, "l2gd": 2},
    **{"apfl": 3, "fedala": 11, "fedadam": 11},
}
"""Place in `COLORS` of each method family: those of one table differ, and the papers' own methods have one color."""
LINES: tuple[Any, ...] = (
    "-",
    "--",
    "-.",
    (0, (5, 1)),
    (0, (3, 1, 1, 1)),
    (0, (7, 3)),
    (0, (1, 1)),
    (0, (3, 1, 1, 1, 1, 1)),
)
_MARKERS = "o^sDvPX*"
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "---", "+++", "ooo")
READABLE = 4.5
"""Least contrast of a text on white (WCAG 2, level AA)."""
_LIGHTER = 0.35
"""Share of white in the color of a family's further rows."""
RGB = tuple[float, float, float]


class Look(NamedTuple):
    """Look of a row; `marked`: lines have markers, too, as there are more rows than colors."""

    color: str
    marker: str
    line: Any
    hatch: str
    marked: bool = False

    @property
    def ink(self) -> str:
        """The color as dark as a text of it has to be on white."""
        found = rgb(self.color)
        while contrast(found) < READABLE:
            found = _mixed(found, (0.0, 0.0, 0.0), 0.05)
        return _hex(found)

    @property
    def dashes(self) -> str:
        """The line as SVG's `stroke-dasharray`; empty for a whole line."""
        known = {"-": (), "--": (5, 3), "-.": (6, 2, 1, 2)}
        return " ".join(map(str, known[self.line] if isinstance(self.line, str) else self.line[1]))


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Look of each label, in order.

    The row with a method's own name, else the first of its family, has the family's color, line and marker; further
    ones (fine-tuned, a seed, a reading) have a lighter tint and other lines and markers. What is no known method takes
    colors that are left.
    """
    ordered = list(dict.fromkeys(labels))
    families = [family(label) for label in ordered]
    unknown = list(dict.fromkeys(one for one in families if one not in _METHODS))
    taken = {_METHODS[one] for one in families if one in _METHODS}
    free = [i for i in range(len(COLORS)) if i not in taken] or [0]
    rows: dict[str, list[str]] = {}
    for label, of in zip(ordered, families, strict=True):
        rows.setdefault(of, []).append(label)
    found: dict[str, Look] = {}
    for label, of in zip(ordered, families, strict=True):
        at = unknown.index(of) if of in unknown else 0
        color = _METHODS[of] if of in _METHODS else free[at] if at < len(free) else at
        place = list(_METHODS).index(of) if of in _METHODS else at
        variant = sorted(rows[of], key=lambda one: _plain(one) != family(one)).index(label)
        found[label] = row_look(color, place, variant, marked=len(ordered) > len(_MARKERS))
    return found


def row_look(color: int, place: int, variant: int = 0, *, marked: bool = False) -> Look:
    """Look of the `variant`-th row of a family; `color`: a place in `COLORS`; `place`: the family's among all.

    No two of 768 families whose color is their place have color, line and marker in common, nor two of the first 96
    color and hatch.
    """
    shown = COLORS[color % len(COLORS)]
    if variant:
        shown = _hex(_mixed(rgb(shown), (1.0, 1.0, 1.0), _LIGHTER))
    again = place // len(COLORS)
    line, marker = place + again + variant, place + again // len(LINES) + variant
    return Look(
        shown, _MARKERS[marker % len(_MARKERS)], LINES[line % len(LINES)], _HATCHES[line % len(_HATCHES)], marked
    )


def family(label: str) -> str:
    """The method family that a label names: the longest known one that it begins with, else all of it."""
    known = [one for one in _METHODS if _plain(label).startswith(one)]
    return max(known, key=len, default=label)


def _plain(label: str) -> str:
    return re.sub(r"[^a-z0-9]", "", label.lower())


def rgb(color: str) -> RGB:
    """Red, green and blue of `#rrggbb`, each from 0 to 1."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def contrast(color: RGB) -> float:
    """Contrast of a color with white, from 1 to 21 (WCAG 2: relative luminances)."""
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in color]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 1.05 / (luminance + 0.05)


def _mixed(color: RGB, other: RGB, share: float) -> RGB:
    red, green, blue = ((1 - share) * a + share * b for a, b in zip(color, other, strict=True))
    return red, green, blue


def _hex(color: RGB) -> str:
    return "#" + "".join(f"{round(255 * one):02x}" for one in color)
