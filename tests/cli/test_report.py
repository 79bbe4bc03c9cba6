"""`pflbench report` at first sight: what was run last, in short, and which other tables there are."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_kit import method_file

import pflbench as pb
from pflbench.report.compact import compact
from pflbench.report.reading import readable
from pflbench.report.render import render
from pflbench.report.tables import reported
from pflbench.report.terminal import LINES
from pflbench.result import RunResult, Score
from pflbench.selection import Selection, selection
from pflbench.store import ShownStore, Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load

RUN = ("run", "-s", "tiny.toml", "--column", "shards", "--seeds", "0")


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch, folder: Path, whole: dict[str, tuple[str, ...]]) -> None:
    """Reports as they are without options."""
    whole.clear()
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("first")
def test_the_command_that_a_run_ends_with_shows_what_it_made(cli: Any) -> None:
    made = cli(*RUN, "-m", "fedavg", "--rounds", "1")
    command = made.out.splitlines()[-1]
    assert command == "The table: pflbench report --suite tiny.toml --column shards --rounds 1 --seeds 0"
    named, bare = cli(*command.split()[3:]), cli("report")
    for shown, lacking in ((named.out, "Missing: Ditto: all."), (bare.out, "FedAvg-FT: Dirichlet; Ditto: all.")):
        cells = shown.split("Missing: ")[0]
        assert "FedAvg" in cells and "Ditto" not in cells and "Dirichlet" not in cells, "only what has results"
        assert lacking in " ".join(shown.split())
        assert "1 of 2 rounds" in shown and len(shown.splitlines()) <= 24
    assert "Ditto" in cli("report", "--full", *command.split()[4:]).out
    again = cli(*RUN, "-m", "fedavg", "--rounds", "1")
    assert again.out.splitlines()[-1] == command, "also where there was nothing left to do"


@pytest.mark.usefixtures("first")
def test_what_was_run_last_comes_first_and_the_others_are_counted(cli: Any, folder: Path) -> None:
    smoke = ("--suite", "cafeme-table1", "--profile", "smoke", "--column", "rmnist-shards")
    assert cli("run", *smoke, "-m", "fedavg", "--seeds", "0", "--rounds", "4").code == 0
    assert cli(*RUN, "-m", "ditto").code == 0
    shown = cli("report").out
    assert shown.startswith("Tiny") and "Ditto" in shown
    assert re.search(r"\nClaims: .*\d+ not run.*: pflbench claims\nMore tables: pflbench report --all\n$", shown)
    assert "Claims: " not in cli("report", "-s", "tiny.toml").out
    everything = cli("report", "--all").out
    assert "CAFeMe, Table 1" in everything and "More tables" not in everything
    asked = Store(folder / "results").list()[0].provenance["asked"]
    assert set(asked) >= {"suite", "profile", "row", "column"} and asked["seeds"] == [0]


@pytest.mark.usefixtures("first")
def test_the_last_screen_of_the_readmes_first_command_shows_the_table(cli: Any, folder: Path) -> None:
    """Four columns with spreads of two digits, in a clone, where ten other tables have results."""
    shutil.copytree(Path(__file__).parents[2] / "results" / "packs", folder / "results" / "packs")
    store, table = (
        Store(folder / "results"),
        expand(load("cafeme-table1"), selection(suites=["cafeme-table1"], profile="smoke")),
    )
    cells = {run: cell for cell in table.cells for run in cell.needed}
    for run, cell in cells.items():
        assert run.scoring.finetune
        scores = (
            Score(stage, run.rounds, step, client, 30 + 60 * run.seed, 100, 1.0, 0.3 + 0.6 * run.seed)
            for stage in run.scoring.stages
            for step in range(run.scoring.finetune.steps + 1 if stage == "finetuned" else 1)
            for client in range(run.training_clients, run.clients)
        )
        provenance = {"data_hash": "d", "asked": table.provenance(cell), "finished": "9999"}  # after the committed runs
        store.write(RunResult(run, tuple(scores), provenance))
    screen = cli("report").out.splitlines()[-23:]  # the prompt is a line, too
    assert "More tables: pflbench report --all" in screen[-1]
    title = next(i for i, line in enumerate(screen) if line.startswith("CAFeMe, Table 1 [profile: smoke"))
    for row in table.rows:
        (line,) = [line for line in screen[title:] if line.startswith(f"{row.title} ")]
        assert line.count("60.00 ± 30.00") == len(table.columns) and len(line) <= 80


@pytest.mark.usefixtures("first")
def test_the_short_form_counts_cells_against_the_paper(cli: Any, folder: Path) -> None:
    printed = "[reference]\nditto = { shards = [50.0] }\n"
    (folder / "printed.toml").write_text((folder / "tiny.toml").read_text() + printed)
    assert cli("run", "-s", "printed.toml", "--column", "shards", "-m", "ditto").code == 0
    report = ("report", "-s", "printed.toml", "--column", "shards")
    assert "Against the paper, whose" in cli(*report).out


@pytest.mark.usefixtures("first", "results")
def test_one_profile_is_shown_unless_more_are_asked_for(cli: Any) -> None:
    brief = cli("report", "-s", "tiny.toml").out
    assert brief.startswith("Tiny\n") and "profile: smoke" not in brief
    assert brief.endswith("\nMore tables: pflbench report --suite tiny.toml --all\n")
    both = cli("report", "-s", "tiny.toml", "--all").out
    assert "\nTiny [profile: smoke" in both and "More tables" not in both
    assert cli("report", "-s", "tiny.toml", "--profile", "smoke").out.startswith("Tiny [profile: smoke")


def test_the_committed_tables_fit_a_screen_of_80_columns() -> None:
    """Every table and profile with results."""
    store = ShownStore(Path(__file__).parents[2] / "results")
    tables = reported(Selection(), store, readable(store)).tables
    assert len(tables) > 30
    for table in tables:
        lines = render(compact(table), "terminal", width=80, color=False).splitlines()
        assert len(lines) <= LINES and max(map(len, lines)) <= 80, table.title


def test_rows_are_chosen_by_method(cli: Any, folder: Path) -> None:
    method = method_file(folder / "foo.py")
    assert cli(*RUN, "-m", "fedavg", "-m", "ditto", "-m", method).code == 0
    whole = cli("report", "-s", "tiny.toml", "--seeds", "0", "--format", "csv").out.splitlines()
    some = cli("report", "-s", "tiny.toml", "--seeds", "0", "--format", "csv", "-m", "ditto", "-m", method).out
    kept = [line for line in whole if ",Ditto," in line or "foo.py" in line]
    assert some.splitlines() == [whole[0], *kept] and 1 < len(kept) < len(whole) - 1, "the same numbers, fewer lines"
    wrong = cli("report", "-s", "tiny.toml", "-m", "dito")
    assert wrong.code == 2 and "Did you mean 'ditto'" in wrong.err


def test_chosen_rows_alone_are_told_of(cli: Any, folder: Path) -> None:
    """On a terminal, in Markdown, on the page and in Python: nothing of FedAvg's missing seed and hyperparameters."""
    assert cli(*RUN, "-m", "fedavg", "-m", "ditto", "--set", "fedavg.lr=0.2").code == 0
    report = ("report", "-s", "tiny.toml", "--profile", "paper")
    assert "Hyperparameters of rows outside the suite: fedavg" in cli(*report, "--full").out
    table = pb.table(pb.select("tiny.toml", methods=["ditto"]), results=folder / "results")
    said = [cli(*report, "-m", "ditto", *how).out for how in ((), ("--full",), ("--format", "markdown"))]
    page = cli(*report, "-m", "ditto", "--format", "html").out
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    for one in (*said, table.to_markdown(), table.to_latex(), *map(str, data["pool"])):
        assert "fedavg" not in one.lower(), one
    assert all("--method ditto" in one for one in said)


@pytest.mark.usefixtures("first")
def test_a_report_without_a_run_says_so_with_the_command_that_makes_them(cli: Any) -> None:
    report = ("report", "-s", "tiny.toml", "--profile", "paper", "--column", "shards", "-m", "ditto")
    command = "pflbench run --suite tiny.toml --method ditto --column shards"
    for how in ((), ("--full",)):
        said = " ".join(cli(*report, *how).out.split())
        assert f"No runs yet: `{command}` makes them." in said and "Missing" not in said
    brief = cli(*report).out
    assert "Seeds:" not in brief and "0 of" not in brief and "--full" not in brief


@pytest.mark.usefixtures("first")
def test_rows_beside_the_suite_alone_have_the_seeds_that_were_run(cli: Any) -> None:
    """No row of the suite is shown, so none of its runs is counted, and no seed of it is told."""
    assert cli(*RUN, "-m", "fedprox").code == 0
    for how in ((), ("--full",)):
        said = cli("report", "-s", "tiny.toml", "-m", "fedprox", *how).out
        assert "Seeds: 0." in said and "n = 0" not in said and "of 0 done" not in said
        assert "No runs yet" not in said


def test_the_difference_of_rows_alone_counts_the_runs_behind_it(cli: Any, folder: Path) -> None:
    derived = '[[row]]\nid = "fedprox"\ntitle = "FedProx"\nmethod = "fedprox"\nstage = "global"\n\n[[derived]]\nid = "gain"\ntitle = "Gain"\nrows = ["fedprox", "fedavg"]\n'
    (folder / "gain.toml").write_text((folder / "tiny.toml").read_text() + derived)
    report = ("report", "-s", "gain.toml", "--profile", "paper", "--column", "shards", "-m", "gain", "--full")
    assert "No runs yet: " in cli(*report).out
    assert cli("run", "-s", "gain.toml", "--column", "shards", "--seeds", "0", "-m", "fedavg").code == 0
    said = cli(*report).out
    assert "Gain" in said and "Seeds: 0, 1 (n = 2)." in said and "1 of 4 done" in said


def test_fresh_keeps_the_users_packed_runs(cli: Any) -> None:
    assert cli(*RUN, "-m", "ditto").code == 0
    assert cli("pack").code == 0
    assert cli(*RUN, "-m", "fedavg").code == 0
    report = ("report", "-s", "tiny.toml", "--seeds", "0", "--format", "csv")
    assert cli(*report, "--fresh").out == cli(*report).out


def test_alone_the_program_says_what_it_is_and_what_to_do(cli: Any) -> None:
    alone = cli()
    assert alone.code == 0 and "personalized federated learning" in alone.out
    commands = [line.split("   ")[0].split()[1:] for line in alone.out.splitlines() if line.startswith("  pflbench")]
    assert [command[0] for command in commands] == ["run", "ls", "plan"]
    assert cli(*commands[0], "--dry-run").code == 0 and cli(*commands[1]).code == 0


@pytest.mark.usefixtures("first")
def test_the_short_form_says_which_row_is_scored_at_which_stage(cli: Any, folder: Path) -> None:
    mine = method_file(folder / "mine.py")
    assert cli(*RUN, "-m", "fedavg", "-m", mine).code == 0
    shown = " ".join(cli("report", "-s", "tiny.toml", "--seeds", "0", "-m", "fedavg", "-m", mine).out.split())
    assert "Accuracy in %: FedAvg-FT, Foo at stage finetuned, all others at stage global." in shown
    assert "(k/n)" not in shown, "no cell has some of its seeds and not all"
    assert "Hyperparameters of rows outside the suite: Foo, Foo (global) with lr=0.05." in shown
    full = " ".join(cli("report", "-s", "tiny.toml", "--seeds", "0", "--full").out.split())
    assert (
        "(the server's model): FedAvg, Foo (global); finetuned" in full
        and "steps 1, 2: FedAvg-FT, Ditto, Foo; after" in full
    )
    alone = " ".join(cli("report", "-s", "tiny.toml", "--seeds", "0", "-m", mine).out.split())
    assert "Accuracy in %: Foo (global) at stage global, all others at stage finetuned." in alone
    unknown = cli("report", "-s", "tiny.toml", "--seeds", "0", "-m", "fedavgg")
    assert unknown.code == 2 and "Did you mean 'fedavg'" in unknown.err and "extra:" not in unknown.err


def test_a_caption_in_latex_says_nothing_of_a_paper_where_there_is_none(cli: Any) -> None:
    assert cli(*RUN, "-m", "fedavg").code == 0
    shown = cli("report", "-s", "tiny.toml", "--seeds", "0", "--format", "latex").out
    captions = [line for line in shown.splitlines() if "\\caption{" in line]
    assert "Accuracy in \\%." in captions[0] and not [line for line in captions if "paper" in line]


@pytest.mark.usefixtures("first")
def test_a_suite_of_ones_own_is_known_by_its_runs(cli: Any, folder: Path) -> None:
    assert cli(*RUN, "-m", "fedavg").code == 0
    assert "tiny.toml [paper]: 1 done" in cli("status").out
    assert "FedAvg-FT" in cli("report", "-m", "fedavg").out
    (folder / "tiny.toml").write_text("[suite")
    broken = cli("status")
    assert broken.code == 0 and "tiny" not in broken.out and "name them with --suite FILE" in broken.out


@pytest.mark.usefixtures("first")
def test_an_own_suite_that_is_edited_stops_no_other_table(cli: Any, folder: Path) -> None:
    smoke = ("--suite", "cafeme-table1", "--profile", "smoke", "--column", "rmnist-shards")
    assert cli("run", *smoke, "-m", "fedavg", "--seeds", "0", "--rounds", "1").code == 0
    assert cli(*RUN, "-m", "fedavg").code == 0
    good = (folder / "tiny.toml").read_text()
    (folder / "tiny.toml").write_text(good.replace("[hyper]", "[hyper]\nditto2 = { steps = 1 }"))
    for look in (("report", "--all", "--rounds", "1"), ("status", "--rounds", "1")):
        shown = cli(*look)
        assert shown.code == 0 and ("CAFeMe" in shown.out or "cafeme-table1 [smoke]: 1 done" in shown.out)
    assert "ditto2" in cli("plan", "-s", "tiny.toml").err
    (folder / "tiny.toml").write_text(good.replace('name = "tiny"', 'name = "other"'))
    assert "other.toml [" not in cli("status").out, "another suite in the place of the one that asked"
