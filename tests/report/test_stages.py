"""Tables that show personal and global models beside each other, in blocks."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from table_kit import with_cells

from pflbench.report.appendix import appendices
from pflbench.report.layout import lay_out
from pflbench.report.render import render
from pflbench.report.text import cell as text
from pflbench.store import Store
from pflbench.suite.cells import Expansion, Reference
from pflbench.suite.schema import LayoutTable

if TYPE_CHECKING:
    from conftest import Personal


@pytest.fixture
def table(personal: Personal, store: Store) -> Expansion:
    table = personal.table("a-2", "a-3", "b-2")
    personal.fill(store, table)
    return table


def test_terminal_blocks(table: Expansion, store: Store) -> None:
    shown = render(lay_out(table, store), "terminal", width=100)
    assert "\n".join(shown.splitlines()[:15]) == (
        """\
Demo
       ┃   2 Clients ┃   2 Clients ┃   3 Clients ┃   3 Clients
A      ┃          PM ┃          GM ┃          PM ┃          GM
━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━
Local  │ 30.0 ± 10.0 │           – │ 30.0 ± 10.0 │           –
FedAvg │           – │ 50.0 ± 10.0 │           – │ 50.0 ± 10.0
Ours   │ 60.0 ± 10.0 │ 40.0 ± 10.0 │ 60.0 ± 10.0 │ 40.0 ± 10.0

       ┃   2 Clients ┃   2 Clients
B      ┃          PM ┃          GM
━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━
Local  │ 30.0 ± 10.0 │           –
FedAvg │           – │ 50.0 ± 10.0
Ours   │ 60.0 ± 10.0 │ 40.0 ± 10.0
No paper has this table. Protocol: not said."""
    )


@pytest.mark.parametrize("width", [30, 45])
def test_narrow_blocks(table: Expansion, store: Store, width: int) -> None:
    shown = render(lay_out(table, store), "terminal", width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count("60.0 ± 10.0") == 3


def test_markdown_blocks(table: Expansion, store: Store) -> None:
    shown = render(lay_out(table, store), "markdown")
    assert shown.startswith(
        """\
### Demo

| A      |    2 Clients PM |    2 Clients GM |    3 Clients PM |    3 Clients GM |
|:-------|----------------:|----------------:|----------------:|----------------:|
| Local  |     30.0 ± 10.0 |               – |     30.0 ± 10.0 |               – |
| FedAvg |               – | **50.0 ± 10.0** |               – | **50.0 ± 10.0** |
| Ours   | **60.0 ± 10.0** |     40.0 ± 10.0 | **60.0 ± 10.0** |     40.0 ± 10.0 |

| B      |    2 Clients PM |"""
    )


def test_without_blocks_the_group_stands_above(table: Expansion, store: Store) -> None:
    shown = lay_out(replace(table, layout=LayoutTable(decimals=1)), store)
    assert "|        |   A 2 Clients PM |" in render(shown, "markdown")
    lines = render(shown, "terminal", width=100).splitlines()
    assert [line.split("┃")[1].strip() for line in lines[1:4]] == ["A", "2 Clients", "PM"]


def test_csv_has_a_line_per_cell_and_stage(table: Expansion, store: Store) -> None:
    frame = pd.read_csv(io.StringIO(render(lay_out(table, store), "csv")))
    assert len(frame) == 12
    assert set(frame.column) == {"a-2", "a-3", "b-2"}
    ours = frame[(frame.row == "Ours") & (frame.column == "a-3")].set_index("stage")
    assert ours["mean"].to_dict() == {"personalized": 60.0, "global": 40.0}
    assert set(frame[frame.method == "local"]["rounds"]) == {1}
    assert set(ours.clients) == {3} and set(ours["sem"]) == {10.0}


def test_the_footer_describes_the_models(table: Expansion, store: Store) -> None:
    foot = lay_out(table, store).footer
    assert foot == (
        "No paper has this table. Protocol: not said.",
        "Selection: personalized (each client's own model, as its training of the last round leaves it, if it leaves "
        "one); global (the server's model, on the test set); after the last round, no round or fine-tuning step is selected on test data.",
        "Seeds: 0, 1 (n = 2). ± is the standard error of the mean over seeds (ddof = 1).",
        "Scored: 2 clients of 2; 3 clients of 3, each counting the same (accuracy: correct / count).",
        "Rounds: 3 (Local: 1).",
        "Runs of the suite: 18 of 18 done, 0 failed.",
        "Commit: unknown. Device: unknown. torch: unknown.",
        "Data: d1.",
    )


def test_rounds_of_a_row_may_differ_by_column(table: Expansion, store: Store) -> None:
    short = [replace(cell, column=replace(cell.column, rounds=1)) for cell in table.cells if cell.column.id == "b-2"]
    foot = lay_out(with_cells(table, *short), store).footer
    (line,) = [line for line in foot if line.startswith("Rounds")]
    assert line == "Rounds: 3 (A 2 Clients, A 3 Clients), 1 (B 2 Clients) (Local: 1; FedAvg: 3; Ours: 3)."


def test_global_models_alone_have_no_scored_clients(table: Expansion, store: Store) -> None:
    cells = tuple(cell for cell in table.cells if cell.stage == "global")
    assert not any(line.startswith("Scored") for line in lay_out(replace(table, cells=cells), store).footer)


def test_comparison_names_the_stage(table: Expansion, store: Store) -> None:
    cell = replace(table.places["pfedvem", "a-2/personalized"], reference=Reference(61.0))
    (paper,) = appendices(lay_out(with_cells(table, cell), store))
    (line,) = [line for line in paper.lines if line[3] != "–"]
    assert line[:4] == ("Ours", "A 2 Clients PM", "60.0 ± 10.0", "61.0") and line[4].startswith("-1.0")


def test_a_stage_that_the_runs_lack_is_a_dash(personal: Personal, store: Store) -> None:
    table = personal.table("a-2")
    cell = replace(table.places["pfedvem", "a-2/personalized"], runs=table.places["fedavg", "a-2/global"].runs)
    store.write(personal.result(personal.spec(0, "fedavg", stages=("global",)), [], 0.5))
    shown = lay_out(with_cells(table, cell), store)
    assert text(shown.rows[2].cells[0], 1) == "–"
    assert text(shown.rows[1].cells[1], 1) == "50.0 (1/2)"
    assert shown.extra == ()


def test_mixed_data_marks_every_stage_of_a_column_once(personal: Personal, table: Expansion, store: Store) -> None:
    store.write(personal.result(personal.spec(0, "pfedvem"), [0.5, 0.5], 0.5, data_hash="d2"))
    shown = lay_out(table, store)
    assert [line for line in shown.footer if line.startswith("†")] == [
        "† MIXED DATA in A 2 Clients: d2 in Ours (seeds 0); d1 in Ours (seeds 1), Local (seeds 0, 1), FedAvg (seeds "
        "0, 1). These cells cannot be compared."
    ]
    assert [cell.mixed for cell in shown.rows[2].cells if cell] == [True, True, False, False, False, False]


def test_a_failure_is_named_once(personal: Personal, table: Expansion, store: Store) -> None:
    run = personal.spec(0, "pfedvem", "b-2")
    (store.runs / f"{run.id}.parquet").unlink()
    store.write(replace(personal.result(run), scores=(), failure="diverged"))
    shown = lay_out(table, store)
    assert shown.footer[0] == "Failed: Ours × B 2 Clients, seed 0: diverged"
    assert [text(cell, 1) for cell in shown.rows[2].cells[4:]] == ["70.0 (1/2, 1 failed)", "50.0 (1/2, 1 failed)"]


def test_extra_rows_fill_every_stage_they_have(personal: Personal, table: Expansion, store: Store) -> None:
    store.write(personal.result(personal.spec(0, "foo.py:Foo", "a-2"), [0.5, 0.7], 0.25))
    store.write(personal.result(personal.spec(0, "foo.py:Foo", "b-2", stages=("global",)), [], 0.75))
    shown = lay_out(table, store)
    (row,) = shown.extra
    assert [text(cell, 1) for cell in row.cells] == ["60.0 (1/2)", "25.0 (1/2)", "–", "–", "–", "75.0 (1/2)"]
    for format in ("terminal", "markdown"):
        assert render(shown, format, width=100).count("Foo") == 2  # once in every block
    store.write(personal.result(personal.spec(0, "bar.py:Bar", "b-2"), [0.5, 0.7], 0.25))
    for format in ("terminal", "markdown"):
        assert render(lay_out(table, store), format, width=100).count("Bar") == 1  # in the block that has its run


def test_a_seed_scored_at_more_stages_goes_first(personal: Personal, table: Expansion, store: Store) -> None:
    store.write(personal.result(personal.spec(0, "foo.py:Foo"), [0.5, 0.7], 0.25))
    store.write(personal.result(personal.spec(0, "foo.py:Foo", stages=("global",)), [], 0.25))
    (row,) = lay_out(table, store).extra
    assert [text(cell, 1) for cell in row.cells[:2]] == ["60.0 (1/2)", "25.0 (1/2)"]


def test_without_stages_an_extra_row_is_read_as_the_column_is(personal: Personal, store: Store) -> None:
    (column,) = personal.columns("a-2")
    table = personal.alone(personal.cell("local", column, "personalized"), blocks="none")
    store.write(personal.result(personal.spec(0, "foo.py:Foo"), [0.5, 0.7], 0.25))
    store.write(personal.result(personal.spec(0, "bar.py:Bar", stages=("global",)), [], 0.25))
    shown = lay_out(table, store)
    assert [(row.title, text(row.cells[0], 1)) for row in shown.extra] == [
        ("Foo", "60.0 (1/2)"),
        ("Foo (global)", "25.0 (1/2)"),
    ]


def test_runs_of_a_row_scored_elsewhere_are_counted(personal: Personal, table: Expansion, store: Store) -> None:
    store.write(personal.result(personal.spec(0, "fedavg"), [0.5, 0.7], 0.25))
    shown = lay_out(table, store)
    assert shown.extra == ()
    assert "Not shown: 1 stored run(s) of these rows scored at other stages." in shown.footer
