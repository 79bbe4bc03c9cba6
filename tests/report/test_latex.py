from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shipped import load, with_rows
from table_kit import with_cells, without_paper

from pflbench.report.appendix import Appendix
from pflbench.report.facts import Fact, facts
from pflbench.report.latex import FITTING, NEEDS, UNICODE, Grid, escaped, latex_appendix, paged, parts, prose
from pflbench.report.layout import lay_out
from pflbench.report.render import render
from pflbench.report.table import Table
from pflbench.report.tables import reported
from pflbench.report.text import in_ascii
from pflbench.report.verdict import Verdict
from pflbench.selection import EVERYTHING
from pflbench.store import ShownStore, Store
from pflbench.suite.cells import Reference
from pflbench.suite.expand import expand
from pflbench.suite.load import read
from pflbench.suite.user_supplied import UserSupplied

if TYPE_CHECKING:
    from conftest import Build, Personal

NASTY = r"""100 % of {a_b} & #1 ~ ^2 \ $x$ <b> "q" 'r' `s` -- [t] * § Ünïcødé Łódź α = λΩο ² → ᵍ 数 é"""
HEADED = [name for name in with_rows() if read(name).document().column]


@pytest.fixture
def table(build: Build, store: Store) -> Table:
    """Numbers with marks, a best one, one below zero, a mixed and a failed cell, a row of its own, and the paper's."""
    build.fill(store)
    store.write(build.result(build.spec(0, "lab/foo_bar.py:Foo", version="abc"), 0.1, (0.6, 0.8), data_hash="d2"))
    given = build.table(
        references={("fedavg", "digits-b"): Reference(90.0, 1.0), ("fedavg-ft", "digits-a"): Reference(70.0, None)},
        notes=("Local epochs: 5 & more.",),
    )
    cell = replace(given.places["fedavg-ft", "digits-b"], sources={"lr": "guess", "epochs": "tuned"})
    found = lay_out(with_cells(given, cell), store)
    assert found.extra
    first = found.rows[0]
    failed, below = first.cells
    assert failed and below
    first = replace(first, cells=(replace(failed, done=2, failed=1), replace(below, mean=-1.5)))
    failure = "Failed: 50% of $HOME_DIR & more"
    return replace(found, rows=(first, *found.rows[1:]), facts=(Fact("failed", failure), *found.facts))


def widths(shown: str) -> list[set[int]]:
    """For each tabular how many columns its lines have, as declared and as written."""
    found = []
    for declared, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", shown, re.DOTALL):
        lines = [line.strip() for line in body.splitlines() if line.strip().endswith(r"\\")]
        spans = [[int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", line)] for line in lines]
        written = [len(re.findall(r"(?<!\\)&", line)) + 1 + sum(s) for line, s in zip(lines, spans, strict=True)]
        found.append({len(declared), *written})
    return found


def caption(shown: str) -> str:
    return next(line for line in shown.splitlines() if line.strip().startswith(r"\caption{"))


def test_a_table_is_a_float_with_all_that_markdown_says(table: Table) -> None:
    shown = render(table, "latex")
    assert shown.startswith(f"{NEEDS}\n") and shown.isascii() and shown.endswith("\\end{table*}\n")
    assert re.findall(r"\\label\{(.*)\}", shown) == ["tab:demo", "tab:demo-paper"]
    assert [len(columns) for columns in widths(shown)] == [1, 1, 1], "the paper's numbers beside ours are two parts"
    said = " ".join(shown.split())
    for line in table.footer:
        assert prose(line) in said or f"% {in_ascii(line)}" in shown.splitlines(), line


def test_the_caption_is_the_title_and_the_seeds_and_all_else_a_comment(table: Table) -> None:
    shown = render(table, "latex")
    (seeds,) = (line for line in table.footer if line.startswith("Seeds: "))
    verdicts = r"Beside the paper's number: $\times$ differs."
    assert caption(shown).strip() == f"\\caption{{Demo, Table 1. Accuracy in \\%. {prose(seeds)} {verdicts}}}"
    outside = [line for line in shown.splitlines() if not line.startswith("%")]
    for line in table.footer:
        if line != seeds:
            assert not any(prose(line) in other for other in outside), line
    assert "[profile: quick]." in caption(render(replace(table, title="Demo [profile: quick]"), "latex"))
    quick = render(replace(table, profile="quick"), "latex")
    assert "{tab:demo-quick}" in quick


def test_numbers_are_marked_bold_and_signed_as_in_print(table: Table) -> None:
    shown = render(without_paper(table), "latex")
    lines = {line.split(" & ")[0].strip(): line.strip() for line in shown.splitlines() if " & " in line}
    assert lines["FedAvg"].split(" & ")[2].startswith(r"$-$1.50")
    assert r"\textbf{85.00 $\pm$ 8.16\textsuperscript{g}\textsuperscript{t}" in lines["FedAvg-FT"]
    assert r"(2/3, 1 failed)\textsuperscript{\dag}" in lines["FedAvg"].split(" & ")[1]
    assert r"{l}{\emph{not in the suite}} \\" in shown.split("FedAvg-FT &")[1].split("Foo")[0]
    assert "% Failed: 50% of $HOME_DIR & more" in shown.splitlines()


def test_verdicts_are_glyphs_that_need_no_package_and_the_caption_tells_them(table: Table) -> None:
    first, second = table.rows
    low, high = first.cells
    assert low and high
    compared = replace(low, mixed=False, reference=Reference(31.0), verdict=Verdict("agrees", "why"))
    found = replace(table, rows=(replace(first, cells=(compared, high)), second))
    shown = render(found, "latex")
    lines = {line.split(" & ")[0].strip(): line.strip() for line in shown.split("caption")[1].splitlines()}
    assert r"\makebox[1em]{$\surd$} & " in lines["FedAvg"] and lines["FedAvg"].endswith(r"\makebox[1em]{$\times$} \\")
    assert lines["FedAvg-FT"].endswith(r"\makebox[1em]{} \\"), "a place as wide, so that numbers align"
    legend = r"Beside the paper's number: $\surd$ agrees, $\times$ differs."
    assert legend in caption(shown)
    assert "usepackage{booktabs,graphicx}" in shown and "makebox" not in render(without_paper(found), "latex")


def test_rows_and_columns_without_results_are_left_out_and_empty_cells_are_a_dot(table: Table) -> None:
    first, second = table.rows
    empty = replace(first, cells=(None, None), title="Nobody")
    partly = replace(second, cells=(None, second.cells[1]), title="Partly")
    shown = render(without_paper(replace(table, rows=(partly, empty))), "latex")
    assert "Nobody" not in shown and "Dir 0.3" in shown and "Foo" in shown
    assert r"Partly & $\cdot$ & " in shown
    alone = render(without_paper(replace(table, rows=(partly, empty), extra=())), "latex")
    assert widths(alone) == [{2}]
    assert re.findall(r"Dir [\d.]+", re.sub("(?m)^%.*", "", alone)) == ["Dir 5"]


def test_the_papers_own_method_goes_by_its_name() -> None:
    rows = {row.id: row.title for row in expand(load("pfedvem-table1")).rows}
    assert rows["pfedvem"] == "pFedVEM" and rows["local"] == "Local"


def test_the_papers_numbers_and_spreads_only_where_there_are_any(table: Table, build: Build, store: Store) -> None:
    compared = render(table, "latex").split(r"\begin{table")
    assert len(compared) == 3 and "90.00 $\\pm$ 1.00" in compared[2] and "$-$" in compared[2]
    assert "90.00" not in render(without_paper(table), "latex")
    bare = render(lay_out(build.table(shows_spread=False), store), "latex")
    assert r"$\pm$" not in bare and "85.00" in bare


def test_columns_that_share_a_group_stand_under_it(table: Table) -> None:
    above = " ".join(render(table, "latex").split(r"\midrule")[0].split())
    assert above.endswith(r"\toprule & \multicolumn{2}{c}{Digits} \\ \cmidrule(lr){2-3} & Dir 0.3 & Dir 5 \\")
    first, second = table.columns
    alone = replace(table, columns=(first, replace(second, column=replace(second.column, group=""))))
    above = " ".join(render(alone, "latex").split(r"\midrule")[0].split())
    assert r"\multicolumn{1}{c}{Digits} & \multicolumn{1}{c}{} \\ \cmidrule(lr){2-2} & Dir" in above


def test_groups_in_blocks_are_tabulars_below_each_other(personal: Personal, store: Store) -> None:
    given = personal.table("a-2", "a-3", "b-2")
    shown = render(lay_out(given, store), "latex")
    assert shown.count(r"\begin{tabular}{lrrrr}") == shown.count(r"\begin{tabular}{lrr}") == 1
    assert r" & \multicolumn{2}{c}{2 Clients} & \multicolumn{2}{c}{3 Clients} \\" in shown
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in shown
    assert r"A & PM & GM & PM & GM \\" in shown and r"B & PM & GM \\" in shown
    assert shown.count(r"\begin{table") == shown.count(r"\caption") == 1


@given(st.text())
def test_any_text_is_one_line_without_open_commands(words: str) -> None:
    found = escaped(words)
    assert found.isprintable()
    plain = re.sub(r"\\[#$%&_{}]", "", found)
    depths = [plain[:i].count("{") - plain[:i].count("}") for i in range(len(plain) + 1)]
    assert min(depths) == depths[-1] == 0
    outside = re.sub(r"\$[^$]*\$|\\[\"'`^~=.](?=\{)", "", plain)
    assert not set(outside) & set('#$%&~_^<>|"')


@given(st.text(st.characters(codec="ascii", categories=["L", "N"])))
def test_letters_and_digits_stay(words: str) -> None:
    assert escaped(words) == words


def test_characters_print_as_what_they_are() -> None:
    assert escaped("a_b & 5% of #1 {x}") == r"a\_b \& 5\% of \#1 \{x\}"
    assert escaped("C:\\new ~ 2^3") == r"C:\textbackslash{}new \textasciitilde{} 2\textasciicircum{}3"
    assert escaped("--suite x – y") == "-{}-suite x -- y"
    assert escaped("é Š ñ å ç ø α Ω ² ᵍ ½") == (
        r"\'{e} \v{S} \~{n} \r{a} \c{c} \o{} $\alpha$ $\Omega$ \textsuperscript{2} \textsuperscript{g} ½"
    )
    assert escaped("[a] and [b]") == "{}[a] and [b]"
    assert (
        escaped("数 Набор 😀") == "数 Набор 😀" and escaped("a\u202eb\0") == "a?b?" and escaped(" a\n\n b\t") == "a b"
    )


def test_titles_that_are_not_latin_stay_and_the_source_says_what_it_needs(table: Table) -> None:
    first, second = table.rows
    shown = render(replace(table, rows=(replace(first, title="数据集"), second)), "latex")
    assert "数据集" in outside_of_comments(shown) and shown.startswith(f"{NEEDS}\n{UNICODE}\n")
    assert UNICODE not in render(table, "latex")


def outside_of_comments(shown: str) -> str:
    return "\n".join(line for line in shown.splitlines() if not line.startswith("%"))


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each shipped suite's table before anything is run."""
    store = Store(tmp_path_factory.mktemp("nothing"))
    return {name: render(lay_out(expand(load(name)), store), "latex") for name in HEADED}


def test_lines_of_shipped_tables_have_all_columns(shipped: dict[str, str]) -> None:
    assert len(shipped) > 5
    for name, shown in shipped.items():
        assert widths(shown) and all(len(columns) == 1 for columns in widths(shown)), name


def compiled(texts: Iterable[str], folder: Path, options: str = "") -> str:
    """What pdflatex says of one document with all of these; any error stops it, and the test."""
    packages = ["kpsewhich", "booktabs.sty", "graphicx.sty"]
    if shutil.which("pdflatex") is None or subprocess.run(packages, stdout=subprocess.DEVNULL).returncode:
        pytest.skip("needs pdflatex with booktabs (Debian: texlive-latex-base and texlive-latex-recommended)")
    (named,) = re.findall(r"\\usepackage\{[\w,]*\}", NEEDS)
    body = "\n\\clearpage\n".join(texts)
    source = f"\\documentclass[{options}]{{article}}\n{named}\n\\begin{{document}}\n{body}\\end{{document}}\n"
    (folder / "tables.tex").write_text(source, encoding="ascii")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    said = (folder / "tables.log").read_text(encoding="utf-8", errors="replace")
    assert "Missing character" not in said
    assert "too wide) in paragraph" not in said
    return said


def test_a_table_wider_than_both_columns_of_a_page_is_split_by_groups(personal: Personal, store: Store) -> None:
    heads = {i: (f"group {i // 4}", f"title {i // 2}", "PM" if i % 2 else "GM") for i in range(8)}
    each = dict.fromkeys(heads, 50.0)
    assert parts([*heads], heads, each, 400) == [[*range(8)]]
    assert parts([*heads], heads, each, 399) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert parts([*heads], heads, each, 150) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert parts([*heads], heads, each, 40) == [[i] for i in range(8)]
    given = lay_out(personal.table("a-2", "a-3", "b-2"), store)
    group = {c.column.id: c.column.group + "x" * 60 for c in given.columns}
    wide = tuple(replace(c, column=replace(c.column, group=group[c.column.id])) for c in given.columns)
    shown = render(without_paper(replace(given, columns=wide, blocks=False)), "latex")
    assert widths(shown) == [{5}, {3}] and shown.count(r"\begin{table*}") == 1
    titles = [re.findall(r"^ +(\w+) &", part, re.MULTILINE) for part in shown.split(r"\midrule")[1:]]
    assert titles[0] == titles[1] == [row.title for row in given.rows], "each part has every row"


def test_a_table_that_one_of_two_columns_holds_is_no_wider(table: Table) -> None:
    rows = tuple(replace(row, cells=row.cells[:1]) for row in table.rows[1:])
    narrow = render(without_paper(replace(table, columns=table.columns[:1], rows=rows, extra=())), "latex")
    assert r"\begin{table}" in narrow and r"\begin{table*}" in render(without_paper(table), "latex")


def test_a_long_title_takes_several_lines(table: Table) -> None:
    first, second = table.rows
    title = "fedavg (batch=50, lr=0.001, epochs=7, momentum=0.9)"
    shown = render(without_paper(replace(table, rows=(replace(first, title=title), second))), "latex")
    lines = [line.strip().split(" & ")[0] for line in shown.splitlines() if " & " in line]
    found = lines.index("fedavg (batch=50, lr=0.001,")
    assert lines[found + 1] == r"\quad epochs=7, momentum=0.9)" and all(len(one) == 1 for one in widths(shown))


@pytest.mark.slow
def test_two_columns_hold_all_committed_results_without_shrinking(tmp_path: Path) -> None:
    store = ShownStore(Path(__file__).parents[2] / "results")
    tables = reported(EVERYTHING, store, UserSupplied()).tables
    whole = [render(one, "latex") for one in tables]
    assert all(FITTING in text for text in whole) and any("{table*}" in text for text in whole)
    said = compiled((text.replace(FITTING, "{%") for text in whole), tmp_path, "twocolumn")
    assert off_the_page(said) == [] and "Overfull" not in said


def off_the_page(said: str) -> list[str]:
    return re.findall(r".*(?:Float too large|Overfull \\vbox).*", said)


@pytest.mark.slow
def test_pdflatex_compiles_every_shipped_table(shipped: dict[str, str], table: Table, tmp_path: Path) -> None:
    """With the worst of texts at the end, which need not look well."""
    nasty = replace(
        table,
        title=NASTY,
        rows=tuple(replace(row, title=f"{start}{NASTY}") for row, start in zip(table.rows, "[*", strict=True)),
        columns=tuple(replace(c, column=replace(c.column, group=NASTY, title=NASTY)) for c in table.columns),
        facts=(
            *table.facts,
            *facts("note", NASTY, " ".join(map(chr, (*range(0x20, 0x250), *range(0x370, 0x400))))),
        ),
    )
    said = compiled([*shipped.values(), render(table, "latex"), render(nasty, "latex")], tmp_path)
    assert off_the_page(said) == []


@pytest.mark.slow
def test_pdflatex_prints_all_committed_results_and_nothing_runs_off_a_page(tmp_path: Path) -> None:
    store = ShownStore(Path(__file__).parents[2] / "results")
    tables = reported(EVERYTHING, store, UserSupplied()).tables
    assert len(tables) > 20
    assert off_the_page(compiled((render(one, "latex") for one in tables), tmp_path)) == []


def test_a_list_that_no_page_holds_goes_on_in_a_further_float(table: Table, tmp_path: Path) -> None:
    lines = [(f"Row {i // 3}", f"column {i}", "-0.50 (-1.00 to +0.25)", "3 seeds") for i in range(100)]
    header = ("Row", "Column", "Difference", "Over")
    said = latex_appendix(table, Appendix("Against", "versus", header, ("", "", ""), lines, ["By `pflbench a --b`."]))
    shown = "\n".join(said)
    floats = shown.count(r"\begin{table*}")
    assert floats >= 3 and shown.count(r"\addtocounter{table}{-1}") == shown.count("{(continued)}") == floats - 1
    assert shown.count(r"\label{") == 1 and [len(columns) for columns in widths(shown)] == [1] * floats
    body = [line.strip() for line in said if "seeds" in line]
    assert [re.findall(r"column \d+", line)[0] for line in body] == [line[1] for line in lines]
    assert "$-$0.50 ($-$1.00 to +0.25) & 3 seeds" in body[0] and "% By `pflbench a --b`." in shown
    firsts = [re.findall(r"(Row \d+) & .*", part)[0] for part in shown.split(r"\midrule")[1:]]
    assert len(set(firsts)) == floats  # each of them says of which row its first line is
    assert off_the_page(compiled([shown], tmp_path)) == []


def test_a_table_that_a_page_holds_is_one_float() -> None:
    block = Grid("lr", ["head"], ["line"] * 10)
    assert [len(some) for some in paged([block] * 3, above=3)] == [3]
    assert [len(some) for some in paged([block] * 4, above=3)] == [3, 1]
    cut = paged([Grid("lr", ["head"], ["line"] * 100)], above=3)
    assert [len(some) for some in cut] == [1, 1, 1] and sum(len(grid.body) for some in cut for grid in some) == 100
    assert paged([block], above=200) == [[], [block]]


def test_words_in_backticks_are_something_to_type() -> None:
    assert prose("Run `a --b_c` (or `d`), è “so”: ` alone") == (
        r"Run \texttt{a -{}-b\_c} (or \texttt{d}), \`{e} ``so'': ` alone"
    )
