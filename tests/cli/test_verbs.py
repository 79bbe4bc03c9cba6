"""What the other verbs print."""

import dataclasses
import errno
import json
import os
import re
from pathlib import Path

import pytest
import typer
from cli_kit import method_file, stored
from typer.testing import CliRunner

import pflbench
from pflbench import names
from pflbench.cli import main as program
from pflbench.report.methods import describe_method
from pflbench.result import RunResult
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load

SHORT = ("-s", "tiny.toml", "--column", "shards", "-m", "fedavg")


@pytest.fixture
def two_runs(cli, folder: Path) -> list[str]:
    """The ids of two finished runs."""
    assert cli("run", *SHORT).code == 0
    return [run.spec.id for run in Store(folder / "results").list()]


def test_version(cli) -> None:
    assert cli("--version") == (0, f"pflbench {pflbench.__version__}\n", "")


def test_info_is_json_for_a_bug_report(cli, folder: Path) -> None:
    found = json.loads(cli("info").out)
    assert found["pflbench"] == pflbench.__version__ and found["cores"] >= 1
    assert found["data_root"] == str(folder / "data")
    assert {"torch", "python", "commit", "dirty", "platform", "processor", "gpus", "suites"} <= found.keys()


@pytest.mark.usefixtures("no_training")
def test_plan_before_any_run(cli) -> None:
    result = cli("plan", *SHORT)
    assert result.code == 0 and not Path("results").exists()
    assert re.search(r"shards +fedavg +2 +0 +0 +2 +unknown", result.out)
    assert "2 runs to do: 0 s on one core or device for the 0 of known time; 0.0 MB of results.\n" in result.out


@pytest.mark.usefixtures("no_training")
def test_plan_marks_missing_data(cli) -> None:
    result = cli("plan", "-s", "partly.toml", "-m", "fedavg")
    assert result.code == 0 and result.out.count("The dataset 'mnist' is not there") == 1


def test_plan_marks_times_of_another_machine(cli, two_runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pflbench.running.planning.processor", lambda: "another processor")
    result = cli("plan", *SHORT, "--seeds", "0-3")
    assert re.search(r"fedavg +4 +2 +0 +2 +\d+ \w+ +scaled", result.out) and result.err == ""


def test_plan_knows_what_is_done_and_its_speed(cli, two_runs: list[str], folder: Path) -> None:
    before = stored(folder / "results")
    result = cli("plan", *SHORT, "--seeds", "0-3", "--rounds", "2")
    assert re.search(r"fedavg +4 +2 +0 +2 +\d+ \w+ +runs", result.out)
    assert re.search(r"2 runs to do: \d+ \w+ on one core or device for the 2 of known time;", result.out)
    assert "0 runs to do:" in cli("plan", *SHORT).out
    assert stored(folder / "results") == before


def test_status_counts(cli, two_runs: list[str], folder: Path) -> None:
    result = cli("status", "-s", "tiny.toml")
    assert result.out.splitlines() == [
        "tiny.toml [paper]: 2 done, 0 failed, 6 missing",
        "tiny.toml [smoke]: 1 done, 0 failed, 3 missing",
    ]
    assert cli("status").out == result.out, "the suite is known from the runs"
    (folder / "tiny.toml").unlink()
    assert (
        cli("status").out
        == "2 runs there have other settings: name them with --suite FILE, --rounds, or --precision.\n"
    )
    assert cli("status", "-r", "elsewhere").out == "No results in 'elsewhere' yet.\n"


def test_show_takes_the_beginning_of_an_id(cli, two_runs: list[str], folder: Path) -> None:
    whole = cli("show", two_runs[0])
    assert whole.code == 0 and cli("show", two_runs[0][:8]) == whole
    assert whole.out.startswith(f"run {two_runs[0]}: done\nspec:")
    assert '"wall_seconds"' in whole.out and re.search(r"finetuned +round +2 step +2 ", whole.out)
    many = cli("show", "")
    assert many.code == 2 and "2 runs start with ''" in many.err and all(id in many.err for id in two_runs)
    none = cli("show", two_runs[0], "--results", "elsewhere")
    assert none.code == 2 and "No run starts with" in none.err and "'elsewhere'" in none.err


@pytest.mark.usefixtures("two_runs")
def test_report_to_a_file_and_in_every_format(cli, folder: Path) -> None:
    terminal = cli("report", "-s", "tiny.toml", "--profile", "paper")
    assert (
        terminal.code == 0
        and "FedAvg-FT" in terminal.out
        and "Runs of the suite: 2 of 8 done, 0 failed." in terminal.out
    )
    written = cli("report", "-s", "tiny.toml", "--profile", "paper", "-o", "table.txt")
    assert (written.code, written.out) == (0, "")
    assert (folder / "table.txt").read_text() == terminal.out
    assert "| FedAvg" in cli("report", "-s", "tiny.toml", "--format", "markdown").out
    head, *rows = cli("report", "-s", "tiny.toml", "--format", "csv").out.splitlines()
    assert head.startswith("suite,profile,row,method,column,dataset,partition,clients,stage,mean,std,sem,n")
    assert not any(row.startswith("suite,") for row in rows)
    bad = cli("report", "-s", "tiny.toml", "-o", "no/such/folder.txt")
    assert bad.code == 1 and "Cannot write 'no/such/folder.txt': No such file or directory." in bad.err


@pytest.mark.usefixtures("two_runs")
def test_report_by_rounds_and_seeds(cli) -> None:
    assert "2/2" not in cli("report", "-s", "tiny.toml", "--seeds", "0,1").out
    assert "(2/3)" in cli("report", "-s", "tiny.toml", "--seeds", "0-2", "--profile", "paper").out
    other = cli("report", "-s", "tiny.toml", "--rounds", "1")
    assert other.code == 2 and "No results of tiny.toml" in other.err


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("suites", ("CAFeMe, Table 1; paper: arXiv:2312.15191; data: cifar10, rmnist; profiles: paper",)),
        ("methods", ("fedavg", "lr=0.001", "per-fedavg", "constraint='kl' (or 'l2', 'none')")),
        ("datasets", ("digits", "rmnist", "rotations=10", "source='nist' (or 'emnist', 'leaf')")),
        ("partitions", ("dirichlet", "alpha=0.3", "mode='disjoint' (or 'released')")),
        ("models", ("cnn2", "cnn3")),
    ],
)
def test_ls(cli, what: str, words: tuple[str, ...]) -> None:
    result = cli("ls", what)
    assert result.code == 0 and not result.err
    for word in words:
        assert word in result.out


def test_data_status_and_fetch(cli, folder: Path, monkeypatch) -> None:
    status = cli("data", "status")
    assert status.code == 0 and f"data root: {folder / 'data'}" in status.out
    assert re.search(r"digits +ready", status.out) and re.search(r"rmnist +missing: .*train-images", status.out)
    assert cli("data", "status", "digits", "--data-dir", "other").out.startswith("data root: other\n")

    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchvision.datasets.MNIST.__init__", offline)
    fetched = cli("data", "fetch", "digits", "mnist")
    assert fetched.code == 1 and re.search(r"digits +ready", fetched.out)
    (line,) = fetched.err.splitlines()
    assert "no network" in line and str(folder / "data" / "MNIST" / "raw" / "train-labels-idx1-ubyte") in line


def test_every_option_has_a_help_and_four_have_an_environment_variable() -> None:
    group = typer.main.get_command(program.program())
    commands = dict(group.commands) | {f"data {n}": c for n, c in group.commands["data"].commands.items()}  # type: ignore[attr-defined]
    variables = set()
    for name, command in commands.items():
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help" and not parameter.hidden:
                assert parameter.help, (name, parameter.name)
                variables.add(parameter.envvar)
    assert variables == {None, *(f"PFLBENCH_{name}" for name in ("RESULTS", "DATA_DIR", "JOBS", "DEVICE"))}


def test_a_users_method_takes_the_hyperparameters_of_a_row(cli, folder: Path) -> None:
    """Its values and their sources are the row's; `--like` of an unknown row, or without such a method, is an error."""
    method = method_file(folder / "foo.py", ("lr: float = 0.05", "lr: float = 0.5"))
    suite = (
        (folder / "tiny.toml")
        .read_text()
        .replace("lr = 0.05 }\nditto", 'lr = { value = 0.05, source = "guess" } }\nditto')
    )
    (folder / "tiny.toml").write_text(suite)
    part = ("-s", "tiny.toml", "--column", "shards", "--seeds", "0")
    assert cli("run", *part, "-m", method, "--like", "fedavg").code == 0
    (run,) = Store(folder / "results").list()
    assert run.spec.method.hyper == {"lr": 0.05} and run.provenance["asked"]["like"] == "fedavg"
    assert re.search(r"lr +0.05 .*guess", cli("explain", "tiny.toml", method, "shards", "--seeds", "0").out)
    for wrong in (("-m", method, "--like", "fedavgg"), ("--like", "fedavg"), ("-m", "ditto", "--like", "fedavg")):
        assert cli("run", *part, *wrong, "--dry-run").code == 2


def test_the_verbs_are_these() -> None:
    verbs = "run report plot explain claims plan status ls show scores check tune rerun compare pack merge rm data cite info"
    group = typer.main.get_command(program.program())
    assert set(group.commands) == set(verbs.split())  # type: ignore[attr-defined]


def test_help_of_every_verb() -> None:
    for verb in (*program.VERBS, "data status"):
        result = CliRunner().invoke(program.program(), [*verb.split(), "-h"])
        assert result.exit_code == 0 and f"Usage: pflbench {verb}" in result.output.replace("root", "pflbench")


def test_the_help_of_a_run_fits_two_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for verb in ("run", "report", "data status", "plot"):
        lines = CliRunner().invoke(program.program(), [*verb.split(), "--help"]).output.splitlines()
        assert verb != "run" or len(lines) <= 2 * 30
        assert max(map(len, lines)) <= 80


def test_plan_says_what_it_knows_a_time_from(cli, two_runs: list[str]) -> None:
    """Finished runs speak for runs of like length only."""
    known = re.search(r"fedavg .* \w+ +runs\b", cli("plan", *SHORT, "--seeds", "0-3", "--rounds", "8").out)
    assert known and "unknown" in cli("plan", *SHORT, "--seeds", "0-3", "--rounds", "9").out


def test_statistics_are_counted_and_train_nothing(cli, tmp_path: Path) -> None:
    before = cli("report", "--suite", "fedec-table1")
    assert before.code == 0 and "`pflbench run --suite fedec-table1` counts what" in " ".join(before.out.split())
    lacking = cli("run", "--suite", "fedec-table1", "--data-dir", str(tmp_path))
    assert lacking.code == 1 and "FEMNIST cannot be counted. femnist-letters lacks" in " ".join(lacking.err.split())
    counted = cli("run", "--suite", "fedec-table1", "--profile", "smoke")
    assert (counted.code, counted.err) == (0, "") and "CIFAR10: 1797 images" in counted.out
    after = cli("report", "--suite", "fedec-table1", "--profile", "smoke").out
    assert "1797" in after and "Not counted yet" not in after


def test_one_column_of_a_table(cli, two_runs: list[str]) -> None:
    whole, part = (cli("report", "-s", "tiny.toml", *more).out for more in ((), ("--column", "shards")))
    assert "Dirichlet" in whole and "Dirichlet" not in part and "Shards" in part
    wrong = cli("report", "-s", "tiny.toml", "--column", "shrads")
    assert wrong.code == 2 and "Did you mean 'shards'" in wrong.err


def test_a_guess_of_the_suite_is_marked(cli, two_runs: list[str], folder: Path) -> None:
    suite = (
        (folder / "tiny.toml")
        .read_text()
        .replace("lr = 0.05 }\nditto", 'lr = { value = 0.05, source = "guess" } }\nditto')
    )
    (folder / "guessed.toml").write_text(suite)
    shown = cli("report", "-s", "guessed.toml", "--profile", "paper").out
    assert any(line.startswith("FedAvg ") and "ᵍ" in line for line in shown.splitlines())
    assert "ᵍ rests on values that no paper or code gives, guessed: FedAvg, FedAvg-FT (lr)." in shown
    assert "ᵍ" not in cli("report", "-s", "tiny.toml", "--profile", "paper").out


def test_a_table_without_spreads(cli) -> None:
    table = ("--suite", "fedec-table2", "--profile", "smoke", "--seeds", "0,1")
    assert cli("run", *table, "--column", "femnist-150-3", "-m", "local", "-q").code == 0
    (row,) = [line for line in cli("report", *table).out.splitlines() if line.startswith("Local Only")]
    assert "±" not in row, "as the paper prints it"


@pytest.mark.usefixtures("no_training")
def test_plan_shows_each_row_of_a_method(cli) -> None:
    out = cli("plan", "-s", "several.toml", "--column", "shards").out
    assert re.findall(r"^shards +(\S+)", out, re.MULTILINE) == ["fedavg", "ditto", "near"]
    assert re.findall(r"^shards +(\S+)", cli("plan", "-s", "several.toml", "-m", "near").out, re.MULTILINE) == ["near"]


@pytest.mark.usefixtures("no_training")
def test_plan_goes_on_after_suites_that_train_nothing(cli) -> None:
    result = cli("plan", "-s", "fedec-table1", "-s", "tiny.toml", "-s", "pfedvem-fig3")
    assert (result.code, result.err) == (0, "")
    assert "fedec-table1 trains nothing: " in result.out and "fedec-table1 · CIFAR10: to be counted." in result.out
    assert (
        "\npfedvem-fig3 draws partitions and trains nothing: `pflbench plot pfedvem-fig3" in result.out
        and "Tiny · profile paper" in result.out
    )
    assert "8 runs to do" in result.out


def test_run_names_the_command_that_shows_what_was_counted(cli) -> None:
    said = cli("run", "-s", "fedec-table1", "--column", "cifar10", "--dry-run").out
    assert (
        "fedec-table1 trains nothing: `pflbench report --suite fedec-table1 --column cifar10` prints its table." in said
    )


def test_plan_lists_the_store_once_however_many_seeds(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up of each run reads the folder again, which takes minutes for many seeds."""
    looked = list[str]()
    monkeypatch.setattr(Store, "find", lambda store, id: looked.append(id))
    plan = cli("plan", "-s", "tiny.toml", "-m", "fedavg", "--seeds", "0-499")
    assert plan.code == 0 and "1000 runs to do" in plan.out and looked == []


def test_more_seeds_than_memory_holds_are_refused_in_a_sentence(cli) -> None:
    for text in ("0-9223372036854775807", "0-99999,200000"):
        result = cli("plan", "-s", "tiny.toml", "--seeds", text)
        assert result.code == 2 and f"{text!r} names more than 100000 seeds: write fewer" in result.err


def test_memory_that_is_not_there_is_a_sentence(cli, folder: Path) -> None:
    text = (folder / "tiny.toml").read_text().replace("clients = 90", "clients = 9223372036854775807")
    (folder / "huge.toml").write_text(text)
    result = cli("data", "show", "huge.toml", "shards")
    assert result.code == 1 and result.err.startswith("Error: Out of memory") and "bug" not in result.err


def test_plan_knows_runs_whose_hyperparameters_are_written_in_another_order(cli, folder: Path) -> None:
    """A stored run's keys are sorted; those of a suite stand as the method has them."""
    local = ("--column", "femnist-150-3", "-m", "local", "--profile", "smoke")
    assert cli("run", "-s", "fedec-table2", *local, "-q").code == 0
    hyper = expand(load("fedec-table2"), profile="smoke", methods=["local"]).runs[0].method.hyper
    assert list(hyper) != sorted(hyper), "else this tests nothing"
    out = cli("plan", "-s", "fedec-table2", *local, "--seeds", "42,43").out
    assert re.search(r"local +2 +1 +0 +2 +\d+ s +runs\b", out)


@pytest.mark.usefixtures("no_training")
def test_plan_tells_of_failures(cli, folder: Path) -> None:
    run = expand(load("tiny.toml"), methods=["fedavg"], columns=["shards"]).runs[0]
    Store(folder / "results").write(RunResult(run, (), {"data_hash": "d"}, "diverged in round 1"))
    out = cli("plan", *SHORT).out
    assert re.search(r"runs +done +failed +rounds", out) and re.search(r"fedavg +2 +0 +1 +2 ", out)


@pytest.mark.parametrize("name", sorted(names.BUILT_IN["methods"]))
def test_a_method_is_described(cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hyperparameter with its meaning, and all that the docstring says, in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    out = cli("ls", "methods", name).out
    said, words = describe_method(name), " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    assert {one.name for one in said.hyperparameters} == {
        field.name for field in dataclasses.fields(names.resolve("methods", name))
    }
    assert all(f"\n{one.name} " in out and one.meaning for one in said.hyperparameters)
    assert said.special_cases and said.special_cases in words and said.citation in words
    assert all(item in words for listed in said.departures for item in listed.items)


WRITES = {
    "report": ("report", "-s", "tiny.toml", "-o", "out.txt"),
    "page": ("report", "-s", "tiny.toml", "--format", "html", "-o", "out.html"),
    "compare": ("compare", "results", "results", "-o", "out.txt"),
    "cite": ("cite", "tiny.toml", "-o", "out.txt"),
    "scores": ("scores", "-o", "out.csv"),
    "plot": ("plot", "tiny.toml", "--per-client", "-o", "out.csv"),
    "picture": ("data", "show", "tiny.toml", "shards", "-o", "out.svg"),
}


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize("verb", WRITES)
def test_no_verb_leaves_half_a_file(cli, folder: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the file is to take its place."""

    (name,) = (one for one in WRITES[verb] if one.startswith("out."))
    (folder / name).write_bytes(b"old")
    real = Path.replace

    def full(temporary: Path, target: Path) -> Path:
        if Path(target).name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(temporary, target)

    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(Path, "replace", full)
    done = cli(*WRITES[verb])
    assert (done.code, (folder / name).read_bytes()) == (1, b"old"), done
    assert f"Cannot write '{name}': No space left on device." in done.err
    assert sorted(path.name for path in folder.iterdir()) == before
