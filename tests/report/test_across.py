"""Figures of accuracy against a suite's columns."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib import style

from pflbench.errors import UsageError
from pflbench.report.figures.make import draw_runs
from pflbench.report.figures.panels import Drawing, to_csv
from pflbench.report.figures.pictures import STYLE, figure_of, picture
from pflbench.report.reading import Shelf
from pflbench.store import Store
from pflbench.suite.cells import Reference, Shortfall
from pflbench.suite.figure import Across
from pflbench.suite.load import load
from pflbench.suite.scoped import Note

if TYPE_CHECKING:
    from conftest import Build

REFERENCES = {
    ("fedavg", "digits-a"): Reference(33.0, 1.0),
    ("fedavg-ft", "digits-a"): Reference(70.0, 2.0),
    ("fedavg-ft", "digits-b"): Reference(80.0),
}


def across(**changes: Any) -> Across:
    return Across(kind="columns", x="heterogeneity", **changes)


def draw(build: Build, store: Store, figure: Across, **changes: Any) -> Drawing:
    return draw_runs(build.table(references=REFERENCES, **changes), figure, Shelf(store))


def test_dots_stand_side_by_side_in_their_columns_each_beside_the_papers_number(build: Build, store: Store) -> None:
    build.fill(store)
    drawing = draw(build, store, across(y=[10, 100]))
    ((ours, tuned, *printed),) = [panel.series for panel in drawing.panels]
    (panel,) = drawing.panels
    assert panel.ticks == ("Dir 0.3", "Dir 5") and panel.span == (10, 100) and drawing.x == "heterogeneity"
    places = [-0.3, 0.1, 0.7, 1.1]
    assert [p.y for p in ours.points] == pytest.approx([30, 40]) and [p.n for p in ours.points] == [3, 3]
    assert sorted(p.x for one in (ours, tuned) for p in one.points) == pytest.approx(places)
    assert ours.mark == tuned.mark == "mean"
    assert ours.points[0].spread == pytest.approx((200 / 3) ** 0.5)  # standard deviation of 20, 30, 40 with ddof 0
    assert [(one.label, one.like, [tuple(p)[:3] for p in one.points]) for one in printed] == [
        ("the paper", "FedAvg", [(pytest.approx(-0.1), 33.0, 1.0)]),
        ("the paper", "FedAvg-FT", [(pytest.approx(0.3), 70.0, 2.0), (pytest.approx(1.3), 80.0, None)]),
    ]
    assert drawing.labels == ("FedAvg", "FedAvg-FT", "the paper")


def test_a_dashed_line_separates_columns(build: Build, store: Store) -> None:
    build.fill(store)
    drawing = draw(build, store, across(separators=[1, 2]))
    assert drawing.panels[0].separators == (0.5,), "behind the last column there is nothing to separate"
    with style.context(["default", STYLE]):
        (ax,) = figure_of(drawing).axes
    assert [float(np.ravel(line.get_xdata())[0]) for line in ax.lines if line.get_linestyle() == "--"] == [0.5]
    assert draw(build, store, across(separators=[1], at=[100, 600])).panels[0].separators == (350,)


def test_a_line_stands_at_the_numbers_of_its_columns(build: Build, store: Store) -> None:
    build.fill(store)
    drawing = draw(build, store, across(mark="line", at=[100, 600]))
    (panel,) = drawing.panels
    assert panel.ticks == () and [p.x for p in panel.series[0].points] == [100, 600]
    assert {one.mark for one in panel.series} == {"line", "printed"}


def test_what_is_not_done_is_said_and_the_paper_stands_alone(build: Build, store: Store) -> None:
    drawing = draw(build, store, across())
    assert [one.label for one in drawing.panels[0].series] == ["FedAvg, the paper", "FedAvg-FT, the paper"]
    assert "Missing or failed runs: FedAvg, FedAvg-FT." in drawing.notes
    assert b"FedAvg-FT, the paper" in picture(drawing, "svg")


def test_where_runs_do_not_compare_the_paper_has_no_marks(build: Build, store: Store) -> None:
    build.fill(store)
    short = Shortfall(rounds="3 of 1000 rounds")
    assert {one.mark for one in draw(build, store, across(), shortfall=short).panels[0].series} == {"mean"}


def test_the_csv_names_the_columns(build: Build, store: Store) -> None:
    build.fill(store)
    head, *rows = csv.reader(io.StringIO(to_csv(draw(build, store, across()))))
    assert head[-1] == "column" and {row[-1] for row in rows} == {"Dir 0.3", "Dir 5"}
    assert [row[-1] for row in rows[:2]] == ["Dir 0.3", "Dir 5"]


def test_each_column_needs_its_number(tmp_path: Any) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[suite]\nextends = "cafeme-fig3"\nname = "mine"\ntitle = "Mine"\n'
        '[[column]]\nid = "a"\nlike = "rmnist-shards"\n[figure]\nkind = "columns"\nx = "size"\nat = [1, 2]\n',
        encoding="utf-8",
    )
    with pytest.raises(UsageError, match=r"figure\.at: 2 numbers for 1 columns"):
        load(str(file))


def test_the_axis_has_every_marker_and_spread(build: Build, store: Store) -> None:
    """The figure asks for 70 to 100 percent, and dots lie at 30: then the axis is not that."""
    build.fill(store)
    for least, whole in ((10, False), (25, True), (70, True)):  # the least is 30 - 8.2
        drawing = draw(build, store, across(y=[least, 100]))
        assert (drawing.panels[0].span is None) is whole
        assert (f"The axis begins at {least} %, not at 0." in drawing.notes) is not whole
        with style.context(["default", STYLE]):
            low, high = figure_of(drawing).axes[0].get_ylim()
        ends = [
            (p.y or 0) + side * (p.spread or 0) for s in drawing.panels[0].series for p in s.points for side in (-1, 1)
        ]
        assert low <= min(ends) and max(ends) <= high


def test_all_columns_have_room_though_some_are_empty(build: Build, store: Store) -> None:
    store.write(build.result(build.spec(0, alpha=5.0), 0.3))
    drawing = draw_runs(build.table(), across(), Shelf(store))
    with style.context(["default", STYLE]):
        least, most = figure_of(drawing).axes[0].get_xlim()
    assert least < -0.4 and most > 1.4
    assert "No results yet in Digits Dir 0.3." in drawing.notes


def test_notes_are_those_of_the_rows_and_columns_that_are_drawn(build: Build, store: Store) -> None:
    store.write(build.result(build.spec(0, alpha=5.0), 0.3))
    said = [Note(text="plain"), Note(text="of a", columns=["digits-a"]), Note(text="of b", columns=["digits-b"])]
    said += [Note(text="of ft", rows=["fedavg-ft"]), Note(text="of ft in a", rows=["fedavg-ft"], columns=["digits-a"])]
    table = build.table(notes=tuple(note.text for note in said), remarks=(said,))
    assert draw_runs(table, across(), Shelf(store)).notes[-3:] == ("plain", "of b", "of ft")
    printed = replace(table, cells=tuple(replace(c, reference=Reference(50.0)) for c in table.cells))
    assert draw_runs(printed, across(), Shelf(store)).notes[-5:] == table.notes  # the paper's numbers are drawn, too
    first, *_ = draw_runs(table, across(), Shelf(store)).notes
    assert first == "Mean over seeds; the error bar is the standard deviation."
