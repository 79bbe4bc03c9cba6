from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from table_kit import expansion, with_cells

from pflbench.report import text
from pflbench.report.compact import compact
from pflbench.report.facts import Fact
from pflbench.report.layout import difference, lay_out
from pflbench.report.render import CSV_COLUMNS, render
from pflbench.report.table import Row, Table
from pflbench.report.terminal import LINES
from pflbench.store import Store
from pflbench.suite.cells import Reference

if TYPE_CHECKING:
    from conftest import Build


@pytest.fixture
def table(build: Build, store: Store) -> Table:
    build.fill(store)
    store.write(build.result(build.spec(0, "lab/foo.py:Foo", version="abc"), 0.1, (0.6, 0.8)))
    references = {
        ("fedavg", "digits-a"): Reference(31.0, 1.0),
        ("fedavg", "digits-b"): Reference(90.0, 1.0),
        ("fedavg-ft", "digits-a"): Reference(70.0, None, suspect="a misprint"),
    }
    return lay_out(build.table(references=references), store)


def test_terminal(table: Table) -> None:
    shown = render(table, "terminal", width=140, color=False)
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 140
    lines = [line.split() for line in shown.splitlines()]
    assert ["┃", "Digits", "┃", "Digits"] in lines
    assert ["FedAvg", "│", "30.00", "±", "8.16", "?", "│", "40.00", "±", "8.16", "✗"] in lines
    assert ["Foo", "│", "70.00", "(1/3)", "│", "–"] in lines
    parts = ("Demo, Table 1", "FedAvg-FT", "not in the suite", "Foo", "Seeds:", "pflbench's and")
    order = [shown.index(part) for part in parts]
    assert order == sorted(order)
    # Seeds 10 apart: Student's interval reaches 24.84 on either side, and half a digit further.
    assert "30.00 ± 8.16  31.00 ± 1.00   -1.00 (-25.85 to +23.85)  ? inconclusive [1]" in shown
    assert "40.00 ± 8.16  90.00 ± 1.00  -50.00 (-74.85 to -25.15)  ✗ differs [1]" in shown
    assert "75.00 ± 8.16         70.00   +5.00 (-19.85 to +29.85)  ? inconclusive [2], reference suspect [3]" in shown
    assert "Of 3 cells held against the paper, 0.2 would be close or differ by chance alone." in shown
    assert re.search(r"85\.00 ± 8\.16 +– +– +–", shown)
    assert "[3] a misprint" in shown


def test_a_reference_of_other_decimals_is_shown_as_printed(build: Build, store: Store) -> None:
    build.fill(store)
    references = {
        ("fedavg", "digits-a"): Reference(31.1, None, text="31.1"),
        ("fedavg", "digits-b"): Reference(41.0, 1.0, text="41"),
    }
    shown = render(lay_out(build.table(references=references), store), "terminal", width=100)
    assert "30.00 ± 8.16       31.1  -1.10 (" in shown and "40.00 ± 8.16  41 ± 1.00  -1.00 (" in shown


def test_no_comparison_without_references(build: Build, store: Store) -> None:
    build.fill(store)
    assert "Ours" not in render(lay_out(build.table(), store), "terminal", width=100)


@pytest.mark.parametrize("width", [30, 44, 60])
def test_a_narrow_terminal_gets_several_blocks(table: Table, width: int) -> None:
    shown = render(table, "terminal", width=width, color=False)
    assert max(map(len, shown.splitlines())) <= width
    for number in ("30.00 ± 8.16", "40.00 ± 8.16", "75.00 ± 8.16", "85.00 ± 8.16"):
        assert number in shown


def test_styles(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    best = "\x1b[1m75.00 ± 8.16"
    assert best in render(table, "terminal", width=100, color=True)
    assert "\x1b[1m30.00" not in render(table, "terminal", width=100, color=True)
    failed = replace(table, facts=(Fact("failed", "Failed: x"),))
    assert "\x1b[33mFailed" in render(failed, "terminal", width=100, color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = render(failed, "terminal", width=100, color=True)
    assert best in plain
    assert "\x1b[3" not in plain.replace("\x1b[3m", "")


def test_output_that_is_no_terminal_has_no_styles(table: Table) -> None:
    assert "\x1b" not in render(table, "terminal")  # pytest captures standard output


def test_titles_are_text_not_markup(table: Table) -> None:
    shown = render(replace(table, title="[red]T[/red] :smile:", facts=(Fact("note", "[/]"),)), "terminal", width=100)
    assert "[red]T[/red] :smile:" in shown
    assert "\n[/]\n" in shown


def test_markdown(table: Table) -> None:
    shown = render(table, "markdown")
    cells = [[field.strip() for field in line.strip("|").split("|")] for line in shown.splitlines() if "|" in line]
    assert cells[0] == ["", "Digits Dir 0.3", "Digits Dir 5"]
    assert ["FedAvg", "30.00 ± 8.16", "40.00 ± 8.16"] in cells
    assert ["FedAvg-FT", "**75.00 ± 8.16**", "**85.00 ± 8.16**"] in cells
    assert cells.index(["*not in the suite:*", "", ""]) + 1 == cells.index(["Foo", "70.00 (1/3)", "–"])
    assert [
        "FedAvg",
        "Digits Dir 0.3",
        "30.00 ± 8.16",
        "31.00 ± 1.00",
        "-1.00 (-25.85 to +23.85)",
        "? inconclusive [1]",
    ] in cells
    assert ["FedAvg-FT", "Digits Dir 5", "85.00 ± 8.16", "–", "–", "–"] in cells
    assert shown.startswith("### Demo, Table 1\n\n|")
    assert "\n- Rounds: 3.\n" in shown


def test_markdown_escapes_pipes(table: Table) -> None:
    row = replace(table.rows[0], title="a|b")
    assert "| a\\|b " in render(replace(table, rows=(row,)), "markdown")


def test_csv_is_the_table(table: Table) -> None:
    frame = pd.read_csv(io.StringIO(render(table, "csv")))
    assert tuple(frame.columns) == CSV_COLUMNS
    assert len(frame) == 6
    assert set(frame.suite) == {"demo"}
    assert set(frame.profile) == {"paper"}
    for row in (*table.rows, *table.extra):
        for column, cell in zip(table.columns, row.cells, strict=True):
            found = frame[(frame.row == row.title) & (frame.column == column.id)]
            if cell is None:
                assert found.empty
                continue
            (line,) = found.to_dict("records")
            assert (line["method"], line["stage"], line["n"]) == (cell.method, cell.stage, cell.done)
            assert (line["rounds"], line["expected"], line["failed"]) == (cell.rounds, cell.expected, cell.failed)
            assert (line["dataset"], line["partition"], line["clients"]) == ("digits", "dirichlet", 4)
            for name in ("mean", "std", "sem", "difference"):
                assert line[name] == pytest.approx(
                    getattr(cell, name) if getattr(cell, name) is not None else float("nan"), nan_ok=True
                )
    first = frame.iloc[0]
    assert (first.reference_mean, first.reference_spread, first.verdict) == (31.0, 1.0, "inconclusive")
    assert (first.difference_low, first.difference_high) == pytest.approx((-25.846, 23.846), abs=1e-3)
    (suspect,) = frame[frame.suspect.notna()].to_dict("records")
    assert (suspect["verdict"], suspect["suspect"]) == ("inconclusive", "a misprint"), "the word of the page, and why"
    assert (suspect["difference"], suspect["difference_low"]) == (5.0, pytest.approx(-19.846, abs=1e-3))
    assert frame[frame.row == "Foo"][["std", "sem", "reference_mean", "verdict"]].isna().all(axis=None)


def test_the_short_form_has_the_verdict_and_the_papers_number_behind_ours(table: Table) -> None:
    short = compact(table)
    shown = render(short, "terminal", width=140, color=False)
    assert re.search(r"FedAvg +│ 30\.00 ± 8\.16 \? 31\.00 │ 40\.00 ± 8\.16 ✗ 90\.00\n", shown)
    assert re.search(r"FedAvg-FT +│ 75\.00 ± 8\.16 \? 70\.00 │ 85\.00 ± 8\.16\n", shown)
    assert "pflbench's and" not in shown and "[1]" not in shown and "The margin" not in shown
    barred = render(compact(replace(table, comparable=False)), "terminal")
    assert "31.00" not in barred and "✗" not in barred.split("Foo")[0]


def test_verdicts_have_a_color_and_the_papers_numbers_are_dim(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = render(compact(table), "terminal", width=140, color=True)
    assert "\x1b[31m ✗" in shown and "\x1b[33m ?" in shown and "\x1b[2m 90.00" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in render(compact(table), "terminal", width=140, color=True)


def crowded(table: Table, *, columns: int = 2, rows: int = 2, extra: int = 1) -> Table:
    """The table with more of its columns, rows and extra rows, and long facts."""
    first, foo = table.rows[0], table.extra[0]
    many = Fact("note", "A long story. " * 60, "warning")

    def wide(row: Row, i: int) -> Row:
        return replace(row, id=f"{row.id}{i}", title=f"{row.title} of a long name {i}", cells=row.cells[:1] * columns)

    return replace(
        table,
        columns=table.columns[:1] * columns,
        rows=tuple(wide(first, i) for i in range(rows)),
        extra=tuple(wide(foo, i) for i in range(extra)),
        facts=(many, *table.facts),
        missing="Missing: " + "much, " * 50,
        fills="pflbench run --suite demo",
    )


@pytest.mark.parametrize(
    ("columns", "rows", "extra", "hidden"),
    [
        (1, 3, 4, ""),
        (1, 11, 10, "9 rows outside the suite"),
        (3, 10, 9, "9 rows outside the suite, ±"),
        (9, 11, 0, "±, 6 columns"),
        (2, 60, 0, "±, 1 column, 42 rows"),
        (1, 60, 0, "±, 41 rows"),
    ],
)
def test_the_short_form_fits_a_screen(table: Table, columns: int, rows: int, extra: int, hidden: str) -> None:
    short = compact(crowded(table, columns=columns, rows=rows, extra=extra))
    lines = render(short, "terminal", width=80, color=False).splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= 80
    said = " ".join(lines)
    assert re.findall(r"Not shown: (.*?)\.", said) == [hidden] * bool(hidden)
    assert "`pflbench run --suite demo` computes the missing runs." in said, "commands are not cut"
    assert said.count("A long story.") < 15 and "…" in said
    assert said.count("31.00") >= min(rows, 14)


def test_the_short_form_names_the_largest_differences_first(build: Build, store: Store) -> None:
    build.fill(store)
    for spec in [build.spec(seed, alpha=alpha) for seed in (1, 2) for alpha in (0.3, 5.0)]:
        store.write(build.result(spec, 0.3, (0.7, 0.8)))
    for alpha in (0.3, 5.0):  # so that nothing varies: FedAvg 30, FedAvg-FT 75
        store.write(build.result(build.spec(0, alpha=alpha), 0.3, (0.7, 0.8)))
    printed = {("fedavg", "digits-a"): 33.0, ("fedavg-ft", "digits-a"): 70.0, ("fedavg", "digits-b"): 39.0}
    references = {place: Reference(mean) for place, mean in printed.items()}
    references["fedavg-ft", "digits-b"] = Reference(79.0, suspect="a misprint")
    (line,) = [line for line in compact(lay_out(build.table(references=references), store)).footer if "right (" in line]
    assert line == (
        "Against the paper, whose numbers stand right (docs/statistics.md): ✗ differs 4 (1 of them against suspect numbers); most: FedAvg, "
        "Digits Dir 5: -9.00; FedAvg-FT, Digits Dir 0.3: +5.00; FedAvg-FT, Digits Dir 5: -4.00."
    )


@pytest.fixture
def marked(build: Build, store: Store) -> Table:
    """Only the first column's cells rest on what is printed nowhere: one on a guess, one on a guess and our tuning."""
    build.fill(store)
    given = build.table()
    rests_on = {"fedavg": {"lr": "guess"}, "fedavg-ft": {"epochs": "guess", "lr": "tuned"}}
    cells = [replace(given.places[row, "digits-a"], sources=sources) for row, sources in rests_on.items()]
    return lay_out(with_cells(given, *cells), store)


def test_cells_that_rest_on_a_guess_or_our_tuning_are_marked(marked: Table) -> None:
    for format in ("terminal", "markdown"):
        shown = render(marked, format, width=200, color=False)  # type: ignore[arg-type]
        assert "30.00 ± 8.16ᵍ" in shown and "75.00 ± 8.16ᵍᵗ" in shown
        assert "40.00 ± 8.16ᵍ" not in shown and "85.00 ± 8.16ᵍ" not in shown
        explained = [line.lstrip("- ") for line in shown.splitlines() if line.lstrip("- ").startswith(("ᵍ", "ᵗ"))]
        assert explained == [
            "ᵍ rests on values that no paper or code gives, guessed: FedAvg (lr); FedAvg-FT (epochs).",
            "ᵗ rests on values that we tuned: FedAvg-FT (lr).",
        ]
    assert "**75.00 ± 8.16ᵍᵗ**" in render(marked, "markdown")
    frame = pd.read_csv(io.StringIO(render(marked, "csv"))).set_index(["row", "column"]).rests_on
    assert frame["FedAvg", "digits-a"] == "lr=guess"
    assert frame["FedAvg-FT", "digits-a"] == "epochs=guess lr=tuned"
    assert frame.isna().sum() == 2


def test_marks_leave_numbers_aligned(marked: Table) -> None:
    rows = render(marked, "terminal", width=100, color=True).splitlines()
    places = {re.sub(r"\x1b\[[0-9;]*m", "", row).index("±") for row in rows if row.startswith("FedAvg")}
    assert len(places) == 1


def test_a_difference_rests_on_what_both_sides_rest_on(marked: Table) -> None:
    guessed, both = (row.cells[0] for row in marked.rows)
    assert guessed and both
    assert difference(guessed, both, None, expansion()).rests_on == {"lr": "guess", "epochs": "guess"}


def test_an_output_without_these_characters_gets_others(marked: Table) -> None:
    shown = render(marked, "terminal", width=100, color=False)
    assert text.fitting(shown, "utf-8") == shown
    plain = text.fitting(shown, "ascii")
    assert plain.isascii() and "?" not in plain
    assert "75.00 +- 8.16gt" in plain
    assert "30.00 ± 8.16g" in text.fitting(shown, "latin-1")


def test_nothing_is_marked_or_explained_without_a_number(build: Build, store: Store) -> None:
    given = build.table()
    cells = [replace(cell, sources={"lr": "guess"}) for cell in given.cells]
    assert "ᵍ" not in render(lay_out(with_cells(given, *cells), store), "terminal", width=100)


def test_csv_leaves_out_what_has_no_run_but_not_what_failed(build: Build, store: Store) -> None:
    assert render(lay_out(build.table(), store), "csv") == ",".join(CSV_COLUMNS) + "\n"
    store.write(build.failed(build.spec(0)))
    frame = pd.read_csv(io.StringIO(render(lay_out(build.table(), store), "csv")))
    assert set(frame.failed) == {1} and set(frame.n) == {0} and frame["mean"].isna().all()


def test_csv_names_the_runs_of_a_cell(build: Build, store: Store) -> None:
    build.fill(store, seeds=1)
    frame = pd.read_csv(io.StringIO(render(lay_out(build.table(), store), "csv")))
    assert set(frame.runs) <= {stored.spec.id for stored in store.list()} and len(frame)
    assert set(frame.seeds) == {0}


def test_csv_names_the_seeds_of_a_cell(table: Table) -> None:
    frame = pd.read_csv(io.StringIO(render(table, "csv")), dtype=str)
    assert dict(zip(frame.row, frame.seeds, strict=True)) == {
        **{"FedAvg": "0 1 2", "FedAvg-FT": "0 1 2"},
        **{"Foo": "0", "Foo (global)": "0"},
    }


def test_an_empty_table_renders(build: Build, store: Store) -> None:
    empty = lay_out(build.table(references={("fedavg", "digits-a"): Reference(31.0, 1.0)}), store)
    for format in ("terminal", "markdown"):
        assert "0/3" in render(empty, format, width=100)
        assert "31.00 ± 1.00" not in render(empty, format, width=100)  # nothing of ours to compare
