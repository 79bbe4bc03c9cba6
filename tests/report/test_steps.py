"""Accuracy against fine-tuning steps, and what a round costs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pflbench.engine.objective import SECOND
from pflbench.report.figures.make import draw_runs
from pflbench.report.figures.panels import Point, to_csv
from pflbench.report.figures.pictures import picture
from pflbench.report.provenance import DOWN, GRADIENTS, SECONDS, UP, costs_in_words, round_costs, unknown_costs
from pflbench.report.reading import Shelf
from pflbench.store import Store
from pflbench.suite.cells import Expansion
from pflbench.suite.figure import Steps
from pflbench.suite.schema import LayoutTable

if TYPE_CHECKING:
    from conftest import Build

FIGURE = Steps(kind="steps")


@pytest.fixture
def table(build: Build) -> Expansion:
    """The fine-tuned row alone, in two columns; the suite asks for costs."""
    whole = build.table()
    cells = tuple(c for c in whole.cells if c.row.id == "fedavg-ft")
    return replace(whole, rows=whole.rows[1:], cells=cells, layout=LayoutTable(costs=True))


def test_curves_are_means_over_seeds_after_each_step(build: Build, store: Store, table: Expansion) -> None:
    build.fill(store, client_seconds=6.0)
    drawing = draw_runs(table, FIGURE, Shelf(store))
    assert (drawing.x, drawing.y) == ("fine-tuning step", "accuracy (%)")
    assert [panel.title for panel in drawing.panels] == ["Digits Dir 0.3", "Digits Dir 5"]
    for panel, shift in zip(drawing.panels, (0, 10), strict=True):
        (series,) = panel.series
        std = 200**0.5 / 3**0.5  # of three seeds ten points apart
        assert series.points == tuple(
            Point(float(step), pytest.approx(y + shift), pytest.approx(std), 3) for step, y in enumerate((30, 70, 80))
        )
        assert series.numbers[SECONDS] == pytest.approx(6 / 3)  # three rounds
    assert drawing.beside.keys() == {"FedAvg-FT"} and "2 s" in drawing.beside["FedAvg-FT"]
    assert any("Mean over seeds" in note for note in drawing.notes)
    assert any("Hessian-vector product 3" in note for note in drawing.notes) and SECOND == 3
    assert any("Device: cpu." in note for note in drawing.notes)
    assert len(picture(drawing, "png")) > 5000


def test_costs_stand_in_the_legend_only_where_the_suite_asks_for_them(
    build: Build, store: Store, table: Expansion
) -> None:
    build.fill(store, client_seconds=6.0)
    drawing = draw_runs(replace(table, layout=LayoutTable()), FIGURE, Shelf(store))
    assert drawing.beside == {} and not any("Hessian" in note for note in drawing.notes)


def test_missing_runs_are_left_out_and_named(build: Build, store: Store, table: Expansion) -> None:
    for seed in (0, 2):
        store.write(build.result(build.spec(seed), 0.2 + seed / 10, (0.6, 0.7)))
    drawing = draw_runs(table, FIGURE, Shelf(store))
    assert [len(panel.series) for panel in drawing.panels] == [1, 0]
    first = drawing.panels[0].series[0].points[0]
    assert (first.y, first.n) == (pytest.approx(30), 2)
    assert "Missing or failed runs: FedAvg-FT (seeds 1)." in drawing.notes
    assert "No results yet in Digits Dir 5." in drawing.notes
    lacking = "; ".join(f"{name} of FedAvg-FT" for name in (GRADIENTS, SECONDS, UP, DOWN))
    assert f"Not known: {lacking}." in drawing.notes  # these runs do not tell


def test_nothing_done_is_no_curve(store: Store, table: Expansion) -> None:
    drawing = draw_runs(table, FIGURE, Shelf(store))
    assert [panel.series for panel in drawing.panels] == [(), ()] and drawing.beside == {}


def test_other_stages_have_no_panel(build: Build, store: Store, table: Expansion) -> None:
    build.fill(store)
    stages = {"global": "before", "finetuned": "after"}
    drawing = draw_runs(replace(build.table(), rows=table.rows, stages=stages), FIGURE, Shelf(store))
    assert [(panel.title, len(panel.series)) for panel in drawing.panels] == [
        ("Digits Dir 0.3", 1),
        ("Digits Dir 5", 1),
    ]


def test_csv_has_the_costs(build: Build, store: Store, table: Expansion) -> None:
    build.fill(store, client_seconds=1.5, client_gradients=2.5, floats_up=7.0, floats_down=14.0)
    rows = list(csv.DictReader(io.StringIO(to_csv(draw_runs(table, FIGURE, Shelf(store))))))
    assert len(rows) == 2 * 3
    assert list(rows[0])[-4:] == [GRADIENTS, SECONDS, UP, DOWN]
    for name, number in ((SECONDS, 0.5), (GRADIENTS, 2.5), (UP, 7.0), (DOWN, 14.0)):
        assert {float(row[name]) for row in rows} == {number}


def test_costs_are_what_the_runs_tell(build: Build) -> None:
    theirs = build.result(build.spec(name="mine.py:Mine"), 0.2, client_seconds=3.0)
    assert round_costs([theirs]) == {SECONDS: 1.0}
    slower = build.result(build.spec(1, name="mine.py:Mine"), 0.2, client_seconds=9.0)
    silent = build.result(build.spec(2, name="mine.py:Mine"), 0.2)
    assert round_costs([theirs, slower, silent]) == {SECONDS: 2.0}
    assert unknown_costs([("Mine", round_costs([silent]))]) == (
        f"Not known: {GRADIENTS} of Mine; {SECONDS} of Mine; {UP} of Mine; {DOWN} of Mine."
    )
    known = build.result(build.spec(name="mine.py:Mine"), 0.2, client_gradients=4.0, floats_up=10.0, floats_down=20.0)
    assert round_costs([known, silent]) == {GRADIENTS: 4.0, UP: 10.0, DOWN: 20.0}


def test_costs_in_words() -> None:
    def curve(label: str, **numbers: float) -> tuple[str, dict[str, float]]:
        return label, {name.replace("_", " "): value for name, value in numbers.items()}

    curves = [
        curve("A", gradients=20.0, client_seconds=0.51234, floats_uploaded=1006858.0),
        curve("A", gradients=20.0, client_seconds=0.25, floats_uploaded=583242.0),
        curve("B", gradients=11.5),
        curve("C"),
    ]
    assert costs_in_words(curves) == {
        "A": "20 gradients, 0.25–0.512 s, 583,242–1,006,858 floats up",
        "B": "11.5 gradients",
    }
    assert unknown_costs(curves) == f"Not known: {GRADIENTS} of C; {SECONDS} of B, C; {UP} of B, C; {DOWN} of A, B, C."
