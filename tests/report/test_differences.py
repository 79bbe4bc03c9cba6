from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from table_kit import row

from pflbench.report.appendix import appendices
from pflbench.report.layout import lay_out
from pflbench.report.render import render
from pflbench.report.table import CellValue, Table
from pflbench.report.text import cell as text
from pflbench.store import Store
from pflbench.suite.cells import Cell, Derived, Expansion, Reading, Reference

if TYPE_CHECKING:
    from conftest import Personal

SMALL, ALL, DIFF = 0, 1, 2


@pytest.fixture
def columns(personal: Personal) -> Expansion:
    """pFedVEM and FedPer on the smallest client, on both, and the difference."""
    (given,) = personal.columns("a-2")
    columns = tuple(replace(given, id=id, title=title) for id, title in (("small", "Small"), ("all", "All")))
    rows = row("pfedvem", "Ours"), row("fedper", "FedPer")
    cells = []
    for of in rows:
        runs = tuple(personal.spec(seed, of.id) for seed in range(3))
        for column, smallest in zip(columns, (1, None), strict=True):
            cells.append(Cell(of, column, Reading("personalized", None, smallest), runs))
    references = {("pfedvem", "personalized"): Reference(-1.0)}
    return personal.table(
        columns=columns,
        rows=rows,
        cells=tuple(cells),
        stages={},
        derived=(Derived("diff", "Diff.", "columns", ("small", "all"), references),),
        blocks="none",
    )


def write(personal: Personal, store: Store, name: str, clients: list[tuple[float, float]]) -> None:
    """For each seed the accuracies of a small and of a large client."""
    for seed, pm in enumerate(clients):
        store.write(personal.result(personal.spec(seed, name), pm, 0.0, (1, 2)))


def value(table: Table, row: int, column: int) -> CellValue:
    found = table.rows[row].cells[column]
    assert found
    return found


def test_differences_without_a_spread(personal: Personal, store: Store, columns: Expansion) -> None:
    write(personal, store, "pfedvem", [(0.1, 0.3), (0.2, 0.8), (0.3, 0.5)])
    (one,) = columns.derived
    table = lay_out(replace(columns, derived=(replace(one, shows_spread=False),)), store)
    with_spread, without = (lay_out(t, store).rows[0].cells for t in (columns, replace(columns, derived=())))
    small, every, diff = (value(table, 0, column) for column in (SMALL, ALL, DIFF))
    assert diff.spread is None and diff.sem is not None and with_spread[DIFF].spread is not None
    assert [small.spread, every.spread] == [cell.spread for cell in without]
    assert "Diff.: Small minus All, seed by seed." in table.footer


def test_columns_are_subtracted_seed_by_seed(personal: Personal, store: Store, columns: Expansion) -> None:
    write(personal, store, "pfedvem", [(0.1, 0.3), (0.2, 0.8), (0.3, 0.5)])
    table = lay_out(columns, store)
    assert [head.column.title for head in table.columns] == ["Small", "All", "Diff."]
    small, every, diff = (value(table, 0, column) for column in (SMALL, ALL, DIFF))
    assert (small.mean, every.mean) == (pytest.approx(20), pytest.approx(110 / 3))
    assert diff.seeds == pytest.approx({0: -10, 1: -30, 2: -10})
    assert diff.mean == pytest.approx(-50 / 3)
    assert diff.spread == pytest.approx(math.sqrt(400 / 3) / math.sqrt(3))
    assert (diff.done, diff.expected, diff.best, diff.method, diff.stage) == (3, 3, False, "pfedvem", "personalized")
    assert diff.runs == small.runs
    assert diff.verdict and "prints no ±" in diff.verdict.reason
    (paper,) = appendices(table)
    # Student's interval of three differences, 4.30 standard errors on each side, and half a digit.
    assert [line[1:5] for line in paper.lines if "Diff." in line[1]] == [
        ("A Diff.", "-16.7 ± 6.7", "-1.0", "-15.7 (-44.4 to +13.1)")
    ]
    assert text(value(table, 1, DIFF), 1) == "0/3"
    assert "Diff.: Small minus All, seed by seed; ± is over these differences." in table.footer
    assert any(line.endswith("; in A Small only the 1 with the fewest support images.") for line in table.footer)


def test_nothing_of_a_difference_is_bold(personal: Personal, store: Store, columns: Expansion) -> None:
    write(personal, store, "pfedvem", [(0.1, 0.3)] * 3)
    write(personal, store, "fedper", [(0.1, 0.9)] * 3)
    shown = lay_out(columns, store)
    assert [[cell.best for cell in row.cells if cell] for row in shown.rows] == [
        [True, False, False],
        [True, True, False],
    ]
    assert "| Ours   | **10.0 ± 0.0** |" in render(shown, "markdown")


def test_extra_rows_have_differences_too(personal: Personal, store: Store, columns: Expansion) -> None:
    write(personal, store, "lab/foo.py:Foo", [(0.5, 0.9)])
    extra, _ = lay_out(columns, store).extra
    assert [text(cell, 1) for cell in extra.cells] == ["50.0 (1/3)", "70.0 (1/3)", "-20.0 (1/3)"]


def test_a_csv_line_of_a_difference(personal: Personal, store: Store, columns: Expansion, tmp_path) -> None:  # type: ignore[no-untyped-def]
    write(personal, store, "pfedvem", [(0.1, 0.3)] * 3)
    path = tmp_path / "table.csv"
    path.write_text(render(lay_out(columns, store), "csv"))
    frame = pd.read_csv(path).set_index("column")
    assert list(frame.index) == ["small", "all", "diff"]
    diff = frame.loc["diff"]
    assert (diff["mean"], diff["std"], diff["reference_mean"], diff["stage"]) == (-10.0, 0.0, -1.0, "personalized")
    assert (diff["dataset"], diff["clients"]) == ("a", 2)


def test_a_column_of_differences_per_group_and_stage(personal: Personal, store: Store) -> None:
    table = personal.table("a-2", "a-3", "b-2", "b-3")
    derived = tuple(Derived(f"{g}-diff", "Diff.", "columns", (f"{g}-2", f"{g}-3"), {}) for g in ("a", "b"))
    table = replace(table, derived=derived)
    personal.fill(store, table)
    shown = lay_out(table, store)
    names = [column.name for column in shown.columns]
    assert names[4:6] == ["A Diff. PM", "A Diff. GM"] and names[10:] == ["B Diff. PM", "B Diff. GM"]
    assert shown.columns[4].column.clients == 0  # of two and three clients
    assert [text(row.cells[5], 1) for row in shown.rows] == ["–", "0.0 ± 0.0", "0.0 ± 0.0"]
    assert sum(line.startswith("Diff.: 2 Clients minus 3 Clients") for line in shown.footer) == 1


@pytest.fixture
def rows(personal: Personal) -> Expansion:
    """pFedVEM minus FedAvg."""
    references = {("a-2", "global"): Reference(3.0)}
    return personal.table("a-2", derived=(Derived("d", "Mean Diff. (%)", "rows", ("pfedvem", "fedavg"), references),))


def test_rows_are_subtracted_seed_by_seed(personal: Personal, store: Store, rows: Expansion) -> None:
    for seed, (ours, theirs) in enumerate(((0.5, 0.4), (0.9, 0.5))):
        store.write(personal.result(personal.spec(seed, "pfedvem"), [0, 0], ours))
        store.write(personal.result(personal.spec(seed, "fedavg", stages=("global",)), [], theirs))
    shown = lay_out(rows, store)
    row = shown.rows[-1]
    assert (row.title, row.cells[0]) == ("Mean Diff. (%)", None)  # FedAvg has no personal models
    diff = row.cells[1]
    assert diff and (diff.mean, diff.spread) == (pytest.approx(25), pytest.approx(15))
    assert (diff.method, diff.reference, diff.best) == ("pfedvem - fedavg", Reference(3.0), False)
    assert "Mean Diff. (%): Ours minus FedAvg, seed by seed; ± is over these differences." in shown.footer


def test_only_seeds_of_both_sides_count(personal: Personal, store: Store, rows: Expansion) -> None:
    for seed, accuracy in enumerate((0.5, 0.9)):
        store.write(personal.result(personal.spec(seed, "pfedvem"), [0, 0], accuracy))
    assert text(lay_out(rows, store).rows[-1].cells[1], 1) == "0/2"
    store.write(personal.result(personal.spec(1, "fedavg", stages=("global",)), [], 0.5))
    diff = lay_out(rows, store).rows[-1].cells[1]
    assert diff and text(diff, 1) == "40.0 (1/2)"
    of_seed_1 = (personal.spec(1, "pfedvem").id, personal.spec(1, "fedavg", stages=("global",)).id)
    assert (diff.done, dict(diff.runs)) == (1, {1: of_seed_1})  # seed 0 is in no number of it


def test_a_failed_side(personal: Personal, store: Store, rows: Expansion) -> None:
    store.write(replace(personal.result(personal.spec(0, "fedavg", stages=("global",))), scores=(), failure="no"))
    assert text(lay_out(rows, store).rows[-1].cells[1], 1) == "failed (1/2)"


def test_mixed_sides_make_a_mixed_difference(personal: Personal, store: Store, rows: Expansion) -> None:
    personal.fill(store, rows)
    store.write(personal.result(personal.spec(0, "fedavg", stages=("global",)), [], 0.4, data_hash="d2"))
    diff = lay_out(rows, store).rows[-1].cells[1]
    assert diff and diff.mixed and diff.verdict and diff.verdict.label == "not comparable"
