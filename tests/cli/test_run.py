"""`pflbench run`: what runs, what is left alone, and what a resumed matrix keeps."""

import re
from pathlib import Path

import pytest
from cli_kit import method_file, stored

from pflbench.store import Store

SHORT = ("-s", "tiny.toml", "--column", "shards", "-m", "fedavg")


def test_runs_to_a_table_and_again_to_nothing(cli, folder: Path, monkeypatch) -> None:
    first = cli("run", "-s", "tiny.toml", "--column", "shards")
    assert first.code == 0 and not first.err
    assert first.out.splitlines()[0] == "4 runs: 0 done, 0 failed before, 4 to do."
    assert "[1/4] shards · ditto · seed 0: " in first.out, "the longest runs go first"
    *_, finished, last = first.out.splitlines()
    assert finished == "4 runs finished, 0 failed, 0 not started, 0 by others."
    assert last == "The table: pflbench report --suite tiny.toml --column shards"
    kept = stored(folder / "results")
    assert len(kept) == 4

    monkeypatch.setattr("pflbench.running.local.execute", None)  # cannot be called
    again = cli("run", "-s", "tiny.toml", "--column", "shards")
    assert (again.code, again.err) == (0, "")
    assert again.out.splitlines() == ["4 runs: 4 done, 0 failed before, 0 to do.", last]
    assert stored(folder / "results") == kept
    table = cli("report", "-s", "tiny.toml", "--format", "csv")
    assert table.code == 0 and "ditto" in table.out


def test_less_than_the_whole_is_said_while_running_and_in_the_table(cli, folder: Path) -> None:
    little = '[profile.little]\nseeds = [0]\ncolumn.dirichlet.dataset = { name = "digits" }\n'
    printed = "[reference]\nfedavg = { shards = [50.0], dirichlet = [60.0] }\n"
    (folder / "whole.toml").write_text((folder / "tiny.toml").read_text() + little + printed)
    asked = ("-s", "whole.toml", "--rounds", "1")
    ran = cli("run", *asked, "-m", "fedavg", "--profile", "little")
    assert ran.code == 0
    assert "dirichlet (on digits) · fedavg · seed 0" in ran.out and "shards · fedavg · seed 0" in ran.out
    shown = cli("report", *asked, "--profile", "little").out
    assert "Tiny [profile: little; 1 of 2 rounds; 1 of 2 seeds]" in shown and "digits for" in shown
    assert shown.count("nothing compares with the paper: 1 of 2 rounds; digits for rotated-digits.") == 1
    shown = cli("report", *asked, "--profile", "paper", "--column", "shards").out
    assert "Tiny [1 of 2 rounds; 1 of 2 columns]" in shown
    assert shown.count("nothing compares with the paper: 1 of 2 rounds.") == 1
    for text in (shown, cli("report", *asked, "--format", "markdown").out):
        assert "not comparable" not in text and "profile: paper" not in text


def test_redo_always_replaces(cli, folder: Path) -> None:
    cli("run", *SHORT, "--seeds", "0")
    before = stored(folder / "results")
    result = cli("run", *SHORT, "--seeds", "0", "--redo", "always")
    assert result.code == 0 and "1 done, 0 failed before, 1 to do" in result.out
    after = stored(folder / "results")
    assert after.keys() == before.keys() and after != before


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ((), 8),
        (("--seeds", "0-2,7"), 16),
        (("--profile", "smoke"), 4),
        (("--column", "dirichlet"), 4),
        (("--clients", "90"), 4),
        (("--dataset", "rotated-digits"), 4),
        (("--partition", "shards"), 4),
        (("--method", "fedavg-ft"), 4),
        (("--method", "fedavg", "--method", "ditto", "--clients", "60", "--seeds", "5"), 2),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_options_select(cli, options: tuple[str, ...], runs: int) -> None:
    result = cli("run", "-s", "tiny.toml", "--dry-run", *options)
    assert result.code == 0 and not result.err
    head, *names = result.out.splitlines()
    assert head == f"{runs} runs: 0 done, 0 failed before, {runs} to do."
    assert len(names) == runs
    assert not Path("results").exists()


def test_rounds_set_and_precision_reach_the_run(cli, folder: Path) -> None:
    result = cli(
        "run", *SHORT, "--seeds", "3", "--rounds", "1", "--precision", "fp64",
        "--set", "fedavg.lr=0.5", "--set", "finetune.lr=0.125", "--results", "elsewhere",
    )  # fmt: skip
    assert result.code == 0
    (run,) = Store(folder / "elsewhere").list()
    assert (run.spec.seed, run.spec.rounds, run.spec.precision) == (3, 1, "fp64")
    assert run.spec.method.hyper == {"epochs": 1, "lr": 0.5}
    assert run.spec.scoring.finetune and run.spec.scoring.finetune.lr == 0.125


def test_four_environment_variables_and_the_command_line_before_them(cli, folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("PFLBENCH_RESULTS", str(folder / "theirs"))
    monkeypatch.setenv("PFLBENCH_DEVICE", "cpu")
    monkeypatch.setenv("PFLBENCH_SEEDS", "4,5,6")
    monkeypatch.setenv("PFLBENCH_REDO", "always")
    assert cli("run", *SHORT, "--seeds", "0").code == 0
    assert len(Store(folder / "theirs").list()) == 1 and not (folder / "results").exists()
    assert cli("run", *SHORT, "-r", "results", "--dry-run").out.startswith("2 runs: 0 done")
    monkeypatch.setenv("PFLBENCH_DEVICE", "nothing")
    assert cli("run", *SHORT).code == 2


def test_quiet_prints_problems_only(cli) -> None:
    good = cli("run", *SHORT, "--seeds", "0", "--quiet")
    assert (good.code, good.out, good.err) == (0, "", "")
    bad = cli("run", *SHORT, "--seeds", "0", "--quiet", "--set", "fedavg.lr=1e30")
    assert (bad.code, bad.out) == (1, "") and "diverged" in bad.err


def test_divergence_is_stored_shown_left_alone_and_retried(cli, folder: Path) -> None:
    nan = ("-s", "tiny.toml", "--column", "shards", "--seeds", "0", "--set", "fedavg.lr=1e30")
    first = cli("run", *nan)
    assert first.code == 1
    assert first.err.startswith("Error: shards · fedavg · seed 0 · 2 rounds: diverged in round")
    assert len(first.err.splitlines()) == 1
    assert "1 run finished, 1 failed, 0 not started" in first.out  # Ditto is unharmed

    left = cli("run", *nan)
    assert left.code == 1
    assert left.out.splitlines()[0] == "2 runs: 1 done, 1 failed before, 0 to do."
    assert "failed before (--redo failed tries again)" in left.err
    assert "fedavg · seed 0 · 2 rounds: failed before" in left.err

    kept = {r.spec.id for r in Store(folder / "results").list() if r.failure is None}
    before = stored(folder / "results")
    retried = cli("run", *nan, "--redo", "failed")
    assert retried.code == 1 and "1 done, 1 failed before, 1 to do" in retried.out
    assert all(stored(folder / "results")[f"{id}.parquet"] == before[f"{id}.parquet"] for id in kept)

    report = cli("report", "-s", "tiny.toml", "--seeds", "0")
    said = " ".join(report.out.split())
    assert report.code == 0 and "Failed: fedavg (lr=1e+30) × Shards, seed 0: diverged in round" in said
    run = next(r for r in Store(folder / "results").list() if r.failure is not None)
    shown = cli("show", run.spec.id)
    assert shown.out.startswith(f"run {run.spec.id}: failed: diverged")


def test_a_suites_failed_run_is_in_status_and_report(cli) -> None:
    toml = Path("tiny.toml")
    toml.write_text(toml.read_text().replace("epochs = 1, lr = 0.05", "epochs = 1, lr = 1e30"))
    assert cli("run", *SHORT).code == 1
    status = cli("status", "-s", "tiny.toml")
    assert status.code == 0 and "tiny.toml [paper]: 0 done, 2 failed, 6 missing" in status.out
    assert status.out.count("fedavg seed 1: diverged") == 1
    assert "failed" in cli("report", "-s", "tiny.toml").out


def test_fail_fast_starts_nothing_more(cli) -> None:
    command = ("run", "-s", "tiny.toml", "--column", "shards", "--set", "fedavg.lr=1e30")
    result = cli(*command, "-m", "fedavg", "--fail-fast")
    assert result.code == 1
    assert "0 runs finished, 1 failed, 1 not started, 0 by others." in result.out
    patient = cli(*command)
    assert "2 runs finished, 1 failed, 0 not started" in patient.out


@pytest.mark.usefixtures("no_training")
def test_missing_data_leaves_out_its_columns_only(cli, folder: Path) -> None:
    result = cli("run", "-s", "partly.toml", "--column", "real")
    assert result.code == 1
    (line,) = result.err.splitlines()
    for part in ("'mnist'", str(folder / "data" / "MNIST" / "raw" / "train-images-idx3-ubyte"), "pflbench data fetch"):
        assert part in line
    assert not Store(folder / "results").list()


def test_columns_with_data_still_run(cli, folder: Path) -> None:
    result = cli("run", "-s", "partly.toml", "-m", "fedavg", "--column", "shards", "--column", "real", "--seeds", "0")
    assert result.code == 1 and "'mnist' is not there" in result.err
    assert [(r.spec.dataset.name, r.failure) for r in Store(folder / "results").list()] == [("digits", None)]


def test_damaged_and_foreign_files_are_named_and_redone(cli, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    cli("run", *SHORT)
    table = cli("report", "-s", "tiny.toml", "--format", "csv").out
    first, second = sorted((folder / "results" / "runs").glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:1000])
    pq.write_table(pa.table({"a": [1]}), second)

    result = cli("run", *SHORT)
    assert result.code == 0 and "2 runs: 0 done, 0 failed before, 2 to do." in result.out
    warned = result.err.splitlines()
    assert len(warned) == 2
    for file in (first, second):
        (line,) = (line for line in warned if file.name in line)
        assert line.startswith("Warning: ") and "is not a readable run" in line and "left as it is" in line
    assert cli("report", "-s", "tiny.toml", "--format", "csv").out == table


@pytest.mark.usefixtures("no_training")
def test_a_file_in_the_way_of_the_results(cli, folder: Path) -> None:
    (folder / "results").write_text("in the way")
    result = cli("run", *SHORT)
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert line.startswith("Error: Cannot write results to ") and "--results" in line


def test_a_full_disk_stops_with_one_message(cli, folder: Path, monkeypatch) -> None:
    import errno

    from pflbench.store import runfile

    cli("run", *SHORT, "--seeds", "0")
    kept = stored(folder / "results")
    calls, publish = [], runfile.publish

    def full(*arguments: object) -> None:
        def write(_: object) -> None:
            calls.append(1)
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(runfile.files, "sync", write)
        publish(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(runfile, "publish", full)
        result = cli("run", *SHORT, "--seeds", "0-3")
    assert result.code == 1 and len(calls) == 1  # nothing was trained in vain after the first
    (line,) = result.err.splitlines()
    assert "No space left on device" in line
    assert "0 runs finished, 1 failed, 2 not started, 0 by others." in result.out
    assert stored(folder / "results") == kept
    assert {path.name for path in (folder / "results" / "runs").iterdir()} == {*kept, "asked.jsonl"}
    assert cli("run", *SHORT, "--seeds", "0-3").code == 0


def test_debug_alone_shows_a_traceback(cli) -> None:
    assert "Traceback" not in cli("run", "-s", "nothing").err
    assert "Traceback" in cli("run", "-s", "nothing", "--debug").err


def test_runs_of_another_precision_are_found_and_not_denied(cli) -> None:
    assert cli("run", *SHORT, "--seeds", "0", "--precision", "fp64").code == 0
    denied = cli("report", "-s", "tiny.toml")
    assert denied.code == 2 and "1 run there has other settings" in denied.err and "--precision" in denied.err
    assert cli("report", "-s", "tiny.toml", "--precision", "fp64").code == 0
    assert "tiny.toml [paper]: 1 done" in cli("status", "-s", "tiny.toml", "--precision", "fp64").out


def test_a_progress_line_says_what_it_measured(cli) -> None:
    assert re.search(r"\d+\.\d\d % \(finetuned\) in ", cli("run", *SHORT, "--seeds", "0").out)


@pytest.mark.usefixtures("no_training")
def test_runs_go_by_their_rows_where_a_method_has_several(cli, folder: Path) -> None:
    """Ditto has two rows with runs of their own, FedAvg two that share theirs; a guest goes by its method's name."""
    method_file(folder / "foo.py")
    short = ("--column", "shards", "--seeds", "0", "--dry-run")
    assert cli("run", "-s", "several.toml", *short).out.splitlines()[1:] == [
        f"  shards · {label} · seed 0 · 2 rounds" for label in ("fedavg", "ditto", "near")
    ]
    assert "  shards · fedavg · seed 0" in cli("run", "-s", "several.toml", "-m", "fedavg-ft", *short).out
    # Whatever is asked for, a run is called the same.
    assert "  shards · near · seed 0" in cli("run", "-s", "several.toml", "-m", "near", *short).out
    guest = cli("run", "-s", "several.toml", "-m", "foo.py:Foo", *short)
    assert "  shards · foo.py:Foo · seed 0" in guest.out
    assert "  shards · ditto · seed 0" in cli("run", "-s", "tiny.toml", "-m", "ditto", *short).out


def test_progress_and_failures_go_by_rows_too(cli) -> None:
    short = ("--column", "shards", "--seeds", "0", "--rounds", "1")
    done = cli("run", "-s", "several.toml", "-m", "near", *short)
    assert done.code == 0 and "[1/1] shards · near · seed 0: " in done.out
    toml = Path("several.toml")
    toml.write_text(toml.read_text().replace("hyper = { steps = 2 }", "hyper = { lr = 1e30 }"))
    assert cli("run", "-s", "several.toml", "-m", "near", *short).err.startswith("Error: shards · near · seed 0 · 1 ro")
    assert " near seed 0: diverged" in cli("status", "-s", "several.toml", "--rounds", "1").out


@pytest.mark.usefixtures("no_training")
def test_missing_letters_are_those_of_the_columns_source(cli, folder: Path) -> None:
    from cli_kit import MISSING_COLUMN, SUITE

    column = MISSING_COLUMN.replace('name = "mnist"', 'name = "femnist-letters", source = "leaf"')
    (folder / "letters.toml").write_text(SUITE + column)
    (line,) = cli("run", "-s", "letters.toml", "--column", "real", "--dry-run").err.splitlines()
    assert "'femnist-letters' is not there" in line and "talwalkarlab/leaf" in line.lower()
    assert str(folder / "data" / "femnist" / "data") in line
    assert "data fetch" not in line and "by_class.zip" not in line, "NIST's files would not help"


def test_a_suite_says_how_often_its_runs_are_scored_and_a_row_otherwise(cli, folder: Path) -> None:
    text = (folder / "tiny.toml").read_text().replace("rounds = 2", "rounds = 3")
    text = text.replace("[evaluation]\n", "[evaluation]\nevery = 1\n")
    (folder / "often.toml").write_text(text.replace('method = "ditto"\n', 'method = "ditto"\nevery = "last"\n'))
    shown = ("-s", "often.toml", "--column", "shards", "--seeds", "0")

    def rounds() -> dict[str, set[int]]:
        store = Store(folder / "results")
        runs = [store.read(one.spec.id) for one in store.list()]
        return {run.spec.method.name: {score.round for score in run.scores} for run in runs}

    assert cli("run", *shown).code == 0
    assert rounds() == {"fedavg": {1, 2, 3}, "ditto": {3}}
    assert "2 done, 0 failed before, 0 to do" in cli("run", *shown).out
    assert cli("run", *shown, "-m", "ditto", "--evaluate-every", "2").code == 0
    assert rounds() == {"fedavg": {1, 2, 3}, "ditto": {2, 3}}


def test_a_finished_run_that_a_suite_wants_scored_more_often_is_trained_again(cli, folder: Path) -> None:
    assert cli("run", *SHORT, "--seeds", "0").code == 0
    text = (folder / "tiny.toml").read_text().replace("[evaluation]\n", "[evaluation]\nevery = 1\n")
    (folder / "often.toml").write_text(text.replace("seeds = ", 'paper_round = "best"\nseeds = ', 1))
    assert "1 run to do" in cli("plan", "-s", "often.toml", *SHORT[2:], "--seeds", "0").out
    assert "0 done, 0 failed before, 1 to do" in cli("run", "-s", "often.toml", *SHORT[2:], "--seeds", "0").out
    explained = cli("explain", "often.toml", "fedavg", "shards", "--full").out
    assert "Both are best rounds, ours of 2 scored rounds" in " ".join(explained.split())
    store = Store(folder / "results")
    (run,) = store.list()
    assert {score.round for score in store.read(run.spec.id).scores} == {1, 2}
