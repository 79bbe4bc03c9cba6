"""Which tables show which runs: a table shows its own rows, and beside them what its suite asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_kit import method_file

from pflbench.store import Store
from pflbench.store.requests import NAME, Request, requests_of

EXTENSION = """
[suite]
name = "ablation"
title = "Ablation"
extends = "tiny.toml"

[[column]]
id = "shards"
like = "shards"

[[row]]
id = "fedavg"
like = "fedavg"

[[row]]
id = "fedavg-ft"
like = "fedavg-ft"

[[row]]
id = "ditto"
like = "ditto"

[[row]]
id = "strong"
like = "ditto"
title = "Strong pull"
hyper = { lam = 10.0 }
"""
SMOKE = ("--column", "shards", "--profile", "smoke")


Cli = Callable[..., Any]


@pytest.fixture
def family(folder: Path, cli: Cli) -> Cli:
    """Both suites were run; and a third file is not finished."""
    (folder / "ablation.toml").write_text(EXTENSION)
    (folder / "broken.toml").write_text("[suite")
    assert cli("run", "-s", "tiny.toml", "-s", "ablation.toml", *SMOKE).code == 0
    return cli


@pytest.mark.parametrize("name", ["tiny", "ablation"])
def test_rows_of_related_suites_are_no_extra_rows(name: str, family: Cli) -> None:
    code, table, _ = family("report", "-s", f"{name}.toml", "--profile", "smoke")
    assert code == 0 and "Ditto" in table
    assert ("Strong pull" in table) == (name == "ablation")
    assert "not in the suite" not in table and "Not shown" not in table


def test_an_extra_row_stands_in_the_table_that_asked_for_it_and_in_no_other(family: Cli) -> None:
    assert family("run", "-s", "tiny.toml", *SMOKE, "-m", "ditto", "--set", "ditto.lam=3").code == 0
    tiny, ablation, paper = (
        family("report", "-s", f"{name}.toml", "--profile", profile).out
        for name, profile in (("tiny", "smoke"), ("ablation", "smoke"), ("tiny", "paper"))
    )
    assert "not in the suite" in tiny and "ditto (lam=3.0)" in tiny
    assert "not in the suite" not in ablation + paper
    assert "  other rows or seeds: 1 done" in family("status", "-s", "tiny.toml").out
    assert "other rows" not in family("status", "-s", "ablation.toml").out


@pytest.mark.parametrize("packed", [False, True])
def test_a_stored_run_that_another_suite_asks_for_is_remembered(family: Cli, folder: Path, packed: bool) -> None:
    again = ("-m", "ditto", "--set", "ditto.lam=3")
    assert family("run", "-s", "tiny.toml", *SMOKE, *again).code == 0
    if packed:
        assert family("pack").code == 0
    files = {path: path.read_bytes() for path in folder.glob("results/*/*.parquet")}
    assert "1 done" in family("run", "-s", "ablation.toml", *SMOKE, *again).out
    assert {path: path.read_bytes() for path in folder.glob("results/*/*.parquet")} == files, "a run never changes"
    for name in ("tiny", "ablation"):
        assert "ditto (lam=3.0)" in family("report", "-s", f"{name}.toml", "--profile", "smoke").out
    said = (folder / "results/runs" / NAME).read_text()
    assert family("run", "-s", "ablation.toml", *SMOKE, *again).code == 0
    assert (folder / "results/runs" / NAME).read_text() == said, "nothing is noted twice"


def test_two_suites_that_ask_at_once_both_show_the_run(family: Cli, folder: Path) -> None:
    method = method_file(folder / "foo.py")
    assert family("run", "-s", "tiny.toml", "-s", "ablation.toml", *SMOKE, "-m", method).code == 0
    for name in ("tiny", "ablation"):
        assert "Foo" in family("report", "-s", f"{name}.toml", "--profile", "smoke").out


def test_a_run_made_anew_for_another_suite_stays_in_the_table_of_the_first(family: Cli, folder: Path) -> None:
    method = method_file(folder / "foo.py")
    assert family("run", "-s", "tiny.toml", *SMOKE, "-m", method).code == 0
    assert family("run", "-s", "ablation.toml", *SMOKE, "-m", method, "--redo", "always").code == 0
    (run,) = (run for run in Store(folder / "results").list() if "Foo" in run.spec.method.name)
    assert run.provenance["asked"]["suite"] == "ablation"
    requests = requests_of(Store(folder / "results"))[run.spec.id]
    assert {one for one in requests if one.file} == {
        Request(name, "smoke", str(folder.resolve() / f"{name}.toml"), "foo.py:Foo", "shards")
        for name in ("tiny", "ablation")
    }


def test_a_suite_whose_runs_another_one_made_is_in_the_report_and_in_the_status(cli: Cli, folder: Path) -> None:
    twin = (folder / "tiny.toml").read_text().replace('name = "tiny"', 'name = "twin"')
    (folder / "twin.toml").write_text(twin)
    for name, made in (("tiny", "finished"), ("twin", "0 to do")):
        assert made in cli("run", "-s", f"{name}.toml", *SMOKE).out
    lines = cli("report", "--all", "--format", "csv").out.splitlines()
    assert {"tiny", "twin"} <= {line.split(",")[0] for line in lines}
    status = cli("status").out
    assert "tiny.toml [smoke]: " in status and "twin.toml [smoke]: " in status


def test_two_suites_of_one_name_are_told_apart_by_their_path(cli: Cli, folder: Path) -> None:
    text = (folder / "tiny.toml").read_text()
    for name, lam in (("a", "1.0"), ("b", "2.0")):
        (folder / name).mkdir()
        rate = text.replace("ditto = { steps = 1 }", f"ditto = {{ steps = 1, lam = {lam} }}")
        (folder / name / "tiny.toml").write_text(rate)
        assert cli("run", "-s", f"{name}/tiny.toml", *SMOKE, "-m", "ditto").code == 0
    for name in ("a", "b"):
        found = cli("report", "-s", f"{name}/tiny.toml", "--profile", "smoke").out
        assert "Ditto" in found and "not in the suite" not in found
    every = cli("report", "--all").out
    assert "a/tiny.toml)" in every and "b/tiny.toml)" in every
    assert "b/tiny.toml)" in cli("report").out
    status = cli("status").out
    assert "a/tiny.toml [smoke]: " in status and "b/tiny.toml [smoke]: " in status and "other rows" not in status


def test_a_damaged_note_costs_a_warning_alone(family: Cli, folder: Path) -> None:
    assert family("run", "-s", "tiny.toml", *SMOKE, "-m", "ditto", "--set", "ditto.lam=3").code == 0
    before = family("report", "-s", "tiny.toml", "--profile", "smoke")
    whole = len((folder / "results/runs" / NAME).read_text().splitlines())
    with (folder / "results/runs" / NAME).open("a") as file:
        file.write('[1]\n\n{"suite": "a", "profile": "b", "runs": 3}\n{"suite": "abl')
    after = family("report", "-s", "tiny.toml", "--profile", "smoke")
    assert (after.code, after.out) == (0, before.out) and not before.err
    assert [f"Line {whole + n} of " in after.err for n in range(5)] == [False, True, False, True, True]
    assert family("run", "-s", "ablation.toml", *SMOKE, "-m", "ditto", "--set", "ditto.lam=3").code == 0
    assert "ditto (lam=3.0)" in family("report", "-s", "ablation.toml", "--profile", "smoke").out


def test_a_table_that_only_borrows_another_papers_runs_waits_to_be_asked_for(cli: Cli) -> None:
    column = ("--profile", "smoke", "--column", "rmnist-shards", "--seeds", "0")
    assert cli("run", "-s", "cafeme-table1", *column, "-m", "per-fedavg").code == 0
    assert "Federated meta-learning" not in cli("report", "--seeds", "0").out
    assert "Federated meta-learning" in cli("report", "-s", "meta-learning", "--seeds", "0").out
    assert cli("run", "-s", "meta-learning", *column, "-m", "per-fedavg-first").code == 0
    assert "Federated meta-learning" in cli("report", "--seeds", "0").out
