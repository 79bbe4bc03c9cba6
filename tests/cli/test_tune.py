"""`pflbench tune`: trials like any other runs, the choice among them, and TOML that a suite file takes."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli
from cli_kit import SEVERAL, SUITE, method_file, stored

from pflbench.result import RunResult, Score
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.tuning import Search, searches

TUNE = """
[tune]
columns = ["shards"]
grid.fedavg = { lr = [0.05, 0.01] }
"""
WHOLE = TUNE.replace("] }", "], epochs = [1, 2] }")
SHORT = ("tune", "-s", "tuned.toml", "-m", "fedavg", "--rounds", "1")
Stub = Callable[..., Search]


@pytest.fixture(autouse=True)
def tuned(folder: Path) -> Path:
    path = folder / "tuned.toml"
    path.write_text(SUITE + TUNE)
    return path


@pytest.fixture
def results(folder: Path) -> Path:
    return folder / "results"


@pytest.fixture
def four_trials(tuned: Path) -> None:
    """The suite tries its whole grid."""
    tuned.write_text(SUITE + WHOLE)


def toml(printed: str) -> str:
    """The part to paste."""
    return printed[printed.index("# Column") :]


@pytest.fixture
def there(results: Path) -> Stub:
    """Store the trials of a search with given accuracies in percent; None: it diverged, "": it is not there."""

    def write(*accuracies: float | str | None, method: str = "fedavg", **options: object) -> Search:
        (search,) = searches(load("tuned.toml"), method, **options)  # type: ignore[arg-type]
        for trial, accuracy in zip(search.trials, accuracies, strict=True):
            if accuracy == "":
                continue
            failure = "diverged in round 1" if accuracy is None else None
            scores = (
                () if failure else tuple(_scores(trial.run.scoring.stages, search.reading.stage, float(accuracy or 0)))
            )
            Store(results).write(RunResult(trial.run, scores, {"data_hash": "d"}, failure))
        return search

    return write


def _scores(stages: tuple[str, ...], stage: str, percent: float) -> list[Score]:
    # Other stages and earlier rounds would choose otherwise.
    moments = [
        (s, round, step) for s in stages for round in (1, 2) for step in ((0, 1, 2) if s == "finetuned" else (0,))
    ]
    return [
        Score(s, round, step, client, 0, 1, 0.0, percent / 100 if (s, round) == (stage, 2) else 1 - percent / 100)
        for s, round, step in moments
        for client in (0, 1)
    ]


@pytest.mark.usefixtures("four_trials")
def test_trains_each_trial_once_and_chooses(cli, results: Path, monkeypatch) -> None:
    first = cli(*SHORT)
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith("4 runs: 0 done, 0 failed before, 4 to do.\n")
    order = re.findall(r"^\[\d/4\] shards lr=\S+ epochs=(\d) · fedavg · seed 41: ", first.out, re.MULTILINE)
    assert order == ["2", "2", "1", "1"], "the longest first"
    assert len(re.findall("best$", first.out, re.MULTILINE)) == 1
    runs = [run.spec for run in Store(results).list()]
    assert {(run.seed, run.validation, run.rounds) for run in runs} == {(41, 0.1, 1)}
    assert sorted((run.method.hyper["lr"], run.method.hyper["epochs"]) for run in runs) == [
        (0.01, 1), (0.01, 2), (0.05, 1), (0.05, 2),
    ]  # fmt: skip
    kept = stored(results)

    monkeypatch.setattr("pflbench.running.local.execute", None)  # cannot be called
    again = cli(*SHORT)
    assert again.code == 0 and again.out.startswith("4 runs: 4 done, 0 failed before, 0 to do.\n")
    assert toml(again.out) == toml(first.out) and stored(results) == kept
    quiet = cli(*SHORT, "--quiet")
    assert (quiet.code, toml(quiet.out), quiet.err) == (0, toml(first.out), "")


def test_what_is_missing_is_trained_and_nothing_else(cli, results: Path) -> None:
    cli(*SHORT)
    kept = stored(results)
    assert len(kept) == 2
    more = cli(*SHORT, "--grid", "lr=0.05,0.01,0.02")
    assert "3 runs: 2 done, 0 failed before, 1 to do." in more.out
    assert {name: now for name, now in stored(results).items() if name in kept} == kept


@pytest.mark.usefixtures("four_trials")
def test_a_report_knows_nothing_of_trials(cli, results: Path) -> None:
    one = ("--column", "shards", "--seeds", "0", "--rounds", "1")
    cli("run", "-s", "tuned.toml", *one)
    before = [cli("report", "-s", "tuned.toml", "--rounds", "1", "--format", f).out for f in ("csv", "terminal")]
    cli(*SHORT, "--set", "finetune.lr=0.1")
    assert len(stored(results)) == 6
    assert [
        cli("report", "-s", "tuned.toml", "--rounds", "1", "--format", f).out for f in ("csv", "terminal")
    ] == before
    assert "other rows" not in cli("status", "-s", "tuned.toml", "--rounds", "1").out


@pytest.mark.usefixtures("no_training", "four_trials")
def test_the_best_after_the_last_round_wins(cli, there: Stub) -> None:
    there(50.0, 70.0, 60.0, 40.0)
    result = cli("tune", "-s", "tuned.toml", "-m", "fedavg")
    assert (result.code, result.err) == (0, "")
    assert [line.split() for line in result.out.splitlines() if line.startswith("0.0")] == [
        ["0.05", "1", "50.00"], ["0.05", "2", "70.00", "best"], ["0.01", "1", "60.00"], ["0.01", "2", "40.00"],
    ]  # fmt: skip
    assert "the best of 4 trials (0 failed)" in result.out and result.out.count("is the largest that was tried") == 2
    chosen = tomli.loads(toml(result.out))["column"]["hyper"]["fedavg"]
    assert chosen == {key: {"value": value, "source": "tuned"} for key, value in (("lr", 0.05), ("epochs", 2))}


@pytest.mark.usefixtures("no_training")
def test_of_equals_the_first_wins_and_of_stages_the_rows(cli, there: Stub) -> None:
    there(60.0, 60.0)
    assert "lr = { value = 0.05" in cli("tune", "-s", "tuned.toml", "-m", "fedavg").out
    there(10.0, 10.0, 30.0, method="fedavg-ft", grid=["lr=0.3,0.2,0.1"], columns=["dirichlet"])
    finetuned = cli("tune", "-s", "tuned.toml", "-m", "fedavg-ft", "--grid", "lr=0.3,0.2,0.1", "--column", "dirichlet")
    assert "30.00 % (finetuned)" in finetuned.out and "lr = { value = 0.1," in finetuned.out


@pytest.mark.usefixtures("no_training", "four_trials")
def test_what_diverged_loses(cli, there: Stub) -> None:
    there(None, 0.0, None, 0.0)
    result = cli("tune", "-s", "tuned.toml", "-m", "fedavg")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("failed: diverged in round 1") == 2 and "the best of 4 trials (2 failed): " in result.out
    assert tomli.loads(toml(result.out))["column"]["hyper"]["fedavg"]["epochs"]["value"] == 2


@pytest.mark.usefixtures("no_training")
def test_nothing_is_chosen_where_all_failed(cli, there: Stub) -> None:
    there(None, None)
    result = cli("tune", "-s", "tuned.toml", "-m", "fedavg")
    assert result.code == 1 and "[column" not in result.out
    assert result.err.startswith("Error: shards · fedavg · seeds 41: nothing is chosen")


def test_a_trial_that_diverges_is_stored_and_may_be_tried_again(cli, results: Path) -> None:
    command = (*SHORT, "--grid", "lr=1e30,0.05")
    first = cli(*command)
    assert (first.code, first.err) == (0, "")
    assert "failed: diverged " in first.out and "lr = { value = 0.05" in first.out
    assert len(stored(results)) == 2
    assert cli(*command).out.startswith("2 runs: 1 done, 1 failed before, 0 to do.")
    assert cli(*command, "--redo", "failed").out.startswith("2 runs: 1 done, 1 failed before, 1 to do.")


def test_trials_that_cannot_be_run(cli) -> None:
    result = cli(*SHORT, "--set", "fedavg.steps=1", "--grid", "batch=5,7")
    assert result.code == 1 and "[column" not in result.out
    *_, cause, nothing = result.err.splitlines()
    assert re.match(r"Error: shards batch=[57] · fedavg · seed 41 · 1 round and 1 more: Steps of static mini", cause)
    assert nothing.endswith("nothing is chosen (of 2 trials, 2 without a result).")


@pytest.mark.usefixtures("no_training")
def test_a_dry_run_counts(cli, there: Stub) -> None:
    there(50.0, "")
    result = cli("tune", "-s", "tuned.toml", "-m", "fedavg", "--dry-run")
    assert (result.code, result.err) == (0, "")
    assert "2 runs: 1 done, 0 failed before, 1 to do." in result.out
    assert "to do\n" in result.out and "50.00" in result.out and "[column" not in result.out


@pytest.mark.usefixtures("no_training")
def test_without_the_data_nothing_is_chosen(cli, folder: Path) -> None:
    result = cli("tune", "-s", "partly.toml", "-m", "fedavg", "--column", "real", "--grid", "lr=0.1,0.2")
    assert result.code == 1 and "[column" not in result.out
    missing, nothing = result.err.splitlines()
    assert "'mnist' is not there" in missing
    assert nothing.endswith("nothing is chosen (of 2 trials, 2 without a result).")


def test_an_own_method_with_a_grid(cli, folder: Path) -> None:
    reference = method_file(folder / "mine.py")
    result = cli(
        "tune", "-s", "tiny.toml", "-m", "mine.py:Foo", "--column", "shards", "--grid", "lr=0.1,1e-5", "--rounds", "1"
    )
    assert (result.code, result.err) == (0, "")
    pasted = tomli.loads(toml(result.out))["column"]["hyper"]["mine.py:Foo"]
    assert pasted["lr"]["value"] in (0.1, 1e-5) and pasted["lr"]["source"] == "tuned"
    assert reference.endswith("mine.py:Foo")


@pytest.mark.usefixtures("four_trials")
def test_the_toml_goes_into_the_suite(cli, there: Stub, tuned: Path) -> None:
    there(1.0, 2.0, 3.0, 9.0)
    pasted = toml(cli("tune", "-s", "tuned.toml", "-m", "fedavg").out)
    head, tail = SUITE.split('[[column]]\nid = "dirichlet"')
    tuned.write_text(f'{head}{pasted}\n[[column]]\nid = "dirichlet"{tail}')
    found = {cell.column.id: cell for cell in expand(load("tuned.toml"), rows=["fedavg"]).cells}
    assert found["shards"].runs[0].method.hyper | {"lr": 0.01, "epochs": 2} == found["shards"].runs[0].method.hyper
    assert found["shards"].sources == {"lr": "tuned", "epochs": "tuned"} | {
        key: source for key, source in found["shards"].sources.items() if key not in ("lr", "epochs")
    }
    assert found["dirichlet"].runs[0].method.hyper["lr"] == 0.05


@pytest.mark.usefixtures("no_training")
def test_a_row_with_a_value_of_its_own_is_named(cli, there: Stub, tuned: Path) -> None:
    tuned.write_text(
        tuned.read_text().replace(
            'id = "fedavg"\ntitle = "FedAvg"', 'id = "fedavg"\ntitle = "FedAvg"\nhyper = { lr = 0.5 }'
        )
    )
    there(1.0, 2.0)
    out = cli("tune", "-s", "tuned.toml", "-m", "fedavg").out
    assert "# Row fedavg has its own lr, which wins.\n[column.hyper.fedavg]\n" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-s", "tiny.toml"), "Which method? Write --method ID"),
        (("-m", "fedavg"), "Which suite? Write --suite NAME"),
        (("-s", "tuned.toml", "-m", "fedavg", "--redo", "all"), "Unknown --redo 'all'"),
        (("-s", "tuned.toml", "-m", "fedavg", "--precision", "fp8"), "Unknown precision 'fp8'"),
        (("-s", "tuned.toml", "-m", "fedavg", "--seeds", "1"), "Nothing is chosen on seed 1"),
        (("-s", "tuned.toml", "-m", "fedavg", "--grid", "rate=1"), "--grid rate=1: Unknown hyperparameter of fedavg"),
        (("-s", "tuned.toml", "-m", "dito"), "Unknown method 'dito'. Did you mean 'ditto'?"),
        (("-s", "tiny.toml", "-m", "fedavg"), "tiny.toml does not say which columns it tunes"),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_a_wrong_request(cli, options: tuple[str, ...], message: str) -> None:
    result = cli("tune", *options)
    assert result.code == 2 and result.err.startswith(f"Error: {message}") and len(result.err.splitlines()) == 1


@pytest.mark.usefixtures("no_training")
def test_values_that_the_row_has_itself_are_pasted_under_the_rows_id(cli, folder: Path) -> None:
    """There alone they win: what is printed, pasted, is what the row then runs with; other rows keep theirs."""
    text = SUITE + SEVERAL
    (folder / "tuned.toml").write_text(text)
    command = ("tune", "-s", "tuned.toml", "-m", "near", "--column", "shards", "--rounds", "1")
    (search,) = searches(load("tuned.toml"), "near", columns=["shards"], rounds=1, grid=["steps=3,4"])
    for trial, percent in zip(search.trials, (10.0, 20.0), strict=True):
        scores = tuple(_scores(trial.run.scoring.stages, search.reading.stage, percent))
        last = tuple(score._replace(round=1) for score in scores if score.round == 2)
        Store(folder / "results").write(RunResult(trial.run, last, {"data_hash": "d"}, None))
    result = cli(*command, "--grid", "steps=3,4")
    assert (result.code, result.err) == (0, "") and "shards · near · seeds 41" in result.out
    pasted = toml(result.out)
    assert "which wins" not in pasted and "\n[column.hyper.near]\nsteps = { value = 4, " in pasted
    head, tail = text.split('[[column]]\nid = "dirichlet"')
    (folder / "tuned.toml").write_text(f'{head}{pasted}\n[[column]]\nid = "dirichlet"{tail}')
    steps = {(c.column.id, c.row.id): c.runs[0].method.hyper.get("steps") for c in expand(load("tuned.toml")).cells}
    assert steps["shards", "near"] == 4 and steps["dirichlet", "near"] == 2 and steps["shards", "ditto"] == 1


READ = 'read.fedavg = "last-10"\n'


def test_the_last_ten_scored_rounds_may_choose(cli, results: Path, tuned: Path) -> None:
    """Of two curves the one that ends lower and is higher on the whole wins where the suite says so."""
    (search,) = searches(load("tuned.toml"), "fedavg", rounds=12)
    for trial, (walk, end) in zip(search.trials, ((0.2, 0.9), (0.6, 0.5)), strict=True):
        scores = [
            Score("global", round, 0, -1, 0, 1, 0.0, end if round == 12 else walk if round > 2 else 1.0 - walk)
            for round in range(1, 13)
        ]
        Store(results).write(RunResult(trial.run, tuple(scores), {"data_hash": "d", "evaluate_every": 1}))
    typed = ("tune", "-s", "tuned.toml", "-m", "fedavg", "--rounds", "12", "--evaluate-every", "1")
    last = cli(*typed)
    tuned.write_text(SUITE + TUNE + READ)
    ten = cli(*typed)
    assert "90.00 % (global)" in toml(last.out) and "lr = { value = 0.05" in toml(last.out)
    assert "59.00 % (global, last ten scored rounds)" in toml(ten.out) and "lr = { value = 0.01" in toml(ten.out)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("options", "scored", "advice"),
    [
        (("--rounds", "2"), "1 of 2 rounds", "Write --rounds 10 or more, and --evaluate-every 1 or less."),
        (("--rounds", "30"), "1 of 30 rounds", "Write --rounds 30 or more, and --evaluate-every 3 or less."),
        (("--rounds", "30", "--evaluate-every", "7"), "5 of 30 rounds", "and --evaluate-every 3 or less."),
    ],
)
def test_fewer_than_ten_scored_rounds_are_refused(
    cli, tuned: Path, options: tuple[str, ...], scored: str, advice: str
) -> None:
    tuned.write_text(SUITE + TUNE + READ)
    found = cli("tune", "-s", "tuned.toml", "-m", "fedavg", *options)
    assert found.code == 2 and "last ten scored rounds" not in found.out
    assert f"and the trials in column shards are scored in {scored}." in found.err and advice in found.err
