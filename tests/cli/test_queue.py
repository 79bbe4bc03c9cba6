"""`pflbench queue`: the next unfinished runs, in the file's order, packed when an entry is complete."""

from pathlib import Path
from typing import Any

import pytest
from cli_kit import method_file

from pflbench.cli import queue as module
from pflbench.result import RunResult
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
    said = [line for line in lines if line.startswith(("tiny", "Packed"))]
    assert said[0] == f"{NAMES[0]}: 0 of 2 done." and said[2] == f"{NAMES[1]}: 0 of 3 done."
    assert said[1].endswith("holds 2 runs.") and said[3].endswith("holds 5 runs, 3 of them new.")
    assert lines[-1] == "Nothing left to do in 'results/QUEUE.toml': 5 runs done."
    assert singles(results) == 0 and len(packs(results)) == 1

    monkeypatch.setattr(module, "train_part", None)  # cannot be called
    before = [(path, path.stat().st_mtime_ns) for path in packs(results)]
    again = cli("queue")
    assert again == (0, "Nothing left to do in 'results/QUEUE.toml': 5 runs done.\n", "")
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
    assert NAMES[0] not in result.out and "3 runs: 1 done, 0 failed before, 2 to do." in result.out
    assert result.out.count("Packed") == 2
    assert singles(results) == 1  # the run that no entry names


@pytest.mark.usefixtures("no_training")
def test_a_dry_run_changes_nothing(cli, results: Path, nice: list[int]) -> None:
    result = cli("queue", "--dry-run")
    assert (result.code, result.err, nice) == (0, "", [])
    assert result.out.count("  shards · ditto · seed") == 3
    assert [path.name for path in results.iterdir()] == ["QUEUE.toml"]


def clock(monkeypatch: pytest.MonkeyPatch, minutes_a_run: float) -> list[list[int]]:
    """Runs take so many minutes, and how many ran at a time is written down."""
    now, asked = [0.0], []
    real = module.train_part

    def slow(*asked_for: Any, **options: Any) -> bool:
        before = len(Store(Path("results")).list())
        good = real(*asked_for, **options)
        asked.append(len(Store(Path("results")).list()) - before)
        now[0] += 60 * minutes_a_run
        return good

    monkeypatch.setattr(module, "train_part", slow)
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return asked  # type: ignore[return-value]


@pytest.mark.parametrize(("minutes", "asked"), [("0", []), ("14", [1, 1]), ("25", [1, 1, 1])])
def test_no_run_starts_when_time_is_up(cli, results: Path, monkeypatch, minutes: str, asked: list[int]) -> None:
    made = clock(monkeypatch, 10)
    result = cli("queue", "--minutes", minutes)
    assert (result.code, result.err) == (0, "")
    assert made == asked
    assert result.out.splitlines()[-1] == f"'results/QUEUE.toml': {len(asked)} of 5 runs done."
    assert len(packs(results)) == (len(asked) >= 2)


def test_with_enough_time_all_runs(cli, results: Path, monkeypatch) -> None:
    made = clock(monkeypatch, 1)
    monkeypatch.setattr("pflbench.running.local._Pool", None)  # both at a time would be in workers
    monkeypatch.setattr("pflbench.running.local.cores", lambda: 1)
    assert cli("queue", "--minutes", "60").code == 0
    assert made == [1] * 5 and singles(results) == 0


def test_what_fails_is_left_alone_and_the_rest_goes_on(cli, results: Path, folder: Path) -> None:
    toml = folder / "tiny.toml"
    toml.write_text(toml.read_text().replace("epochs = 1, lr = 0.05", "epochs = 1, lr = 1e30"))
    first = cli("queue")
    assert first.code == 1 and "diverged" in first.err
    assert first.out.splitlines()[-1] == "Nothing left to do in 'results/QUEUE.toml': 3 runs done, 2 failed."
    assert singles(results) == 2 and first.out.count("Packed") == 1
    again = cli("queue")
    assert again.code == 1 and not again.err and again.out.count("\n") == 1
    assert "0 of 2 done, 2 failed" in cli("queue", "--list").out


@pytest.mark.parametrize("minutes", [(), ("--minutes", "60")])
@pytest.mark.usefixtures("no_training")
def test_missing_data_is_said_once_a_cell(cli, results: Path, minutes: tuple[str, ...]) -> None:
    (results / "QUEUE.toml").write_text(
        '[[entry]]\nsuite = "../partly.toml"\ncolumns = ["real"]\nmethods = ["ditto"]\n'
    )
    result = cli("queue", *minutes)
    assert result.code == 1 and len(result.err.splitlines()) == 1 and "'mnist' is not there" in result.err
    assert result.out.splitlines()[-1] == "'results/QUEUE.toml': 0 of 2 runs done."


def test_own_files_and_own_methods_from_any_folder(cli, results: Path, folder: Path, monkeypatch) -> None:
    method_file(results / "mine.py")
    queue = folder / "mine.toml"
    queue.write_text(
        '[[entry]]\nsuite = "tiny.toml"\ncolumns = ["shards"]\nmethods = ["results/mine.py:Foo"]\nseeds = [4]\n'
    )
    monkeypatch.chdir(results)
    for minutes in ((), ("--minutes", "1")):
        result = cli("queue", "-f", str(queue), "-r", f"there{len(minutes)}", *minutes)
        assert result.code == 0, result.err
        (stored,) = Store(results / f"there{len(minutes)}").list()
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
