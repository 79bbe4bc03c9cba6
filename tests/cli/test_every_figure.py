"""Every figure that comes with pflbench is drawn, from runs on embedded data or from what needs none, and read back."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from pflbench.suite.expand import expand
from pflbench.suite.figure import Classes, Curve, Histogram, Kde
from pflbench.suite.load import figures, load

pytestmark = pytest.mark.slow

SHARED = "rmnist-shards"
"""A column that several figures of CAFeMe's setting have: it is run in place of their first one."""


def prepared(cli, name: str) -> tuple[tuple[str, ...], str]:
    """Runs the figure's first row, if it has rows, in one column with one seed. How to draw it, and a series it has."""
    figure = load(name).document("smoke").figure
    if isinstance(figure, Histogram):
        return ("--seeds", "0"), "drawn"
    table = expand(load(name), profile="smoke")
    chosen = ("--profile", "smoke", "--seeds", str(table.seeds[0]))
    if isinstance(figure, Classes):
        return chosen, "class 0"
    columns, row = [column.id for column in table.columns], table.rows[0]
    column = SHARED if SHARED in columns else columns[0]
    often = ("--evaluate-every", "1") if isinstance(figure, Kde | Curve) else ()
    made = cli("run", "-s", name, *chosen, "--column", column, "-m", row.id, *often, "--device", "cpu", "-q")
    assert made.code == 0, made.err
    return chosen, "round 1" if isinstance(figure, Kde) else row.title


def test_every_figure_is_drawn_and_read_back(cli, folder: Path) -> None:
    for name in sorted(figures()):
        chosen, series = prepared(cli, name)
        for file in (folder / f"{name}.csv", folder / f"{name}.png"):
            drawn = cli("plot", name, "-o", str(file), *chosen)
            assert drawn.code == 0, (name, drawn.err)
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
        with (folder / f"{name}.csv").open(newline="") as read:
            rows = list(csv.DictReader(read))
        x, y = list(rows[0])[4:6]
        mine = [row for row in rows if row["series"] == series]
        assert mine and {row["figure"] for row in rows} == {name}
        assert all(math.isfinite(float(row[x])) and math.isfinite(float(row[y] or 0)) for row in mine), name
