"""Lines over seeds that were scored after different rounds: no point is of other seeds than the ones beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pflbench.report.figures.curves import curves
from pflbench.report.figures.panels import Point, Series
from pflbench.report.figures.parts import over_seeds
from pflbench.report.reading import Shelf
from pflbench.result import RunResult, Score
from pflbench.store import Store
from pflbench.suite.schema import Spread

if TYPE_CHECKING:
    from conftest import Personal

SEM = Spread(kind="sem")


def level(accuracy: float, *rounds: int) -> dict[int, float]:
    """A run that is as accurate after all of these rounds."""
    return dict.fromkeys(rounds, accuracy)


def drawn(series: Series) -> list[tuple[float, float | None, int | None]]:
    return [(point.x, point.y, point.n) for point in series.points]


def test_seeds_that_never_change_make_a_line_that_never_changes() -> None:
    """Seed 0 stays at 20, seed 1 at 40: a line of both is at 30 wherever it is, whoever was scored more often."""
    found = over_seeds("Ours", {0: level(20, 5, 10, 15, 20), 1: level(40, 10, 20)}, SEM)
    assert [drawn(one) for one in found.series] == [[(10, 30, 2), (20, 30, 2)]]
    assert found.left_out == "rounds 5, 15 of seed 0" and not found.apart
    many = over_seeds("Ours", {0: level(20, *range(1, 11)), 1: level(20, *range(1, 11)), 2: level(40, 5, 10)}, SEM)
    assert [p.y for p in many.series[0].points] == pytest.approx([80 / 3] * 2)
    assert many.left_out == "8 rounds of seeds 0, 1"


def test_seeds_scored_once_are_no_part_of_a_line() -> None:
    found = over_seeds("Ours", {42: level(90, 20), 43: level(20, 10, 20), 44: level(40, 10, 20)}, SEM)
    assert [drawn(one) for one in found.series] == [[(10, 30, 2), (20, 30, 2)]]
    assert found.left_out == "seed 42 (scored after round 20 alone)"
    alone = over_seeds("Ours", {0: level(20, 7), 1: level(40, 7)}, SEM)
    assert [drawn(one) for one in alone.series] == [[(7, 30, 2)]] and alone.left_out == ""


@pytest.mark.parametrize("other", [(3, 6), (2, 3)], ids=["none in common", "one in common"])
def test_seeds_without_two_rounds_in_common_have_lines_of_their_own(other: tuple[int, int]) -> None:
    found = over_seeds("Ours", {0: level(20, 2, 4), 1: level(40, *other)}, SEM, paces={0: 10.0, 1: 100.0})
    assert [(one.label, drawn(one)) for one in found.series] == [
        ("Ours, seed 0", [(20, 20, 1), (40, 20, 1)]),
        ("Ours, seed 1", [(100 * n, 40, 1) for n in other]),
    ]
    assert found.apart and {one.row for one in found.series} == {"Ours"}


def test_a_line_goes_at_the_pace_of_its_seeds() -> None:
    walks = {0: level(90, 2), 1: level(20, 1, 2), 2: level(40, 1, 2)}
    found = over_seeds("Ours", walks, SEM, paces={0: 1000.0, 1: 2.0, 2: 4.0})
    assert [point.x for point in found.series[0].points] == [3, 6]
    assert over_seeds("Ours", {}, SEM).series == over_seeds("Ours", {0: {}}, SEM).series == ()


def test_stored_runs_are_drawn_and_told_so(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-2")
    cell = personal.cell("pfedvem", column, "personalized")
    for run, rounds in zip(cell.runs, ((1, 2, 3), (1, 3)), strict=True):
        scores = [Score("personalized", n, 0, 0, 0, 10, 0.0, 0.2 + run.seed / 5) for n in rounds]
        store.write(RunResult(run, tuple(scores), {"data_hash": "d"}))
    table = personal.alone(cell)
    drawing = curves(table, Shelf(store))
    assert drawing.panels[0].series[0].points == tuple(
        Point(n, pytest.approx(30), pytest.approx(10), 2) for n in (1, 3)
    )
    assert "Left out, so that all points of a line are of the same seeds: round 2 of seed 0 of Ours." in drawing.notes

    scores = [Score("personalized", n, 0, 0, 0, 10, 0.0, 0.4) for n in (2, 3)]
    store.write(RunResult(cell.runs[1], tuple(scores), {"data_hash": "d"}))
    (line,) = curves(table, Shelf(store)).panels[0].series
    assert drawn(line) == [(2, pytest.approx(30), 2), (3, pytest.approx(30), 2)]
