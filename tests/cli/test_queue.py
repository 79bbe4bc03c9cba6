"""`pflbench queue`: the next unfinished runs, in the file's order, packed when an entry is complete."""

import re
from pathlib import Path
from typing import Any

import pytest
from cli_kit import method_file

from pflbench.cli import queue as module
from pflbench.result import RunResult
from pflbench.running import executors, sharing, stopping
from pflbench.running.checkpoint import Checkpoints
from pflbench.store import Store

QUEUE = """
[[entry]]
suite = "../tiny.toml"
columns = ["shards"]
methods = ["fedavg"]
cost = 2.5
note = "First."

[[entry]]
suite = "../tiny.toml"
columns = ["shards"]
methods = ["ditto"]
seeds = [0, 1, 2]
cost = "cheap"
"""
NAMES = ("tiny [paper] shards · fedavg · seeds 0-1", "tiny [paper] shards · ditto · seeds 0-2")
DONE = "Nothing left to do in 'results/QUEUE.toml':"
ORDER = ["fedavg · seed 0", "fedavg · seed 1", "ditto · seed 0", "ditto · seed 1", "ditto · seed 2"]


@pytest.fixture
def results(folder: Path) -> Path:
    path = folder / "results"
    path.mkdir()
    (path / "QUEUE.toml").write_text(QUEUE)
    return path


def packs(results: Path) -> list[Path]:
    return sorted(results.glob("packs/*.parquet"))


def singles(results: Path) -> int:
    return len(list(results.glob("runs/*")))


def finished(said: str) -> list[str]:
    return re.findall(r"^\[\d/\d\] tiny · shards · (\w+ · seed \d): \d", said, re.MULTILINE)


def test_runs_packs_and_then_has_nothing_to_do(cli, results: Path, nice: list[int], monkeypatch) -> None:
    listed = cli("queue", "--list")
    assert (listed.code, listed.err, nice) == (0, "", [])
    assert listed.out.splitlines() == [
        f" 1. {NAMES[0]}: 0 of 2 done; 2.5 min a run, 5 min to do.",
        "    First.",
        f" 2. {NAMES[1]}: 0 of 3 done; cheap.",
    ]
    first = cli("queue")
    assert (first.code, first.err, nice) == (0, "", [19])
    lines = first.out.splitlines()
    assert lines[0] == "5 runs: 0 done, 0 failed before, 5 to do."
    assert finished(first.out) == ORDER
    assert [line for line in lines if line.startswith("Packed")] == [lines[-2]] and lines[-2].endswith("holds 5 runs.")
    assert lines[-1] == f"{DONE} 5 runs done."
    assert singles(results) == 0 and len(packs(results)) == 1

    monkeypatch.setattr(executors, "run_in_turn", None)  # cannot be called
    before = [(path, path.stat().st_mtime_ns) for path in packs(results)]
    again = cli("queue")
    assert again == (0, f"{DONE} 5 runs done.\n", "")
    assert [(path, path.stat().st_mtime_ns) for path in packs(results)] == before
    assert "2 of 2 done; 2.5 min a run.\n" in cli("queue", "-l").out


def test_an_entry_says_how_often_its_runs_are_scored(cli, results: Path) -> None:
    (results / "QUEUE.toml").write_text(QUEUE.replace("cost = 2.5", "evaluate_every = 1", 1))
    cli("queue")
    store = Store(results)
    found = {
        (one.spec.method.name, len({score.round for score in store.read(one.spec.id).scores})) for one in store.list()
    }
    assert found == {("fedavg", 2), ("ditto", 1)}


def test_runs_that_are_there_are_skipped_and_packed(cli, results: Path) -> None:
    cli("run", "-s", "tiny.toml", "--column", "shards", "-m", "fedavg")
    cli("run", "-s", "tiny.toml", "--column", "shards", "-m", "ditto", "--seeds", "1")
    cli("run", "-s", "tiny.toml", "--column", "dirichlet", "-m", "ditto", "--seeds", "1")
    assert "1 of 3 done; cheap." in cli("queue", "--list").out
    result = cli("queue")
    assert result.code == 0
    assert "3 runs: 1 done, 0 failed before, 2 to do." in result.out and finished(result.out) == [ORDER[2], ORDER[4]]
    assert result.out.count("Packed") == 1
    assert singles(results) == 1  # the run that no entry names


@pytest.mark.usefixtures("no_training")
def test_a_dry_run_changes_nothing(cli, results: Path, nice: list[int]) -> None:
    result = cli("queue", "--dry-run")
    assert (result.code, result.err, nice) == (0, "", [])
    assert result.out.count("  tiny · shards · ditto · seed") == 3
    assert [path.name for path in results.iterdir()] == ["QUEUE.toml"]


@pytest.mark.parametrize(("minutes", "number"), [("0", 0), ("14", 2), ("25", 3), ("60", 5)])
def test_no_run_starts_when_time_is_up(cli, results: Path, monkeypatch, minutes: str, number: int) -> None:
    now = [0.0]

    def ten_minutes(self: Store, result: RunResult) -> Path:
        now[0] += 600
        return write(self, result)

    write = Store.write
    monkeypatch.setattr(Store, "write", ten_minutes)
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.setattr(sharing, "monotonic", lambda: now[0])
    result = cli("queue", "--minutes", minutes, "--jobs", "1")
    assert (result.code, result.err, finished(result.out)) == (0, "", ORDER[:number])
    last = f"'results/QUEUE.toml': {number} of 5 runs done." if number < 5 else f"{DONE} 5 runs done."
    assert result.out.splitlines()[-1] == last
    assert len(packs(results)) == (number >= 2)


def test_what_fails_is_left_alone_and_the_rest_goes_on(cli, results: Path, folder: Path) -> None:
    toml = folder / "tiny.toml"
    toml.write_text(toml.read_text().replace("epochs = 1, lr = 0.05", "epochs = 1, lr = 1e30"))
    first = cli("queue")
    assert first.code == 1 and "diverged" in first.err
    assert first.out.splitlines()[-1] == f"{DONE} 3 runs done, 2 failed."
    assert singles(results) == 2 and first.out.count("Packed") == 1
    again = cli("queue")
    assert again.code == 1 and not again.err and again.out.count("\n") == 1
    assert "0 of 2 done, 2 failed" in cli("queue", "--list").out


def test_missing_data_is_said_once_and_the_rest_goes_on(cli, results: Path) -> None:
    partly = '[[entry]]\nsuite = "../partly.toml"\ncolumns = ["real"]\nmethods = ["ditto"]\n'
    (results / "QUEUE.toml").write_text(partly + QUEUE)
    result = cli("queue")
    assert result.code == 1 and len(result.err.splitlines()) == 1 and "'mnist' is not there" in result.err
    assert finished(result.out) == ORDER and singles(results) == 0
    assert result.out.splitlines()[-1] == "'results/QUEUE.toml': 5 of 7 runs done."


def test_own_files_and_own_methods_from_any_folder(cli, results: Path, folder: Path, monkeypatch) -> None:
    method_file(results / "mine.py")
    queue = folder / "mine.toml"
    queue.write_text(
        '[[entry]]\nsuite = "tiny.toml"\ncolumns = ["shards"]\nmethods = ["results/mine.py:Foo"]\nseeds = [4]\n'
    )
    monkeypatch.chdir(results)
    result = cli("queue", "-f", str(queue), "-r", "there")
    assert result.code == 0, result.err
    (stored,) = Store(results / "there").list()
    assert (stored.spec.method.name, stored.spec.seed, stored.path.parent.name) == ("mine.py:Foo", 4, "packs")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"ditto"', '"dito"', "entry[1]: Unknown method 'dito'. Did you mean 'ditto'?"),
        ("cost = 2.5", "costs = 2.5", "entry[0].costs: unknown key, did you mean 'cost'?"),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_a_mistake_stops_everything(cli, results: Path, old: str, new: str, message: str) -> None:
    (results / "QUEUE.toml").write_text(QUEUE.replace(old, new))
    result = cli("queue")
    assert (result.code, result.err) == (2, f"Error: results/QUEUE.toml: {message}{result.err.split(message)[1]}")
    assert len(result.err.splitlines()) == 1


def test_no_queue(cli) -> None:
    result = cli("queue")
    assert (result.code, result.err) == (
        2,
        "Error: There is no queue file 'results/QUEUE.toml'; name one with --file.\n",
    )


def test_ctrl_c_keeps_finished_runs(cli, results: Path, monkeypatch) -> None:
    real, calls = Store.write, []

    def interrupt(self: Store, result: RunResult) -> Path:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(self, result)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", interrupt)
        result = cli("queue")
    assert result.code == 130
    assert result.err == "Interrupted. Finished runs are kept; the same command goes on from there.\n"
    assert len(packs(results)) == 1 and singles(results) == 1  # the first entry was complete
    again = cli("queue")
    assert again.code == 0 and "3 runs: 1 done, 0 failed before, 2 to do." in again.out


def test_a_run_under_way_goes_on_from_its_checkpoint(cli, results: Path, monkeypatch) -> None:
    keep = Checkpoints.keep

    def asked_to_end(self: Checkpoints, *progress: Any) -> None:
        stopping.request()
        keep(self, *progress)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "keep", asked_to_end)
        stopped = cli("queue", "--jobs", "1", "--checkpoint-every", "1h")
    assert stopped.code == 75 and "Runs under way have their checkpoint" in stopped.err
    assert list((results / "checkpoints").iterdir())
    again = cli("queue", "--jobs", "1", "--checkpoint-every", "1h")
    assert (again.code, again.err) == (0, "") and not (results / "checkpoints").exists()
    store = Store(results)
    resumed = [store.read(one.spec.id).provenance.get("resumed", 0) for one in store.list()]
    assert sorted(resumed) == [0, 0, 0, 0, 1]
