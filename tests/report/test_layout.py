from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from table_kit import row, with_cells

from pflbench.report import table_facts
from pflbench.report.layout import lay_out
from pflbench.report.render import html, render
from pflbench.report.table import CellValue, Table
from pflbench.report.text import cell as text
from pflbench.report.text import ranges
from pflbench.store import CorruptFile, Store
from pflbench.suite.cells import Reference, Shortfall
from pflbench.suite.schema import LayoutTable, Spread

if TYPE_CHECKING:
    from conftest import Build

A, B = 0, 1
DEVIATION = math.sqrt(2 / 3) * 10  # of three numbers ten apart, ddof = 0


def value(table: Table, row: str, column: int = A) -> CellValue:
    (found,) = [r for r in (*table.rows, *table.extra) if row in (r.id, r.title)]
    cell = found.cells[column]
    assert cell is not None
    return cell


def foot(table: Table, start: str) -> str:
    (line,) = [line for line in table.footer if line.startswith(start)]
    return line


def test_one_run_fills_two_rows(build: Build, store: Store) -> None:
    build.fill(store)
    table = lay_out(build.table(spread=Spread(kind="std", ddof=0, of="each-step")), store)
    before, after = value(table, "fedavg"), value(table, "fedavg-ft")
    assert (before.stage, after.stage) == ("global", "finetuned")
    assert [before.mean, before.spread] == pytest.approx([30, DEVIATION])
    assert [after.mean, after.spread] == pytest.approx([75, DEVIATION])
    assert after.sem == pytest.approx(10 / math.sqrt(3))
    assert (after.done, after.expected, after.failed, after.rounds, after.method) == (3, 3, 0, 3, "fedavg")
    assert value(table, "fedavg", B).mean == pytest.approx(40)
    assert table.extra == ()


def test_an_empty_store_is_an_empty_table(build: Build, store: Store) -> None:
    table = lay_out(build.table(), store)
    assert [text(c, 2) for row in table.rows for c in row.cells] == ["0/3"] * 4
    assert foot(table, "Runs of the suite:") == "Runs of the suite: 0 of 6 done, 0 failed."
    assert not store.root.joinpath("runs").exists()


def test_missing_seeds_show(build: Build, store: Store) -> None:
    build.fill(store, seeds=2)
    table = lay_out(build.table(), store)
    assert text(value(table, "fedavg"), 2) == "25.00 ± 5.00 (2/3)"
    assert "only k of n seeds" in foot(table, "Seeds:")
    (store.runs / f"{build.spec(0).id}.parquet").unlink()
    assert text(value(lay_out(build.table(), store), "fedavg"), 2) == "30.00 (1/3)"


def test_a_single_seed_has_no_spread(build: Build, store: Store) -> None:
    build.fill(store, seeds=1)
    table = lay_out(build.table(seeds=1), store)
    assert text(value(table, "fedavg"), 2) == "20.00"
    assert foot(table, "Seeds:") == "Seeds: 0 (n = 1). n = 1: no spread."


def test_failures_show(build: Build, store: Store) -> None:
    store.write(build.failed(build.spec(0)))
    table = lay_out(build.table(), store)
    assert text(value(table, "fedavg"), 2) == "failed (1/3)"
    build.fill(store)
    (store.runs / f"{build.spec(2).id}.parquet").unlink()
    store.write(build.failed(build.spec(2), "Diverged: nan\nTraceback"))
    table = lay_out(build.table(), store)
    assert text(value(table, "fedavg"), 2) == "25.00 ± 5.00 (2/3, 1 failed)"
    assert (
        foot(table, "Failed:")
        == "Failed: FedAvg × Digits Dir 0.3, seed 2; FedAvg-FT × Digits Dir 0.3, seed 2: Diverged: nan"
    )
    assert foot(table, "Runs of the suite:") == "Runs of the suite: 5 of 6 done, 1 failed."


def test_damaged_files_are_missing_seeds(build: Build, store: Store) -> None:
    build.fill(store)
    path = store.runs / f"{build.spec(2).id}.parquet"
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)
    with pytest.warns(CorruptFile):
        table = lay_out(build.table(), store)
    assert text(value(table, "fedavg"), 2) == "25.00 ± 5.00 (2/3)"
    assert foot(table, "Runs of the suite:") == "Runs of the suite: 5 of 6 done, 0 failed."


def test_cells_the_paper_leaves_out(build: Build, store: Store) -> None:
    given = build.table()
    cells = tuple(cell for place, cell in given.places.items() if place != ("fedavg", "digits-b"))
    table = lay_out(replace(given, cells=cells), store)
    assert [text(c, 2) for c in table.rows[0].cells] == ["0/3", "–"]


def test_the_best_of_a_column(build: Build, store: Store) -> None:
    build.fill(store)
    table = lay_out(build.table(), store)
    assert [value(table, row, c).best for row in ("fedavg", "fedavg-ft") for c in (A, B)] == [False, False, True, True]
    assert not value(lay_out(build.table(bold="none"), store), "fedavg-ft").best


def test_cells_that_print_alike_are_best_alike(build: Build, store: Store) -> None:
    for seed in range(3):
        store.write(build.result(build.spec(seed), 0.5, (0.500001, 0.500001)))
    table = lay_out(build.table(), store)
    assert value(table, "fedavg").best
    assert value(table, "fedavg-ft").best


def test_verdicts(build: Build, store: Store) -> None:
    build.fill(store)
    references = {
        ("fedavg", "digits-a"): Reference(31.0, 1.0),
        ("fedavg", "digits-b"): Reference(90.0, 1.0),
        ("fedavg-ft", "digits-a"): Reference(75.0, 1.0, suspect="a misprint"),
    }
    table = lay_out(build.table(references=references), store)
    assert value(table, "fedavg").difference == pytest.approx(-1)
    labels = [v.verdict and v.verdict.label for row in table.rows for v in row.cells if v]
    assert labels == ["inconclusive", "differs", "inconclusive", None]
    suspect = value(table, "fedavg-ft").verdict
    assert suspect and (suspect.label, suspect.suspect) == ("inconclusive", "a misprint")


def test_a_number_that_a_setting_was_inferred_from_compares_with_nothing(build: Build, store: Store) -> None:
    build.fill(store)
    references = {("fedavg", "digits-a"): Reference(31.0, 1.0, inferred="the optimizer")}
    verdict = value(lay_out(build.table(references=references), store), "fedavg").verdict
    assert verdict and verdict.label == "not comparable"
    assert verdict.reason == "setting inferred from this reference: the optimizer"


def test_less_than_the_whole_is_marked_once(build: Build, store: Store) -> None:
    build.fill(store)
    references = {("fedavg", "digits-a"): Reference(31.0, 1.0), ("fedavg", "digits-b"): Reference(90.0, 1.0)}
    less = {"shortfall": Shortfall("3 of 9 rounds", "3 of 5 seeds", other=("digits for cifar10",))}
    table = lay_out(build.table(references=references, **less), store)
    verdict = value(table, "fedavg").verdict
    assert verdict and verdict.label == "not comparable"
    assert table.title == "Demo, Table 1 [3 of 9 rounds; 3 of 5 seeds]"
    for format in ("terminal", "markdown"):
        shown = render(table, format, width=200)  # type: ignore[arg-type]
        assert shown.count("nothing compares with the paper: 3 of 9 rounds; digits for cifar10.") == 1
        assert "not comparable" not in shown and "31.00" not in shown
    assert render(table, "csv").count("not comparable") == 2
    other = build.table(references=references, profile="smoke", shortfall=Shortfall(seeds="3 of 5 seeds"))
    table = lay_out(other, store)  # fewer seeds alone: each cell is what it says
    assert table.title == "Demo, Table 1 [profile: smoke; 3 of 5 seeds]"
    assert "differs" in render(table, "markdown")


def test_no_verdict_without_runs(build: Build, store: Store) -> None:
    table = lay_out(build.table(references={("fedavg", "digits-a"): Reference(31.0, 1.0)}), store)
    assert value(table, "fedavg").verdict is None
    assert value(table, "fedavg").difference is None


def test_mixed_data_is_never_silent(build: Build, store: Store) -> None:
    build.fill(store)
    store.write(build.result(build.spec(1), 0.3, (0.7, 0.8), data_hash="d2"))
    table = lay_out(build.table(references={("fedavg", "digits-a"): Reference(30.0, 1.0)}), store)
    assert table.footer[0].startswith("† MIXED DATA in Digits Dir 0.3: d1 in FedAvg (seeds 0, 2)")
    assert "d2 in FedAvg (seeds 1)" in table.footer[0]
    assert text(value(table, "fedavg"), 2) == "30.00 ± 8.16 †"
    assert (value(table, "fedavg").mixed, value(table, "fedavg", B).mixed) == (True, False)
    assert (value(table, "fedavg-ft").best, value(table, "fedavg-ft", B).best) == (False, True)
    verdict = value(table, "fedavg").verdict
    assert verdict and verdict.label == "not comparable"
    assert foot(table, "Data:") == "Data: d1 / d2 (Digits Dir 0.3), d1 (Digits Dir 5)."


def test_a_row_of_a_method_that_was_not_checked_says_so(build: Build, store: Store) -> None:
    build.fill(store)
    store.write(build.result(build.spec(0, "lab/foo.py:Foo"), 0.5, unchecked=True))
    table = lay_out(build.table(), store)
    assert [row.title for row in table.extra] == ["Foo (unchecked)", "Foo (global) (unchecked)"]
    assert [row.title for row in table.rows] == [row.title for row in build.table().rows]
    assert (
        foot(table, "Trained with")
        == "Trained with --unchecked, not held against the contract of methods: Foo, Foo (global)."
    )


def test_data_of_an_extra_row_counts(build: Build, store: Store) -> None:
    build.fill(store)
    store.write(build.result(build.spec(0, "lab/foo.py:Foo"), 0.5, data_hash="d2"))
    assert value(lay_out(build.table(), store), "fedavg").mixed


def test_mixed_versions_are_never_silent(build: Build, store: Store) -> None:
    build.fill(store)
    given = build.table()
    old = tuple(build.spec(seed, version="0") for seed in range(3))
    for spec in old:
        store.write(build.result(spec, 0.5))
    table = lay_out(with_cells(given, replace(given.places["fedavg", "digits-a"], runs=old)), store)
    assert foot(table, "†").startswith("† MIXED VERSIONS of fedavg in Digits Dir 0.3: 0, 1")
    assert value(table, "fedavg").mixed


def test_extra_rows_are_labeled_by_class_with_the_global_models_in_a_second_one(build: Build, store: Store) -> None:
    for seed in range(3):
        store.write(build.result(build.spec(seed, "lab/foo.py:Foo"), 0.1, (0.6, 0.8)))
    table = lay_out(build.table(), store)
    assert [row.title for row in table.extra] == ["Foo", "Foo (global)"]
    cell, server = value(table, "Foo"), value(table, "Foo (global)")
    assert cell.mean == pytest.approx(70) and server.mean == pytest.approx(10)
    assert (cell.stage, cell.method) == ("finetuned", "lab/foo.py:Foo")
    assert (server.stage, server.method, server.runs) == ("global", "lab/foo.py:Foo", cell.runs)
    assert table.extra[0].cells[B] is None
    assert foot(table, "Runs of the suite:") == "Runs of the suite: 0 of 6 done, 0 failed."


def test_extra_rows_of_two_files_or_versions(build: Build, store: Store) -> None:
    for name, version in (
        ("a.py:Foo", "1"),
        ("b.py:Foo", "1"),
        ("c.py:Bar", "aa"),
        ("c.py:Bar", "bb"),
        ("fedavg", "0"),
    ):
        store.write(build.result(build.spec(0, name, version=version), 0.5))
    table = lay_out(build.table(), store)
    titles = [row.title for row in table.extra if not row.title.endswith(" (global)")]
    assert titles == ["Bar", "a.py:Foo", "b.py:Foo", "fedavg@0"]
    assert text(value(table, "Bar"), 2) == "50.00 (1/3)"


def test_of_runs_that_nobody_is_known_to_have_asked_for_users_methods_are_extra_rows(
    build: Build, store: Store
) -> None:
    build.fill(store)
    for spec in (build.spec(0, "lab/foo.py:Foo"), build.spec(0, local_lr=3.0), build.spec(7)):
        store.write(build.result(spec, 0.5, asked=None))
    store.write(build.result(build.spec(0, "lab/bar.py:Bar"), 0.5, asked={"suite": "other", "profile": "paper"}))
    table = lay_out(build.table(), store)
    assert [row.title for row in table.extra] == ["Foo", "Foo (global)"]
    assert foot(table, "Not shown:").startswith("Not shown: 1 stored run(s) of fedavg with other seeds")


def test_extra_rows_show_what_differs(build: Build, store: Store) -> None:
    build.fill(store)
    store.write(build.result(build.spec(0, local_lr=3.0), 0.5))
    store.write(build.result(build.spec(0, finetune_lr=0.5), 0.5))
    table = lay_out(build.table(), store)
    assert [row.title for row in table.extra] == ["fedavg (finetune lr=0.5)", "fedavg (local_lr=3.0)"]


def test_extra_rows_join_over_columns(build: Build, store: Store) -> None:
    for alpha, lr in ((0.3, 0.1), (5.0, 0.2)):
        store.write(build.result(build.spec(0, "foo.py:Foo", alpha=alpha, lr=lr), 0.5))
    row, server = lay_out(build.table(), store).extra
    assert (row.title, server.title) == ("Foo", "Foo (global)")
    assert all(row.cells) and all(server.cells)
    store.write(build.result(build.spec(0, "foo.py:Foo", lr=0.3), 0.5))
    rows = lay_out(build.table(), store).extra
    titles, ids = [row.title for row in rows], {row.id for row in rows}
    assert len(ids) == 6 and all(re.fullmatch("extra:[0-9a-f]{12}(:global)?", id) for id in ids)
    assert titles[::2] == ["Foo (lr=0.1)", "Foo (lr=0.2)", "Foo (lr=0.3)"]


def test_an_extra_row_never_takes_a_suite_rows_place(build: Build, store: Store) -> None:
    given = build.table(rows=(row("ditto", "Ditto"),))
    cells = tuple(
        replace(cell, row=given.rows[0], runs=tuple(build.spec(s, "ditto", alpha=alpha) for s in range(3)))
        for alpha, cell in ((0.3, given.places["fedavg", "digits-a"]), (5.0, given.places["fedavg", "digits-b"]))
    )
    store.write(build.result(build.spec(0, "file.py:ditto"), 0.5))
    table = lay_out(replace(given, cells=cells), store)
    assert text(table.rows[0].cells[A], 2) == "0/3"
    assert [row.title for row in table.extra] == ["file.py:ditto"]


def test_runs_of_other_settings_stay_out(build: Build, store: Store) -> None:
    store.write(build.result(build.spec(0, "foo.py:Foo", rounds=99), 0.5))
    assert lay_out(build.table(), store).extra == ()


def test_further_seeds_of_a_suite_row_are_counted(build: Build, store: Store) -> None:
    build.fill(store)
    store.write(build.result(build.spec(7), 0.9))
    table = lay_out(build.table(), store)
    assert table.extra == ()
    assert value(table, "fedavg").mean == pytest.approx(30)
    assert foot(table, "Not shown:").startswith("Not shown: 1 stored run(s)")
    assert foot(table, "Not shown:").endswith("(7).")


def test_extra_rows_have_the_tables_seeds(build: Build, store: Store) -> None:
    build.fill(store)
    for seed, accuracy in enumerate((0.3, 0.5, 0.7, 1.0, 1.0)):
        store.write(build.result(build.spec(seed, "lab/foo.py:Foo"), 0.1, (accuracy, accuracy)))
    store.write(build.result(build.spec(7, "bar.py:Bar"), 0.9))
    table = lay_out(build.table(), store)
    foo, fedavg = value(table, "Foo"), value(table, "fedavg-ft")
    assert set(foo.seeds) == set(foo.runs) == set(fedavg.seeds) == {0, 1, 2}
    assert foo.mean == pytest.approx(50) and (foo.done, foo.expected) == (3, 3)
    assert (foo.best, fedavg.best) == (False, True)  # with all five seeds, Foo's mean would be 70
    assert [row.title for row in table.extra] == ["Foo", "Foo (global)"]  # no seed of the table is done with Bar
    assert foot(table, "Not shown:") == (
        "Not shown: 3 stored run(s) of Bar, Foo with other seeds than the table's (3, 4, 7)."
    )


def test_a_row_without_all_its_seeds_may_lead_and_then_nothing_else_is_bold(build: Build, store: Store) -> None:
    build.fill(store)
    for seed in (1, 2):
        store.write(build.result(build.spec(seed, "lab/foo.py:Foo"), 0.1, (0.9, 0.9)))
    table = lay_out(build.table(), store)
    assert (value(table, "Foo").best, value(table, "fedavg-ft").best) == (True, False)
    assert value(table, "Foo").leads
    assert text(value(table, "Foo"), 2) == "90.00 ± 0.00 (2/3)"
    assert foot(table, "Seeds:").endswith(
        "(k/n): only k of n seeds are done. Bold italic (_…_ in plain text): the highest of its column, though seeds are "
        "missing."
    )
    assert "**_90.00 ± 0.00 (2/3)_**" in render(table, "markdown") and "**75.00" not in render(table, "markdown")
    assert r"\textbf{\textit{90.00 $\pm$ 0.00 (2/3)}}" in render(table, "latex")
    assert "<b><i>90.00 ± 0.00 (2/3)</i></b>" in html(table)
    assert "_90.00 ± 0.00 (2/3)_" in render(table, "terminal", color=False, width=120)
    assert "\x1b[1;3m90.00 ± 0.00 (2/3)" in render(table, "terminal", color=True, width=120)
    store.write(build.result(build.spec(0, "lab/foo.py:Foo"), 0.1, (0.0, 0.0)))
    table = lay_out(build.table(), store)
    assert (value(table, "Foo").best, value(table, "fedavg-ft").best) == (False, True)
    assert "italic" not in foot(table, "Seeds:") and "**75.00 ± 8.16**" in render(table, "markdown")


def test_means_of_different_seeds_are_told(build: Build, store: Store) -> None:
    table = build.table()
    own = table.places["fedavg", "digits-a"]
    other = replace(own, row=table.rows[1], runs=tuple(build.spec(seed, "fedprox") for seed in range(3)))
    table = replace(table, cells=(own, other))
    store.write(build.result(build.spec(0), 0.2))
    store.write(build.result(build.spec(1, "fedprox"), 0.2))
    told = "Rows whose means are of different seeds, and so not to be compared: Digits Dir 0.3: FedAvg 0, FedAvg-FT 1."
    assert told in lay_out(table, store).footer
    store.write(build.result(build.spec(1), 0.2))  # now one has all that the other has: (k/n) says the rest
    assert not any(line.startswith("Rows whose") for line in lay_out(table, store).footer)


def test_the_footer_says_what_the_numbers_are(build: Build, store: Store) -> None:
    build.fill(store, commit="0123456789abcdef", dirty=True, device="NVIDIA H200")
    table = lay_out(build.table(spread=Spread(kind="std", ddof=0, of="each-step"), notes=("A note.",)), store)
    assert table.footer == (
        "Paper: arXiv:0000.00000. Protocol: not said.",
        "Selection: global (the server's model): FedAvg; finetuned (fine-tuned on each client's support), mean of "
        "fine-tuning steps 1, 2: FedAvg-FT; after the last round, no round or fine-tuning step is selected on test data.",
        "Seeds: 0–2 (n = 3). ± is the standard deviation over seeds (ddof = 0), averaged over the steps read.",
        "Scored: 2 held-out clients of 4, each counting the same (accuracy: unweighted mean over its query batches).",
        "Rounds: 3.",
        "Runs of the suite: 6 of 6 done, 0 failed.",
        "Commit: 0123456789ab (dirty). Device: NVIDIA H200. torch: 2.11.",
        "Data: d1.",
        "A note.",
    )
    assert "standard error of the mean" in foot(
        lay_out(build.table(spread=Spread(kind="sem", ddof=1)), store), "Seeds:"
    )


@pytest.mark.parametrize(
    ("numbers", "printed"),
    [([0, 1, 2, 3, 4], "0–4"), ([5, 0, 2], "0, 2, 5"), ([48, 49], "48, 49"), ([0, 2, 3, 4], "0, 2–4"), ([], "")],
)
def test_ranges(numbers: list[int], printed: str) -> None:
    assert ranges(numbers) == printed


def test_it_depends_on_nothing_else(
    build: Build, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.fill(store)
    table = lay_out(build.table(), store)
    monkeypatch.chdir(tmp_path)
    assert lay_out(build.table(), Store(store.root)) == table


def test_what_a_round_costs_stands_below_the_table_if_asked_for(build: Build, store: Store) -> None:
    table = build.table()
    run = table.places["fedavg", "digits-a"].runs[0]
    store.write(build.result(run, 0.5, client_seconds=6.0, shared_rows=17))
    lines = lay_out(replace(table, layout=LayoutTable(costs=True)), store).footer
    costs = [line for line in lines if line.startswith("A round of ")]
    assert costs and all("2 s" in line for line in costs)  # six seconds over three rounds
    assert not any(line.startswith("A round of ") for line in lay_out(table, store).footer)
    assert "Several clients hold the same 17 images of digits (by seed)." in lines


def test_extra_rows_rest_on_the_columns_settings_and_on_values_they_have_in_common(build: Build, store: Store) -> None:
    rests_on = {"dataset": "guess", "finetune.lr": "guess", "lr": "tuned", "epochs": "guess", "rounds": "guess"}
    given = build.table()
    named = [build.spec(seed, lr=0.1, epochs=5) for seed in range(3)]
    cells = []
    for id in ("fedavg", "fedavg-ft"):
        told = rests_on if id == "fedavg-ft" else {k: s for k, s in rests_on.items() if k != "finetune.lr"}
        cells.append(replace(given.places[id, "digits-a"], runs=tuple(named), sources=told))
    table = with_cells(given, *cells)
    guests = [
        build.spec(lr=0.1, epochs=7),  # the suite's method with one value of its user's
        build.spec(name="mine.py:Mine", version="abc", lr=0.1),
        build.spec(name="pfedbayes"),
    ]
    for guest in guests:
        store.write(build.result(guest, 0.5))
    found = {row.title: row.cells[0].rests_on for row in lay_out(table, store).extra if row.cells[0]}
    shared = {"dataset": "guess", "finetune.lr": "guess", "rounds": "guess"}
    assert found.pop("Mine (global)") == {"dataset": "guess", "rounds": "guess"}
    assert found == {"fedavg (epochs=7)": shared | {"lr": "tuned"}, "Mine": shared, "pfedbayes": shared}
    shown = render(lay_out(table, store), "markdown")
    assert "Mine, fedavg (epochs=7), pfedbayes (dataset, finetune.lr, rounds)" in shown
    assert "ᵗ rests on values that we tuned: fedavg (epochs=7) (lr)." in shown


def test_a_methods_value_at_its_default_marks_no_other_methods_row(build: Build, store: Store) -> None:
    """`[sources] pfedme.inner_lr`: it is in the `hyper` of no run, since it is None."""
    given = build.table()
    runs = tuple(build.spec(seed, "pfedme", lr=0.1) for seed in range(3))
    cell = replace(given.places["fedavg", "digits-a"], runs=runs, sources={"inner_lr": "guess", "dataset": "guess"})
    store.write(build.result(build.spec(name="pfedvem"), 0.5))
    store.write(build.result(build.spec(name="pfedme", lr=0.2), 0.5))
    found = lay_out(with_cells(given, cell), store)
    rests_on = {row.title: row.cells[0].rests_on for row in found.extra if row.cells[0]}
    assert rests_on["pfedvem"] == {"dataset": "guess"}
    assert rests_on["pfedme (lr=0.2)"] == {"dataset": "guess", "inner_lr": "guess"}


def test_a_mean_that_rounding_moves_is_not_told_as_another_weighting(build: Build, store: Store) -> None:
    """Clients of the same size: both means are 0.285 but for rounding, which prints 28 and 29."""
    for seed in range(3):
        store.write(build.result(build.spec(seed), 0.285))
    given = build.table(decimals=0)
    cells = tuple(replace(cell, reading=replace(cell.reading, mean="examples")) for cell in given.cells)
    table = lay_out(replace(given, cells=cells), store)
    one = value(table, "fedavg")
    for mean, plain, told in ((28.5 + 1e-12, 28.5, False), (28.4, 28.6, True)):
        grid = {("fedavg", "digits-a"): replace(one, mean=mean, plain=plain)}
        assert bool(table_facts.unweighted_means(replace(given, cells=cells), grid)) == told


def test_a_table_that_no_paper_has_is_not_held_against_one(build: Build, store: Store) -> None:
    build.fill(store)
    shown = render(lay_out(build.table(paper="none", shortfall=Shortfall("3 of 9 rounds")), store), "markdown")
    assert "- Less than the whole protocol: 3 of 9 rounds." in shown and "- No paper has this table. Protocol:" in shown
    assert "nothing compares" not in shown and "Paper: none" not in shown
