"""`pflbench scores`: the long table says of each score where it stands, and counts none twice."""

import csv
import io
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pyarrow.parquet as pq
import pytest
from cli_kit import GRID, SUITE, make_up

from pflbench.result import RunResult, Score
from pflbench.store import Store, Stored
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.tuning import searches

Lines = list[dict[str, str]]
KEY = ("run", "stage", "round", "step", "client")


def lines(text: str) -> Lines:
    return list(csv.DictReader(io.StringIO(text)))


def keys(found: Lines) -> list[tuple[str, ...]]:
    return [tuple(line[key] for key in KEY) for line in found]


def _done(results: Path) -> list[Stored]:
    return [run for run in Store(results).list() if run.failure is None]


@pytest.fixture
def several(folder: Path) -> Path:
    """A store with what stands in one suite of three kinds of rows: alone, two of one run, and chosen from a grid."""
    (folder / "tiny.toml").write_text(SUITE + GRID)
    make_up(folder / "results", folder / "tiny.toml")
    return folder / "results"


@pytest.mark.usefixtures("several")
def test_the_lines_of_a_cell_average_to_the_reports_number(cli) -> None:
    found = lines(cli("scores", "-s", "tiny.toml").out)
    seeds: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in found:
        if line["in_table"] == "true":
            seeds[line["row"], line["column"]][line["seed"]].append(100 * float(line["accuracy_share"]))
    mine = {place: fmean(map(fmean, values.values())) for place, values in seeds.items()}
    titles = {"FedAvg": "fedavg", "FedAvg-FT": "fedavg-ft", "Ditto": "ditto", "Chosen": "chosen"}
    report = lines(cli("report", "-s", "tiny.toml", "--profile", "paper", "--format", "csv").out)
    theirs = {(titles[line["row"]], line["column"]): float(line["mean"]) for line in report if line["mean"]}
    assert len(theirs) == 8 and mine == pytest.approx(theirs)


@pytest.mark.usefixtures("several")
def test_every_score_of_a_finished_run_stands_once(cli, several: Path) -> None:
    done = [run for run in _done(several) if not run.spec.validation]
    for arguments in ((), ("-s", "tiny.toml")):  # the paper's profile and the smoke profile share runs
        found = lines(cli("scores", *arguments).out)
        assert len(set(keys(found))) == len(found) == sum(run.rows for run in done)
        assert {line["run"] for line in found} == {run.spec.id for run in done}
    assert {line["profile"] for line in found} == {"paper"}
    by_stage = {(line["row"], line["stage"]) for line in found}
    assert {("fedavg", "global"), ("fedavg-ft", "finetuned"), ("ditto", "finetuned")} < by_stage
    assert ("fedavg", "finetuned") not in by_stage and ("fedavg-ft", "global") not in by_stage


def test_a_run_stands_once_for_each_suite_that_is_named(cli, several: Path, folder: Path) -> None:
    (folder / "other.toml").write_text(SUITE.replace('"tiny"', '"other"'))
    one, two = (lines(cli("scores", "-s", name).out) for name in ("tiny.toml", "other.toml"))
    both = lines(cli("scores", "-s", "tiny.toml", "-s", "other.toml").out)
    assert sorted(map(str, both)) == sorted(map(str, one + two))
    assert {line["suite"] for line in two} == {"other"}


def test_without_a_suite_a_run_has_the_place_of_the_one_that_asks_for_it(cli, folder: Path) -> None:
    suite = load("cafeme-table1")
    for seed in (0, 7):  # the suite's own, and one of the user's
        (run,) = {
            run for cell in expand(suite, profile="smoke", rows=["fedavg"], seeds=[seed]).cells[:1] for run in cell.runs
        }
        moments = [("global", 4, 0), *(("finetuned", 4, step) for step in range(11))]
        Store(folder / "results").write(RunResult(run, tuple(Score(*m, 15, 1, 2, 1.0, 0.5) for m in moments)))
    found = lines(cli("scores").out)
    assert {(line["suite"], line["profile"], line["column"]) for line in found} == {
        ("cafeme-table1", "smoke", "cifar10-shards")
    }
    assert {(line["row"], line["stage"]) for line in found} == {("fedavg", "global"), ("fedavg-ft", "finetuned")}
    assert {line["seed"] for line in found if line["in_table"] == "true"} == {"0"}


@pytest.mark.usefixtures("several")
def test_what_no_suite_asks_for_has_no_place(cli) -> None:
    assert {line["suite"] for line in lines(cli("scores").out)} == {""}  # the suite is no built-in one


def test_trials_are_left_out_until_asked_for(cli, several: Path, folder: Path) -> None:
    search = searches(load(str(folder / "tiny.toml")), "fedavg", columns=["shards"], grid=["lr=0.1"])
    trial = search[0].trials[0].run
    Store(several).write(RunResult(trial, (Score("finetuned", 2, 2, 88, 1, 2, 1.0, 0.5),)))
    for arguments in ((), ("-s", "tiny.toml"), ("-m", "fedavg")):
        assert trial.id not in {line["run"] for line in lines(cli("scores", *arguments).out)}
    own = lines(cli("scores", "--trials", "-s", "tiny.toml", "-m", "fedavg-ft").out)
    assert {(line["run"], line["row"], line["column"], line["in_table"]) for line in own} == {
        (trial.id, "fedavg-ft", "shards", "false")
    }
    every = lines(cli("scores", "--trials").out)
    assert {line["run"] for line in every} == {trial.id}, "what a row's clients choose by is no trial"


@pytest.mark.parametrize(
    ("arguments", "rest"),
    [
        (("-m", "fedavg"), {"method": "fedavg"}),
        (("--partition", "dirichlet", "--seeds", "1"), {"partition": "dirichlet", "seed": "1"}),
        (("-s", "tiny.toml", "--column", "shards", "-m", "fedavg-ft"), {"column": "shards", "row": "fedavg-ft"}),
        (("-s", "tiny.toml", "--profile", "smoke"), {"profile": "smoke", "seed": "0"}),
    ],
)
@pytest.mark.usefixtures("results")
def test_filters(cli, arguments: tuple[str, ...], rest: dict[str, str]) -> None:
    found = lines(cli("scores", *arguments).out)
    assert found and all(line[key] == value for line in found for key, value in rest.items())
    if "profile" not in rest:
        every = lines(cli("scores", *arguments[:2]).out) if "-s" in arguments else lines(cli("scores").out)
        assert len(found) == sum(all(line[key] == value for key, value in rest.items()) for line in every)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("-s", "tiny.toml", "-m", "dito"), "Did you mean 'ditto'?"),
        (("--seeds", "9"), "No finished run in 'results' matches."),
        (("-o", "scores.xlsx"), "parquet"),
    ],
)
@pytest.mark.usefixtures("results")
def test_a_wrong_request(cli, arguments: tuple[str, ...], part: str) -> None:
    result = cli("scores", *arguments)
    assert result.code == 2 and part in result.err and len(result.err.splitlines()) == 1 and not result.out


@pytest.mark.usefixtures("results")
def test_files(cli, folder: Path) -> None:
    printed = cli("scores", "-s", "tiny.toml").out
    told = cli("scores", "-s", "tiny.toml", "-o", "scores.csv")
    assert (told.code, told.err) == (0, "") and told.out == f"Written: {len(lines(printed))} lines to 'scores.csv'.\n"
    assert (folder / "scores.csv").read_text() == printed
    assert cli("scores", "-s", "tiny.toml", "-o", "scores.parquet").code == 0
    table = pq.read_table(folder / "scores.parquet")
    assert table.num_rows == len(lines(printed)) and table.column_names == list(lines(printed)[0])
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    bad = cli("scores", "-o", "no/such/folder.csv")
    assert bad.code == 1 and "Cannot write 'no/such/folder.csv': No such file or directory." in bad.err


def test_runs_with_other_seeds_are_named(cli, results: Path, folder: Path) -> None:
    (run, *_) = expand(load(str(folder / "tiny.toml")), seeds=[5]).runs
    Store(results).write(RunResult(run, (Score("global", 2, 0, 88, 1, 2, 1.0, 0.5),)))
    told = cli("scores", "-s", "tiny.toml", "-o", "scores.csv")
    assert "Left out: runs with seeds that no suite asks for (5)" in told.err
    assert cli("scores", "-s", "tiny.toml", "--seeds", "5", "-o", "scores.csv").err == ""
