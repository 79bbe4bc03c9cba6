"""Places of names beside each other, for pictures and for the page. Imports no matplotlib."""

from __future__ import annotations

from collections.abc import Sequence

FARTHEST = 1.6
"""Largest distance of a name from the place wanted, in its heights."""


def spread_out(
    wanted: Sequence[float], height: float, low: float, high: float, farthest: float = FARTHEST
) -> list[float] | None:
    """Places as near to those wanted as may be, at least a height from each other and between the bounds.

    None where one of them would stand farther than `farthest` heights from the one wanted.
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
    if any(abs(places[i] - wanted[i]) > farthest * height for i in order):
        return None
    return [places[i] for i in range(len(wanted))]
