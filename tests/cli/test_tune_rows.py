"""`pflbench tune` of a row's own grid and several seeds: what wins, and how sure that is."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli
from cli_kit import SUITE, stored

from pflbench.report.trials import within_noise
from pflbench.result import RunResult, Score
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.tuning import searches

TUNE = """
[tune]
columns = ["shards"]
[tune.grid.fedavg-ft]
lr = [0.05, 0.01]
finetune.lr = [0.1, 0.2]
"""
COMMAND = ("tune", "-s", "tuned.toml")
Put = Callable[..., None]


@pytest.fixture(autouse=True)
def tuned(folder: Path) -> Path:
    path = folder / "tuned.toml"
    path.write_text(SUITE + TUNE)
    return path


@pytest.fixture
def put(folder: Path) -> Put:
    """Store the trials of the search with given accuracies in percent of two clients; None: it diverged."""

    def write(*accuracies: tuple[float, float] | None, seed: int = 0, **options: object) -> None:
        (search,) = searches(load("tuned.toml"), "fedavg-ft", **options)  # type: ignore[arg-type]
        for trial, percents in zip(search.trials, accuracies, strict=True):
            run = trial.runs[seed]
            scores = [
                Score(stage, run.rounds, step, client, 0, 1, 0.0, percent / 100)
                for stage in run.scoring.stages
                for step in ((0, 1, 2) if stage == "finetuned" else (0,))
                for client, percent in enumerate(percents or ())
            ]
            failure = None if percents else "diverged in round 1"
            Store(folder / "results").write(RunResult(run, tuple(scores), {"data_hash": "d"}, failure))

    return write


def test_the_best_trial_is_printed_for_its_row(cli, folder: Path, tuned: Path) -> None:
    first = cli(*COMMAND)
    assert (first.code, first.err) == (0, "")
    runs = [run.spec for run in Store(folder / "results").list()]
    assert sorted((run.rounds, run.seed, run.validation) for run in runs) == [(2, 41, 0.1)] * 4
    pasted = first.out[first.out.index("# pflbench") :]
    assert pasted.startswith("# pflbench tune -s tuned.toml -m fedavg-ft --column shards\n# Column shards · ")
    assert "the best of 4 trials (0 failed): lr of 0.05, 0.01 × finetune.lr of" in pasted
    kept = stored(folder / "results")
    assert cli(*COMMAND, "--quiet").out == pasted and stored(folder / "results") == kept

    head, tail = SUITE.split('[[column]]\nid = "dirichlet"')
    tuned.write_text(f'{head}{pasted}\n[[column]]\nid = "dirichlet"{tail}')
    values = tomli.loads(pasted)["column"]
    found = {cell.row.id: cell for cell in expand(load("tuned.toml"), columns=["shards"]).cells}
    run = found["fedavg-ft"].runs[0]
    assert run.method.hyper["lr"] == values["hyper"]["fedavg-ft"]["lr"]["value"]
    assert run.scoring.finetune.lr == values["finetune"]["fedavg-ft"]["lr"]["value"]
    assert found["fedavg"].runs[0].method.hyper["lr"] == 0.05  # another row of the method keeps its own
    told = cli("explain", "tuned.toml", "fedavg-ft", "shards").out
    assert "finetune.lr = 0.1" in told and "finetune.lr = 0.2" in told


@pytest.mark.usefixtures("no_training")
def test_seeds_count_by_their_mean(cli, put: Put) -> None:
    for seed, trials in enumerate([((50, 50), (60, 60), (0, 0), (0, 0)), ((90, 90), (60, 60), (0, 0), (0, 0))]):
        put(*trials, seed=seed, seeds=[41, 43])
    out = cli(*COMMAND, "--seeds", "41,43").out
    assert "# pflbench tune -s tuned.toml --seeds 41,43 -m fedavg-ft --column shards\n" in out
    assert "seeds 41,43, 2 rounds: 70.00 % (finetuned)" in out and "lr = { value = 0.05" in out
    one = cli(*COMMAND, "--seeds", "43")
    assert "seeds 43, 2 rounds: 90.00 %" in one.out


@pytest.mark.usefixtures("no_training")
def test_the_command_that_is_told_finds_the_same(cli, put: Put) -> None:
    grid = ["lr=0.05", "finetune.lr=0.1,0.2"]
    put((50, 50), (60, 60), grid=grid)
    out = cli(*COMMAND, "-m", "fedavg-ft", *(part for one in grid for part in ("--grid", one))).out
    (told,) = [line for line in out.splitlines() if line.startswith("# pflbench tune")]
    assert cli(*shlex.split(told.removeprefix("# pflbench "))).out == out


def test_a_lead_within_noise() -> None:
    best = (62.0, 60.0, 61.0)
    assert within_noise(1.0, best, (61.0, 59.0, 60.0), "clients") is None, "every client gains one point"
    told = within_noise(1.0, best, (50.0, 65.0, 65.0), "clients")  # differences 12, -5, -4: 1 ± 5.5
    assert told and "1.00 points, less than twice its standard error of 5.51 over 3 clients" in told
    assert "none: within noise" in (within_noise(0.0, best, best, "clients") or "")
    assert "its noise is not known" in (within_noise(1.0, (2.0,), (1.0,), "clients") or "")


def test_a_typed_grid_is_that_of_one_method(cli) -> None:
    whole = cli(*COMMAND, "--grid", "lr=0.1,0.2,0.3", "--dry-run", "-m", "fedavg-ft")
    assert "3 runs: 0 done, 0 failed before, 3 to do." in whole.out and "rounds" not in whole.out
    assert cli(*COMMAND, "--grid", "lr=1,2").err.startswith("Error: Which method? A --grid is that of one")
