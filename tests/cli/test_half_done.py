"""A report on a store with a diverged run beside missing ones says which, in every format, and what computes them."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest

from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load

MISSING = "Missing: FedAvg, FedAvg-FT: Shards (seed 1); Ditto: Shards."
DIVERGED = "Missing, as they failed: Ditto: Dirichlet (seed 1)."
COMPUTES = "pflbench run --suite tiny.toml --redo failed"
WHY = "diverged in round 1"


@pytest.fixture
def half(folder: Path, results: Path) -> Path:
    """The results of the tiny suite, in which Ditto diverged once, without three of its runs."""
    runs = [run for cell in expand(load("tiny.toml")).cells for run in cell.needed if cell.column.id == "shards"]
    for run in runs:
        if run.method.name == "ditto" or run.seed == 1:
            Store(results).path(run.id).unlink(missing_ok=True)
    return results


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("form", ["terminal", "short", "markdown", "latex", "csv", "html"])
def test_every_format_says_what_is_missing_what_diverged_and_the_command(
    cli, whole: dict[str, tuple[str, ...]], half: Path, form: str
) -> None:
    if form == "short":
        whole.clear()  # a terminal's
    format_ = "terminal" if form == "short" else form
    report = cli("report", "-s", "tiny.toml", "--profile", "paper", "--format", format_)
    assert report.code == 0
    said = plain(html.unescape(report.err if form == "csv" else report.out))
    for sentence in (MISSING, DIVERGED, f"`{COMPUTES}` computes them."):
        assert sentence in said, form
    if form == "csv":  # which counts them in columns of its own
        lines = [line.split(",") for line in report.out.splitlines()]
        failed = {line[lines[0].index("row")]: line[lines[0].index("failed")] for line in lines if "dirichlet" in line}
        assert failed == {"FedAvg": "0", "FedAvg-FT": "0", "Ditto": "1"}
    else:
        # A comment of LaTeX has an x.
        assert f"Failed: Ditto × Dirichlet, seed 1: {WHY}" in said.replace("Ditto x", "Ditto ×")


def test_the_command_computes_just_these(cli, half: Path) -> None:
    (typed,) = set(
        re.findall(
            r"`(pflbench run [^`]*)` computes",
            cli("report", "-s", "tiny.toml", "--profile", "paper", "--format", "markdown").out,
        )
    )
    before = {path: path.stat().st_mtime_ns for path in half.rglob("*.parquet")}
    done = cli(*shlex.split(typed)[1:])
    assert done.code == 0 and "4 runs finished, 0 failed" in done.out
    after = cli("report", "-s", "tiny.toml", "--profile", "paper", "--format", "markdown").out
    assert "Missing" not in after and "Failed" not in after and "Runs of the suite: 8 of 8 done, 0 failed" in after
    changed = [path for path, time in before.items() if not path.exists() or path.stat().st_mtime_ns != time]
    assert len(changed) == 1  # the one that diverged


@pytest.mark.parametrize("name", ["mine", "with a blank"])
def test_the_command_names_the_folder_that_was_read(cli, half: Path, name: str) -> None:
    half.rename(name)
    shown = cli("report", "-s", "tiny.toml", "--profile", "paper", "--format", "markdown", "--results", name)
    assert f"`{COMPUTES} --results {shlex.quote(name)}` computes them." in shown.out
