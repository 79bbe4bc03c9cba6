"""kill -9 and Ctrl-C at any moment: finished runs stay, nothing is left behind, the same command goes on."""

import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest
from cli_kit import SUITE, start, stored

RUN = ("run", "-s", "tiny.toml", "--seeds", "0-3", "--column", "shards", "--jobs", "1")
KILLS = 20
PRELOADED = (
    "pflbench.cli.main",
    "pflbench.running.local",
    "pflbench.methods.ditto",
    "pflbench.methods.fedavg",
    "pflbench.models.convnet",
    "pflbench.report.layout",
    "pflbench.report.render",
    "sklearn.datasets",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
]


def child(arguments: tuple[str, ...], folder: Path, moment: float, within_write: bool) -> None:
    """The program; SIGKILL at the `moment`-th function call, or between a temporary file and its renaming."""
    from pflbench.cli.main import main

    os.chdir(folder)
    silence = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    calls = 0

    def die(*_: object) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls >= moment:
            die()

    if within_write:
        replace = Path.replace

        def die_of_a_run(path: Path, target: Path) -> Path:
            return die() if path.suffix == ".tmp" else replace(path, target)

        Path.replace = die_of_a_run  # type: ignore[method-assign, assignment]
    sys.setprofile(count)
    try:
        main(list(arguments))
    finally:
        sys.setprofile(None)
        (folder / "calls.txt").write_text(str(calls))


class Program:
    """Starts children of a process that has everything imported already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(PRELOADED))

    def __call__(self, *arguments: str, moment: float = float("inf"), within_write: bool = False) -> int | None:
        process = self.context.Process(target=child, args=(arguments, self.folder, moment, within_write))
        process.start()
        process.join(60)
        return process.exitcode

    @property
    def calls(self) -> int:
        """How many function calls the last finished child made."""
        return int((self.folder / "calls.txt").read_text())


def test_killed_twenty_times_gives_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(SUITE)
    program = Program(tmp_path)
    table = ("report", "-s", "tiny.toml", "--seeds", "0-3", "--format", "csv", "-r")
    assert program(*RUN, "-r", "whole") == 0
    whole = program.calls
    assert program(*RUN, "-m", "ditto", "--seeds", "0", "-r", "one") == 0
    one = program.calls  # starting and one run
    print(f"{one} calls for one run, {whole} for eight")
    assert program(*table, "whole", "-o", "whole.csv") == 0

    draw, results = random.Random(0), tmp_path / "killed"
    finished: dict[str, tuple[int, str]] = {}
    progress = []
    kills = 0
    while kills < KILLS:
        write = kills == 0  # while there are runs to write
        moment = float("inf") if write else draw.uniform(1, whole)
        code = program(*RUN, "-r", "killed", moment=moment, within_write=write)
        now = stored(results)
        assert finished.items() <= now.items()  # neither repeated nor touched
        progress.append(len(now) - len(finished))
        finished = now
        if code == 0:  # the matrix was done before the moment came
            assert len(now) == 8
            continue
        assert code == -signal.SIGKILL
        if write:
            assert list((results / "runs").glob("*.tmp"))
        kills += 1
    assert 0 in progress and any(progress)
    assert program(*RUN, "-r", "killed") == 0
    assert len(stored(results)) == 8 and finished.items() <= stored(results).items()
    assert not list((results / "runs").glob("*.corrupt"))
    assert program(*table, "killed", "-o", "killed.csv") == 0
    assert (tmp_path / "killed.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert program(*RUN, "-r", "killed") == 0
    assert "8 runs: 8 done, 0 failed before, 0 to do." in (tmp_path / "output.txt").read_text()


def alive(session: int) -> list[str]:
    """Command lines of the processes of a session that are not zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, belongs, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(belongs) == session and state != "Z":
                found.append((folder / "cmdline").read_text())
        except OSError:  # gone meanwhile
            continue
    return found


def wait_until_gone(session: int, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while alive(session) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(session)


def test_the_workers_of_a_killed_parent_vanish(cli, folder: Path) -> None:
    command = ("run", "-s", "tiny.toml", "--column", "shards", "-m", "fedavg")
    process = start(*command, "--seeds", "0-99", "--jobs", "2", cwd=folder)
    assert process.stdout
    while "  1/100]" not in process.stdout.readline():
        assert process.poll() is None
    assert len(alive(process.pid)) >= 3
    process.kill()
    process.communicate()
    wait_until_gone(process.pid)
    kept = stored(folder / "results")
    assert 0 < len(kept) < 100
    assert cli(*command, "--seeds", "0-1").code == 0
    assert kept.items() <= stored(folder / "results").items()


@pytest.mark.parametrize(("jobs", "until"), [("1", "  1/100]"), ("2", "  1/100]"), ("2", "Running on")])
def test_ctrl_c(folder: Path, jobs: str, until: str) -> None:
    process = start("run", "-s", "tiny.toml", "--seeds", "0-24", "--jobs", jobs, cwd=folder)
    assert process.stdout
    while until not in process.stdout.readline():
        assert process.poll() is None
    if until == "Running on":
        time.sleep(1)  # the workers are importing torch
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    (line,) = err.strip().splitlines()
    assert line == "Interrupted. Finished runs are kept; the same command goes on from there."
    wait_until_gone(process.pid)
    kept = stored(folder / "results")
    assert len(kept) >= out.count("/100]") + (until != "Running on")
    assert not list((folder / "results").rglob("*.corrupt"))
