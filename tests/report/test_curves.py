"""Curves of any stored runs, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from table_kit import row

from pflbench.errors import UsageError
from pflbench.report.figures.curves import AXES, curves, local_steps, often
from pflbench.report.figures.panels import Drawing, Point
from pflbench.report.figures.pictures import picture
from pflbench.report.reading import Shelf
from pflbench.report.tables import one_table
from pflbench.result import Metric, RunResult, Score
from pflbench.selection import selection
from pflbench.store import Store
from pflbench.suite.cells import Cell, Choice, Expansion, Reading
from pflbench.suite.user_supplied import UserSupplied

if TYPE_CHECKING:
    from conftest import Personal

COSTS = {"client_gradients": 4.0, "client_seconds": 6.0, "bytes_up": 3e6, "bytes_down": 2e6}


@pytest.fixture
def table(personal: Personal, store: Store) -> Expansion:
    """pFedVEM with two seeds whose accuracy is 10 percent times the round, ten more for the second seed."""
    (column,) = personal.columns("a-2")
    cell = personal.cell("pfedvem", column, "personalized", steps=5)
    for run in cell.runs:
        scores = [
            Score("personalized", n, 0, client, 0, 10, 5.0 * n + client, (n + run.seed) / 10 + side)
            for n in (1, 2, 3)
            for client, side in enumerate((-0.1, 0.1))
        ]
        sizes = [Metric(0, client, "support", float(size)) for client, size in enumerate((25, 9))]
        taus = [Metric(n, client, "tau", n * (client + 1.0)) for n in (1, 2, 3) for client in (0, 1)]
        store.write(RunResult(run, tuple(scores), {"data_hash": "d"} | COSTS, None, (*sizes, *taus)))
    return personal.alone(cell)


def points(drawing: Drawing, label: str = "Ours") -> list[Point]:
    (panel,) = drawing.panels
    (series,) = (one for one in panel.series if one.label == label)
    return list(series.points)


@pytest.mark.parametrize(
    ("against", "unit"), [("round", 1), ("steps", 5), ("gradients", 4), ("seconds", 2), ("bytes", 5)]
)
def test_curves_are_means_over_seeds_after_each_round(table: Expansion, store: Store, against: str, unit: int) -> None:
    drawing = curves(table, Shelf(store), against)
    expected = [Point(unit * n, pytest.approx(10 * n + 5), pytest.approx(5), 2) for n in (1, 2, 3)]
    assert points(drawing) == expected  # the SEM of two seeds ten apart
    assert (drawing.x, drawing.y) == (AXES[against].title, "accuracy (%)")
    assert not any("Not scored" in note or "Missing" in note for note in drawing.notes)
    assert len(picture(drawing, "png")) > 5000


def test_losses_and_metrics_are_means_over_clients(table: Expansion, store: Store) -> None:
    loss = curves(table, Shelf(store), metric="loss")
    assert [p.y for p in points(loss)] == pytest.approx([(5 * n + 0.5) / 10 for n in (1, 2, 3)])
    assert loss.y == "test loss"
    tau = curves(table, Shelf(store), metric="tau")
    assert [(p.x, p.y, p.spread) for p in points(tau)] == [(n, 1.5 * n, 0) for n in (1, 2, 3)]
    with pytest.raises(UsageError, match=r"Unknown metric of these runs 'tua'.*Known: accuracy, loss, support, tau"):
        curves(table, Shelf(store), metric="tua")
    with pytest.raises(UsageError, match=r"Unknown axis 'rounds'. Did you mean 'round'"):
        curves(table, Shelf(store), "rounds")


def test_a_metric_stands_once_for_rows_that_share_their_runs(table: Expansion, store: Store) -> None:
    (cell,) = table.cells
    other = replace(cell, row=row("again", "Again"), reading=Reading("global"))
    both = replace(table, rows=(*table.rows, other.row), cells=(cell, other))
    (panel,) = curves(both, Shelf(store), metric="tau").panels
    assert [series.label for series in panel.series] == ["Ours"]


def test_steps_by_epochs_take_clients_sizes(personal: Personal) -> None:
    spec = personal.spec(0, epochs=3, steps=None, batch=10)
    sizes = tuple(Metric(0, client, "support", size) for client, size in enumerate((25.0, 9.0)))
    run = RunResult(spec, metrics=sizes)
    kept = replace(run, spec=spec.model_copy(update={"tail": "keep"}))
    dropped = replace(run, spec=spec.model_copy(update={"tail": "drop"}))
    assert local_steps(kept) == 3 * (3 + 1) / 2
    assert local_steps(dropped) == 3 * (2 + 1) / 2  # a client smaller than a batch has one
    anew = dropped.spec.model_copy(update={"batches": "reshuffled"})
    assert local_steps(replace(run, spec=anew)) == local_steps(kept)  # such passes keep it, whatever `tail` says
    assert local_steps(RunResult(spec)) is None and local_steps(RunResult(personal.spec(0))) is None
    apart = personal.spec(0, head_steps=10, base_steps=2, inner_steps=7, personal_epochs=4)
    assert local_steps(RunResult(apart)) == 12
    assert local_steps(RunResult(personal.spec(0, steps=4, epochs=5))) == 4  # steps stand in place of epochs


def test_what_runs_do_not_tell_is_said(table: Expansion, store: Store, personal: Personal) -> None:
    cell = personal.cell("fedavg", table.columns[0], "personalized", epochs=5)
    both = replace(table, cells=(*table.cells, cell))
    missing = "Missing or failed runs: FedAvg."
    assert missing in curves(both, Shelf(store)).notes
    store.write(personal.result(cell.runs[0], (0.5, 0.7)))
    drawing = curves(both, Shelf(store))
    assert points(drawing, "FedAvg") == [Point(3, pytest.approx(60), None, 1)]
    once = "Scored after one round alone, so a marker (`pflbench run --evaluate-every 1` scores more): FedAvg."
    assert once in drawing.notes
    for against, words in (
        ("steps", "counted in epochs"),
        ("seconds", "--redo always"),
        ("bytes", "--redo always"),
        ("gradients", "--redo always"),
    ):
        drawing = curves(both, Shelf(store), against)
        (note,) = (one for one in drawing.notes if one.startswith("Left out, as the stored runs do not tell"))
        assert f"their {against} (" in note and words in note and note.endswith("): FedAvg.")
        assert [series.label for series in drawing.panels[0].series] == ["Ours"]


def test_clients_that_choose_have_no_curve(table: Expansion, store: Store) -> None:
    (cell,) = table.cells
    choosing = replace(cell, choices=tuple(((Choice(run, run)),) for run in cell.runs))
    drawing = curves(replace(table, cells=(choosing,)), Shelf(store))
    assert drawing.panels == () and any("choose among runs after the last round: Ours" in n for n in drawing.notes)


def test_panels_are_columns_and_stages(personal: Personal, store: Store) -> None:
    table = personal.table("a-2", "b-3")
    personal.fill(store, table)
    for run in [store.read(one.spec.id) for one in store.list()]:
        store.write(replace(run, scores=(*run.scores, *(score._replace(round=2) for score in run.scores))))
    drawing = curves(table, Shelf(store))
    assert [panel.title for panel in drawing.panels] == ["A 2 Clients PM", "B 3 Clients PM", "A 2 Clients GM",
                                                         "B 3 Clients GM"]  # fmt: skip
    assert [s.label for s in drawing.panels[2].series] == ["FedAvg", "Ours"]
    assert often(table) == 1


def test_the_table_that_is_meant(store: Store) -> None:
    own = UserSupplied(store.root)
    with pytest.raises(UsageError, match="No results of cafeme-table1"):
        one_table(selection(suites=["cafeme-table1"]), store, own)
    with pytest.raises(UsageError, match="No results of any suite"):
        one_table(selection(), store, own)


def test_the_axis_of_gradients_says_whose_they_are(table: Expansion, store: Store, personal: Personal) -> None:
    """pFedVEM's clients train though their upload is lost, FedAvg's do not (as `commits` in their classes says)."""

    def lossy(cell: Cell, arrival: float) -> Cell:
        return replace(cell, runs=tuple(run.model_copy(update={"arrival": arrival}) for run in cell.runs))

    for arrival in (1.0, 0.5):
        cells = [
            lossy(personal.cell(name, table.columns[0], "personalized"), arrival) for name in ("pfedvem", "fedavg")
        ]
        for cell in cells:
            scores = [Score("personalized", n, 0, 0, 0, 10, 0.0, 0.5) for n in (1, 2)]
            for run in cell.runs:
                store.write(RunResult(run, tuple(scores), {"data_hash": "d"} | COSTS))
        both = replace(table, cells=tuple(cells))
        (note,) = (one for one in curves(both, Shelf(store), "gradients").notes if "minibatch gradients of one" in one)
        assert note.startswith("A round counts the minibatch gradients of one local update: the mean over all")
        assert ("pfedvem: minibatch gradients of all clients, expected: " in note) is (arrival < 1)
        assert ("fedavg: only clients whose upload arrives train" in note) is (arrival < 1)
    assert not any("A round counts" in one for one in curves(both, Shelf(store)).notes)


def test_a_panel_of_one_round_is_no_curve(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-2")
    cell = personal.cell("pfedvem", column, "personalized")
    for run in cell.runs:
        store.write(personal.result(run, (0.1, 0.2), 0.3, client_gradients=4.0))
    table = personal.alone(cell)
    drawing = curves(table, Shelf(store))
    why = "all rows are scored after one and the same round alone (`pflbench run --evaluate-every 1` scores more)"
    assert drawing.panels == () and f"Left out, as {why}: A 2 Clients." in drawing.notes
    other = personal.cell("fedavg", column, "personalized")
    store.write(personal.result(other.runs[0], (0.4, 0.5), client_gradients=7.0))
    both = replace(table, cells=(cell, other))
    assert len(curves(both, Shelf(store), "gradients").panels) == 1  # which stand at two places of the axis
