"""Text of runs, suites and files as verbs show it: nothing in it moves the cursor, runs, or reads in another order."""

from __future__ import annotations

import csv
import re
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest

from pflbench.output import plain
from pflbench.report import render
from pflbench.report.text import in_csv, in_markdown
from pflbench.result import Metric
from pflbench.store import Store

OSC = "\x1b]0;owned\x07"
LINK = "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\"
NAME = f"Fed{OSC}{LINK}\x1b[31m\x1b[2K\r\x9b1A\u202eAvg\u2066\x00"
FILE = NAME.replace("/", "").replace("\x00", "")
HTML = '<img src="//evil.example">&amp;[a](http://evil.example)|b'
FORMULA = "=cmd()"
"""As names of rows, columns and tables."""
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
CLAIM = """
[[claim]]
id = "claim-{id}"
text = {text}
source = {text}
suite = "tiny.toml"
columns = ["shards"]
row = "ditto"
against = ["fedavg-ft"]
test = "better"
least = 1.0
"""
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def toml(text: str) -> str:
    return '"' + "".join(f"\\u{ord(c):04x}" if not c.isalnum() else c for c in text) + '"'


@pytest.fixture
def hostile(results: Path, folder: Path) -> Path:
    """The tiny suite with such titles, and its runs, one of which says such things."""
    text = (folder / "tiny.toml").read_text()
    text = text.replace('title = "FedAvg"', f"title = {toml(NAME)}").replace(
        'title = "Shards"', f"title = {toml(NAME)}"
    )
    text = text.replace('title = "FedAvg-FT"', f"title = {toml(FORMULA)}").replace(
        'title = "Ditto"', f"title = {toml(HTML)}"
    )
    text = re.sub(r'(\[suite\][^[]*?title = )"[^"]*"', lambda found: found[1] + toml(f"T {NAME}\n# {HTML}"), text)
    (folder / "tiny.toml").write_text(text)
    (folder / "claims.toml").write_text(
        "".join(CLAIM.format(id=i, text=toml(one)) for i, one in enumerate((FORMULA, f"{NAME}\n# {HTML}")))
    )
    store = Store(results)
    for run in store.list():
        result = store.read(run.spec.id)
        metrics = () if result.failure else (Metric(2, 0, NAME, 1.0),)
        provenance = {**result.provenance, "commit": NAME, "device": FORMULA, "host": NAME}
        failure = result.failure and f"RuntimeError: {NAME}"
        store.write(replace(result, provenance=provenance, failure=failure, metrics=metrics))
    return folder


VERBS = {
    "report": ("report", "-s", "tiny.toml"),
    "report in short": ("report",),
    "fairness": ("report", "-s", "tiny.toml", "--fairness"),
    "markdown": ("report", "-s", "tiny.toml", "--format", "markdown"),
    "latex": ("report", "-s", "tiny.toml", "--format", "latex"),
    "csv": ("report", "-s", "tiny.toml", "--format", "csv"),
    "html": ("report", "-s", "tiny.toml", "--format", "html"),
    "explain": ("explain", "tiny.toml", "fedavg", "shards", "--no-data"),
    "status": ("status", "-s", "tiny.toml"),
    "runs": ("ls", "runs"),
    "runs as csv": ("ls", "runs", "--format", "csv"),
    "scores": ("scores", "-s", "tiny.toml"),
    "compare": ("compare", "results", "other", "-s", "tiny.toml"),
    "compare in markdown": ("compare", "results", "other", "-s", "tiny.toml", "--format", "markdown"),
    "compare as csv": ("compare", "results", "other", "-s", "tiny.toml", "--format", "csv"),
    "cite": ("cite", "tiny.toml"),
    "claims": ("claims", "claims.toml", "--full"),
    "claims in markdown": ("claims", "claims.toml", "--full", "--format", "markdown"),
    "list of claims in markdown": ("claims", "claims.toml", "--format", "markdown"),
    "claims as csv": ("claims", "claims.toml", "--format", "csv"),
    "plan": ("plan", "-s", "tiny.toml"),
    "run": ("run", "-s", "tiny.toml", "--dry-run"),
    "rerun": ("run", "-s", "tiny.toml", "--dry-run", "--redo", "failed"),
    "pack": ("pack",),
    "a name that is not there": ("report", "-s", f"{NAME}.toml"),
    "a method that is not there": ("run", "-s", "tiny.toml", "-m", NAME),
    "a folder": ("report", "-s", "tiny.toml", "-r", NAME),
    "an option": (f"--{NAME}",),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_shows_control_characters(cli, hostile: Path, verb: str) -> None:
    shutil.copytree(hostile / "results", hostile / "other")
    done = cli(*(one.replace("\x00", "") for one in VERBS[verb]))
    assert done.out + done.err
    assert HIDDEN.findall(done.out + done.err) == []
    assert "bug in pflbench" not in done.err


def test_a_run_and_each_damaged_file_are_shown_so(cli, hostile: Path) -> None:
    for run in Store(hostile / "results").list():
        shown = cli("show", run.spec.id)
        assert shown.code == 0 and HIDDEN.findall(shown.out + shown.err) == []
    packs = hostile / "results" / "packs"
    packs.mkdir()
    (packs / f"x{FILE}.parquet").write_bytes(b"no pack")
    listed = cli("ls", "runs")
    assert listed.code == 0 and "not a readable pack" in listed.err and HIDDEN.findall(listed.out + listed.err) == []
    merged = cli("merge", "results", "--into", f"x{FILE}")
    assert "8 runs merged" in merged.out and HIDDEN.findall(merged.out + merged.err) == []


def test_styles_of_a_terminal_are_our_own(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pflbench.api import select, table

    made = render.render(table(select("tiny.toml")).content, "terminal", color=True)
    assert "\x1b[1m" in made and "\x1b[31m\x1b[2K" not in made
    assert HIDDEN.findall(STYLE.sub("", made)) == []


@pytest.mark.parametrize("format", ["csv", "svg", "pdf", "png"])
def test_pictures_hold_none(cli, hostile: Path, format: str) -> None:
    done = cli("plot", "tiny.toml", "--per-client", "-o", f"out.{format}")
    assert done.code == 0 and HIDDEN.findall(done.out + done.err) == []
    if format == "svg":
        ElementTree.parse(hostile / "out.svg")  # raises at a control character
    if format == "csv":
        assert HIDDEN.findall((hostile / "out.csv").read_text()) == []


def test_a_page_that_is_written_holds_none(cli, hostile: Path) -> None:
    for name, format in (("out.html", "html"), ("out.md", "markdown"), ("out.tex", "latex"), ("out.csv", "csv")):
        assert cli("report", "-s", "tiny.toml", "--format", format, "-o", name).code == 0
        assert HIDDEN.findall((hostile / name).read_text()) == []


# ---- formulas


@pytest.mark.parametrize("verb", ["csv", "scores", "compare as csv", "runs as csv", "claims as csv"])
def test_no_field_of_a_csv_is_a_formula(cli, hostile: Path, verb: str) -> None:
    shutil.copytree(hostile / "results", hostile / "other")
    header, *lines = csv.reader(cli(*VERBS[verb]).out.splitlines())
    fields = {field for line in lines for field in line}
    assert len(lines) > 1 and len(header) > 5
    assert not {field for field in fields if field[:1] in "=+@" and field}
    assert verb == "runs as csv" or f"'{FORMULA}" in fields


def test_a_plot_as_csv_has_no_formula_and_its_numbers(cli, hostile: Path) -> None:
    assert cli("plot", "tiny.toml", "--per-client", "-o", "out.csv").code == 0
    header, *lines = csv.reader((hostile / "out.csv").read_text().splitlines())
    assert f"'{FORMULA}" in {line[header.index("series")] for line in lines}
    x = header.index("spread") - 1
    assert all(float(line[x]) >= 0 for line in lines if line[x])


def test_scores_as_parquet_are_what_the_store_has(cli, hostile: Path) -> None:
    """A file that no spreadsheet opens says what was stored."""
    assert cli("scores", "-s", "tiny.toml", "-o", "out.parquet").code == 0
    assert set(pq.read_table(hostile / "out.parquet")["device"].to_pylist()) == {FORMULA}


def test_fields_of_csv() -> None:
    assert in_csv(["=1", "+1", "-1", "@a", "\t=1", "a=1", -1.5, None, ""]) == "'=1,'+1,'-1,'@a,'\t=1,a=1,-1.5,,"


# ---- Markdown


def test_markdown_escapes_html_links_and_lines(cli, hostile: Path) -> None:
    for verb in ("markdown", "compare in markdown", "claims in markdown", "list of claims in markdown"):
        shutil.rmtree(hostile / "other", ignore_errors=True)
        shutil.copytree(hostile / "results", hostile / "other")
        text = cli(*VERBS[verb]).out
        assert "&lt;img" in text and "<img" not in text and "](" not in text
    assert not re.search("^#+ .*&lt;", text, re.MULTILINE), "a line of a claim's text begins no heading"
    title = cli(*VERBS["markdown"]).out.splitlines()[0]
    assert title.startswith("### T Fed") and "# &lt;img" in title


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("p < 0.05 & <0.1", "p < 0.05 & <0.1"),
        ("<b>&lt;</b><!--", "&lt;b>&amp;lt;&lt;/b>&lt;!--"),
        ("![x](y)", "![x]\\(y)"),
        ("a\n# b", "a # b"),
        ("a | b", "a | b"),
    ],
)
def test_words_in_markdown(words: str, shown: str) -> None:
    assert in_markdown(words) == shown


# ---- the one function


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Ä ± 1 – 日本 👩\u200d🔬\n\tx", "Ä ± 1 – 日本 👩\u200d🔬\n\tx"),
        (f"a{OSC}b", "ab"),
        (f"a{LINK}b", "ahereb"),
        ("a\x1b[1;31mb\x1b[0m", "ab"),
        ("a\x9b1Ab\x9d0;t\x9cc", "abc"),
        ("a\x1b]0;unfinished", "a"),
        ("a\x1bcb\r", "a\ufffdcb\ufffd"),
        ("\u202eab\u2066\u200f\ud800\x00\x7f", "\ufffdab\ufffd\ufffd\ufffd\ufffd\ufffd"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown and plain(shown) == shown
