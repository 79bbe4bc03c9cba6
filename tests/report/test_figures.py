"""Numbers behind figures, against numbers worked out by hand or by scipy."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import gaussian_kde
from table_kit import row

from pflbench.data.partitions.slicing import RandomSlicing, size_law
from pflbench.errors import PflbenchError, UsageError
from pflbench.report.facts import Fact
from pflbench.report.figures.clients import Slicing, binned, cuts, density, dimension, histogram, round_to_whole
from pflbench.report.figures.make import draw_runs, draw_sizes
from pflbench.report.figures.panels import Drawing, Panel, Point, Series, to_csv
from pflbench.report.figures.pictures import METADATA, picture
from pflbench.report.reading import Shelf
from pflbench.result import Metric, RunResult, Score
from pflbench.store import Store
from pflbench.suite.cells import Cell, Choice, Reading
from pflbench.suite.figure import Curve, Histogram, Kde, Scatter

if TYPE_CHECKING:
    from conftest import Personal

CURVE = Curve(kind="curve", every=1)
SCATTER = Scatter(kind="scatter", bins=2)
TAU = Kde(kind="kde", metric="tau", scale="share", rounds=[1, 2, 9], every=1)
DEVIATION = Kde(kind="kde", metric="deviation", scale="dimension", rounds=[2], every=1)


def lines(drawing: Drawing) -> dict[tuple[str, str], list[Point]]:
    return {(p.title, s.label): list(s.points) for p in drawing.panels for s in p.series}


# Scatter


def test_bins_are_quantiles_and_edges_belong_below() -> None:
    assert cuts(np.array([1.0, 2, 3, 4, 5]), 2).tolist() == [3]
    assert cuts(np.array([1.0, 2, 3, 4]), 4).tolist() == [1.75, 2.5, 3.25]
    assert cuts(np.full(7, 5.0), 10).tolist() == []
    x, y = np.array([1.0, 3, 2, 5, 4]), np.array([10.0, 30, 20, 1, 3])
    low, high = binned(x, y, np.array([3.0]))
    assert (low.x, low.y, low.n) == (2, 20, 3) and low.spread == pytest.approx(10 / 3**0.5)
    assert high == (4.5, 2, pytest.approx(1), 2)
    assert binned(np.array([2.0]), np.array([7.0]), np.array([])) == (Point(2, 7, None, 1),)


def test_scatter_pools_seeds(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-2")
    cell = personal.cell("pfedvem", column, "personalized")
    table = personal.alone(cell, notes=("A note.",))
    for run, pm, sizes in zip(cell.runs, ((0.1, 0.5), (0.3, 0.9)), ((10, 40), (20, 30)), strict=True):
        store.write(personal.result(run, pm, 0.0, sizes))
    drawing = draw_runs(table, SCATTER, Shelf(store))
    low, high = lines(drawing)["A 2 Clients", "Ours"]
    assert (low.x, low.n, high.x, high.n) == (15, 2, 35, 2)
    assert (low.y, low.spread) == (pytest.approx(20), pytest.approx(10))
    assert (high.y, high.spread) == (pytest.approx(70), pytest.approx(20))
    assert (drawing.x, drawing.y) == ("training images of a client", "accuracy (%)")
    assert drawing.notes[-1] == "A note." and not any("Missing" in note for note in drawing.notes)


def test_all_rows_have_the_same_bins(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-2")
    cells = [personal.cell(of, column, "personalized") for of in ("pfedvem", "fedavg")]
    table = personal.alone(*cells)
    both, one = cells[0].runs, cells[1].runs[:1]
    for run in (*both, *one):
        store.write(personal.result(run, (0.1, 0.2), 0.0, (10, 20) if run.seed == 0 else (30, 40)))
    drawing = draw_runs(table, SCATTER, Shelf(store))
    found = lines(drawing)
    assert [p.x for p in found["A 2 Clients", "Ours"]] == [15, 35]
    assert [p.x for p in found["A 2 Clients", "FedAvg"]] == [15]  # all its clients are among the small
    assert "Missing or failed runs: FedAvg (seeds 1)." in drawing.notes


def test_clients_that_choose_are_read_from_their_choice(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-2")
    points = [
        Choice(
            *(personal.spec(0, "local", stages=("personalized",), rounds=1, validation=v, lr=lr) for v in (0.0, 0.1))
        )
        for lr in (0.1, 0.2)
    ]
    cell = Cell(row("local"), column, Reading("personalized"), (points[0].run,), choices=(tuple(points),))
    table = personal.alone(cell)
    tests, held_out = ((0.2, 0.9), (0.6, 0.5)), ((0.9, 0.0), (0.1, 1.0))  # the worse ones, by what was held out
    for point, test, validation in zip(points, tests, held_out, strict=True):
        store.write(personal.result(point.run, test, 0.0, (10, 20)))
        assert not any(panel.series for panel in draw_runs(table, SCATTER, Shelf(store)).panels)
        store.write(personal.result(point.validation, validation, 0.0, (9, 18)))
    found = lines(draw_runs(table, SCATTER, Shelf(store)))["A 2 Clients", "Local"]
    assert [(p.x, p.y) for p in found] == [(10, pytest.approx(20)), (20, pytest.approx(50))]


def test_a_run_that_does_not_know_its_sizes(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-2")
    for stage, who in (("personalized", "client 0"), ("global", "one for all")):
        cell = personal.cell("pfedvem", column, stage)
        table = personal.alone(cell)
        store.write(personal.result(cell.runs[0], (0.1, 0.2), 0.5))
        with pytest.raises(PflbenchError, match=f"{cell.runs[0].id} does not say how many support images.*{who}"):
            draw_runs(table, SCATTER, Shelf(store))


# Histogram


@pytest.mark.parametrize(
    ("partition", "classes", "types", "clients", "held"),
    [
        (RandomSlicing("concepts"), 3, 6, 4, 3),
        (RandomSlicing("labels"), 4, 4, 6, 2),
        (RandomSlicing("labels", rows=24), 4, 4, 6, 2),
        (RandomSlicing("labels", cuts="equal"), 4, 4, 10, 2),
        (RandomSlicing("none"), 3, 6, 5, 6),
    ],
)
def test_sizes_over_partitions_are_those_of_the_partitions(
    partition: RandomSlicing, classes: int, types: int, clients: int, held: int
) -> None:
    column = Slicing("A", clients, partition, classes, types, 9)
    kind = np.repeat(range(types), 9)
    labels, fine = kind // (types // classes), None if types == classes else kind
    expected = [len(rows) for seed in (5, 7) for rows in partition(labels, fine, clients, seed)]
    assert column.held == held and column.sizes((5, 7)).tolist() == expected
    with pytest.raises(UsageError, match="clients share every type"):
        partition.lengths(types, 3, 4, 0) if partition.rows is None else partition.lengths(types, 9, 7, 0)


@pytest.mark.parametrize(
    ("partition", "shape", "clients", "held", "holders"),
    [
        (RandomSlicing("labels"), (4, 4, 30), 6, 2, 3),
        (RandomSlicing("concepts"), (3, 6, 30), 4, 3, 2),
        (RandomSlicing("none"), (3, 6, 30), 4, 6, 4),
        (RandomSlicing("labels", rows=80), (4, 4, 30), 6, 2, 3),
    ],
)
def test_drawn_sizes_follow_the_exact_law(
    partition: RandomSlicing, shape: tuple[int, int, int], clients: int, held: int, holders: int
) -> None:
    column = Slicing("A", clients, partition, *shape)
    _, types, per_type = shape
    per_type = per_type if partition.rows is None else partition.rows // types
    drawn, law = histogram(column, range(40), 1000).series
    assert (drawn.label, law.label, drawn.width) == ("drawn", "exact law", held)
    exact = size_law(per_type, holders)[: len(law.points)]
    assert [p.x for p in law.points] == [p.x for p in drawn.points] == [held * k for k in range(1, len(exact) + 1)]
    assert [p.y for p in law.points] == pytest.approx(exact / held)
    counts = np.bincount(column.sizes(range(40)) // held)[1:]
    assert [p.n for p in drawn.points] == counts.tolist() and counts.sum() == 40 * clients
    assert [p.y for p in drawn.points] == pytest.approx(counts / counts.sum() / held)
    means = [sum(p.x * (p.y or 0) for p in s.points) * held for s in (drawn, law)]
    assert means[0] == pytest.approx(held * per_type / holders) and means[1] == pytest.approx(means[0], rel=0.1)


def test_bins_of_several_sizes_hold_the_sum() -> None:
    column = Slicing("A", 6, RandomSlicing("labels"), 4, 4, 30)
    fine, exact = histogram(column, range(40), 1000).series
    coarse, law = histogram(column, range(40), 10).series
    w = -(-len(fine.points) // 10)
    assert len(coarse.points) <= 10 and coarse.width == 2 * w
    assert [p.n for p in coarse.points] == [
        sum(p.n or 0 for p in fine.points[i : i + w]) for i in range(0, len(fine.points), w)
    ]
    assert law.points[0].y == pytest.approx(sum(p.y or 0 for p in exact.points[:w]) / w)
    assert law.points[0].x == coarse.points[0].x == np.mean([p.x for p in fine.points[:w]])
    assert sum((p.y or 0) * coarse.width for p in coarse.points) == pytest.approx(1)


def test_sizes_without_chance() -> None:
    even = Slicing("A", 6, RandomSlicing("labels", cuts="equal"), 4, 4, 30)
    (drawn,) = histogram(even, (0,), 50).series
    assert [(p.x, p.n) for p in drawn.points if p.n] == [(20, 6)]
    alone = Slicing("A", 2, RandomSlicing("labels"), 4, 4, 30)
    drawn, law = histogram(alone, (0,), 50).series
    assert (drawn.points[-1].x, drawn.points[-1].y, drawn.points[-1].n) == (60, 0.5, 2)
    assert [p.y for p in law.points] == [0] * 29 + [0.5]


def test_a_figure_of_sizes_says_what_was_drawn(personal: Personal) -> None:
    column = Slicing("A", 6, RandomSlicing("labels"), 4, 4, 30)
    figure = Histogram(kind="histogram", partitions=9, classes=4, types=4, per_type=30, bins=5)
    drawing = draw_sizes(personal.table("a-2"), figure, [column], range(3))
    assert "3 partitions (seeds 0–2)" in drawing.notes[1] and drawing.panels == (histogram(column, range(3), 5),)


# Densities


def test_density_is_scipys() -> None:
    values = np.array([0.1, 0.2, 0.2, 0.5])
    found = density("a", values)
    x, y = np.array([p.x for p in found.points]), [p.y for p in found.points]
    assert y == pytest.approx(gaussian_kde(values)(x)) and {p.n for p in found.points} == {4}
    bandwidth = 4 ** (-1 / 5) * values.std(ddof=1)
    assert (x[0], x[-1]) == pytest.approx((0.1 - 3 * bandwidth, 0.5 + 3 * bandwidth))
    assert integrate.trapezoid(y, x) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [0.01, 0.01 + 1e-10], [7.0]])
def test_values_that_are_all_alike_are_a_spike(values: list[float]) -> None:
    found = density("a", np.array(values))
    assert found.mark == "spike" and found.points == (Point(np.mean(values), None, None, len(values)),)


def confident(run: RunResult, rounds: dict[int, tuple[Sequence[float], Sequence[float]]], d: int = 10) -> RunResult:
    """With these confidences and deviations of clients after these rounds."""
    metrics = [
        Metric(round, client, name, value)
        for round, (taus, deviations) in rounds.items()
        for client, (tau, deviation) in enumerate(zip(taus, deviations, strict=True))
        for name, value in (("tau", tau), ("deviation", deviation), ("trace", d / tau - deviation))
    ]
    return replace(run, metrics=tuple(metrics))


def test_shares_and_deviations_of_all_seeds(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-3")
    cell = personal.cell("pfedvem", column, "personalized")
    table = personal.alone(cell)
    first = {1: ((1.0, 1.0, 1.0), (0.0, 0.0, 0.0)), 3: ((1.0, 2.0, 1.0), (0.5, 1.5, 2.5))}
    second = {2: ((3.0, 1.0, 4.0), (1.0, 2.0, 0.5)), 3: ((1.0, 3.0, 4.0), (0.5, 1.0, 0.0))}
    for run, rounds in zip(cell.runs, (first, second), strict=True):
        store.write(confident(personal.result(run, (0.1, 0.2, 0.3)), rounds))
    drawing = draw_runs(table, TAU, Shelf(store))
    (panel,) = drawing.panels
    assert [(s.label, s.mark) for s in panel.series] == [
        ("round 1", "spike"),
        ("round 2", "line"),
        ("round 3", "line"),  # the last, in place of 9
    ]
    assert panel.series[0].points == (Point(pytest.approx(1 / 3), None, None, 3),)
    shares = np.array([1 / 4, 2 / 4, 1 / 4, 1 / 8, 3 / 8, 4 / 8])
    x = [p.x for p in panel.series[2].points]
    assert [p.y for p in panel.series[2].points] == pytest.approx(gaussian_kde(shares)(x))
    assert drawing.x == "tau / sum over clients"
    missing = "round 1 (in 1 of 2 runs), round 2 (in 1 of 2 runs)"
    assert f"Not scored, see --evaluate-every: {missing}." in drawing.notes

    (panel,) = draw_runs(table, DEVIATION, Shelf(store)).panels
    assert [p.y for p in panel.series[0].points] == pytest.approx(
        gaussian_kde([0.1, 0.2, 0.05])([p.x for p in panel.series[0].points])
    )


def test_the_dimension_of_heads(personal: Personal) -> None:
    run = personal.result(personal.spec(), (0.1, 0.2))
    full = confident(run, {1: ((1.0, 3.0), (0.0, 0.7))}, 2020)
    assert dimension(full, 1) == 2020
    assert round_to_whole(np.array([849.9999, 850.0001])) == 850
    assert round_to_whole(np.array([])) is None and round_to_whole(np.array([10.0, 11.0])) is None
    other = replace(full, metrics=tuple(m._replace(value=1.3) if m.name == "trace" else m for m in full.metrics))
    with pytest.raises(PflbenchError, match="has not pFedVEM's full tau"):
        dimension(other, 1)


def test_values_that_are_not_finite_are_left_out(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-3")
    cell = replace(personal.cell("pfedvem", column, "personalized"), runs=(personal.spec(0, column="a-3"),))
    table = personal.alone(cell)
    store.write(confident(personal.result(cell.runs[0]), {2: ((1.0, float("nan"), 3.0), (0.0, 0.0, 0.0))}))
    (panel,) = draw_runs(table, TAU, Shelf(store)).panels
    assert {p.n for p in panel.series[0].points} == {2}


def test_a_metric_that_no_run_has(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-2")
    cell = personal.cell("pfedvem", column, "personalized")
    table = personal.alone(cell)
    store.write(confident(personal.result(cell.runs[0]), {2: ((1.0, 2.0), (0.0, 0.0))}))
    with pytest.raises(UsageError, match=r"Unknown metric of pfedvem 'tua'. Did you mean 'tau'"):
        draw_runs(table, TAU.model_copy(update={"metric": "tua"}), Shelf(store))


# Curves


def often(personal: Personal, cell: Cell, seed: int, rounds: dict[int, tuple[tuple[float, ...], float]]) -> RunResult:
    run = personal.result(cell.runs[seed])
    scores = [
        Score(stage, round, 0, client, 0, 10, 0.0, accuracy)
        for round, (pm, gm) in rounds.items()
        for stage, client, accuracy in (
            *(("personalized", c, a) for c, a in enumerate(pm)),
            ("global", -1, gm),
        )
    ]
    return replace(run, scores=tuple(scores))


def test_curves_by_stage(personal: Personal, store: Store) -> None:
    table = personal.table("a-2", "b-2")
    cell = table.places["pfedvem", "a-2/global"]
    store.write(often(personal, cell, 0, {1: ((0.1, 0.3), 0.2), 3: ((0.5, 0.7), 0.4)}))
    store.write(often(personal, cell, 1, {1: ((0.2, 0.4), 0.4), 3: ((0.6, 1.0), 0.6)}))
    drawing = draw_runs(table, CURVE, Shelf(store))
    assert [panel.title for panel in drawing.panels] == [f"{g} 2 Clients {s}" for s in ("PM", "GM") for g in "AB"]
    assert drawing.across == 2
    found = lines(drawing)
    assert found.keys() == {("A 2 Clients PM", "Ours"), ("A 2 Clients GM", "Ours")}
    one, three = found["A 2 Clients PM", "Ours"]
    assert one == (1, pytest.approx(25), pytest.approx(5), 2)  # SEM of 20 and 30
    assert three == (3, pytest.approx(70), pytest.approx(10), 2)
    assert found["A 2 Clients GM", "Ours"][1] == (3, pytest.approx(50), pytest.approx(10), 2)
    assert drawing.notes[1:3] == ("Missing or failed runs: Local, FedAvg.", "No results yet in B 2 Clients.")


def test_curves_that_were_scored_too_rarely_say_so(personal: Personal, store: Store) -> None:
    cells = tuple(cell for cell in personal.table("a-2").cells if cell.row.id == "pfedvem")
    table = personal.table("a-2", cells=cells)
    cell = table.places["pfedvem", "a-2/global"]
    store.write(personal.result(cell.runs[0], (0.1, 0.2), 0.3))
    drawing = draw_runs(table, CURVE, Shelf(store))
    assert [len(points) for points in lines(drawing).values()] == [1, 1]
    assert lines(drawing)["A 2 Clients GM", "Ours"] == [(3, pytest.approx(30), None, 1)]
    assert "Not scored, see --evaluate-every: Ours but after round 3." in drawing.notes
    store.write(often(personal, cell, 1, {1: ((0.1, 0.3), 0.2), 3: ((0.5, 0.7), 0.4)}))
    drawing = draw_runs(table, CURVE, Shelf(store))
    assert [p.n for p in lines(drawing)["A 2 Clients PM", "Ours"]] == [1, 1]  # not one seed, then two
    uneven = (
        "Left out, so that all points of a line are of the same seeds: seed 0 (scored after round 3 alone) of Ours."
    )
    assert uneven in drawing.notes


def test_mixed_data_are_named(personal: Personal, store: Store) -> None:
    table = personal.table("a-2")
    cell = table.places["pfedvem", "a-2/global"]
    store.write(personal.result(cell.runs[0], (0.1, 0.2), 0.3))
    store.write(personal.result(cell.runs[1], (0.1, 0.2), 0.3, data_hash="d2"))
    assert "MIXED DATA in A 2 Clients" in draw_runs(table, CURVE, Shelf(store)).notes[0]


def test_nothing_done_is_no_series(personal: Personal, store: Store) -> None:
    for figure in (CURVE, SCATTER, TAU):
        drawing = draw_runs(personal.table("a-2"), figure, Shelf(store))
        assert [panel.series for panel in drawing.panels] == [(), ()]


# Files


@pytest.fixture
def everything() -> Drawing:
    """Each mark, a spread, a label that only one panel has, an empty panel, and characters with a meaning elsewhere."""
    line = Series("b_$x$", "line", (Point(1, 2, 0.5, 2), Point(2, 3, None, 1)))
    bars = Series("c", "bars", (Point(1, 2, None, 2), Point(2, 3, None, 1)), 1.0)
    spike, dots = Series("d", "spike", (Point(0.5, None, None, 3),)), Series("a", "points", (Point(1, 2, 0.1, 3),))
    panels = (Panel("One", (line, spike)), Panel("Two", (bars, dots)), Panel("Three", ()))
    return Drawing(
        "demo", "Demo", "paper", "x (1)", "y, %", panels, 2, (Fact("note", "A note ± of $many$ words. " * 20),), ("a",)
    )


def test_csv_has_every_point(everything: Drawing) -> None:
    head, *rows = csv.reader(io.StringIO(to_csv(everything)))
    assert head == ["figure", "profile", "panel", "series", "x (1)", "y, %", "spread", "n"]
    assert rows[:3] == [
        ["demo", "paper", "One", "b_$x$", "1", "2", "0.5", "2"],
        ["demo", "paper", "One", "b_$x$", "2", "3", "", "1"],
        ["demo", "paper", "One", "d", "0.5", "", "", "3"],
    ]
    assert len(rows) == 6


def test_csv_has_hues_and_numbers_where_there_are_some() -> None:
    cloud = Series("a", "cloud", (Point(1, 2), Point(3, 4)), hues=(7.0, 8.0), numbers={"u": 0.5})
    line = Series("b", "line", (Point(5, 6, None, 2),), numbers={"v": 1.5})
    drawing = Drawing("demo", "Demo", "paper", "x", "y", (Panel("One", (cloud, line)),), 1, hue="round")
    head, *rows = csv.reader(io.StringIO(to_csv(drawing)))
    assert head[4:] == ["x", "y", "spread", "n", "round", "u", "v"]
    assert [row[3:] for row in rows] == [
        ["a", "1", "2", "", "", "7.0", "0.5", ""],
        ["a", "3", "4", "", "", "8.0", "0.5", ""],
        ["b", "5", "6", "", "2", "", "", "1.5"],
    ]


def test_what_stands_beside_a_label_is_written() -> None:
    series = tuple(Series(f"m{i}", "line", (Point(1, i), Point(2, i))) for i in range(3))
    drawing = Drawing("demo", "Demo", "paper", "x", "y", (Panel("One", series),), 1)
    costly = replace(drawing, beside={"m1": "20 gradients, 0.25 s, 1,006,858 floats"})
    assert picture(costly, "svg") != picture(drawing, "svg")
    assert b"m1: 20 gradients, 0.25 s, 1,006,858 floats" in picture(costly, "svg")


def test_labels_stand_in_the_rows_order(everything: Drawing) -> None:
    assert everything.labels == ("a", "b_$x$", "d", "c")


@pytest.mark.parametrize("format_", METADATA)
def test_pictures_are_the_same_twice(everything: Drawing, format_: str, tmp_path: Path) -> None:
    one = picture(everything, format_)
    assert len(one) > 5000 and one == picture(everything, format_)
    magic = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[format_]
    assert one.startswith(magic) and b"Date>" not in one and b"CreationDate" not in one


def test_more_methods_than_colors_are_still_told_apart() -> None:
    series = tuple(Series(f"m{i}", "line", (Point(1, i), Point(2, i))) for i in range(12))
    drawing = Drawing("demo", "Demo", "paper", "x", "y", (Panel("One", series),), 1)
    assert len(picture(drawing, "png")) > 5000 and len(drawing.labels) == 12
