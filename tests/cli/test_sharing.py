"""Several `pflbench run` into one folder, at once or one after another's death; and places that cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_kit import stored

from pflbench.store import Store, leases
from pflbench.store.leases import Leases, Pace
from pflbench.suite.expand import expand
from pflbench.suite.load import load

pytestmark = pytest.mark.slow

SHARDS = ("run", "-s", "tiny.toml", "--column", "shards")
LOGGING = """
import os, sys
from pflbench.running import worker
from pflbench.store import leases
real = worker.run_job
leases.PACE = leases.PACE._replace(poll=0.2)

def logged(job, *more):
    with open("starts.log", "a") as log:
        log.write("".join(f"{spec.id} {os.getpid()}\\n" for spec in job.specs))
    return real(job, *more)

worker.run_job = logged
from pflbench.cli.main import main
main(sys.argv[1:])
"""
"""The program; every run that starts is noted in a file."""


def terminal(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "terminal.py").write_text(LOGGING)
    return subprocess.Popen(
        [sys.executable, "terminal.py", *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def starts(folder: Path) -> Counter[str]:
    """How often each run started."""
    log = folder / "starts.log"
    return Counter(line.split()[0] for line in log.read_text().splitlines()) if log.exists() else Counter()


def ids(folder: Path) -> list[str]:
    return [spec.id for spec in expand(load(str(folder / "tiny.toml"))).runs]


def scores(results: Path) -> dict[str, object]:
    store = Store(results)
    return {run.spec.id: store.read(run.spec.id).scores for run in store.list()}


def lease_of_a_dead_host(results: Path, id: str) -> Path:
    folder = results / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{id}.claim"
    path.write_text("filelock/2\npid=1\nhost=gone\nmode=lease\ntoken=abc\nduration=0.5\n")
    return path


def test_two_terminals_share_the_work(cli, folder: Path) -> None:
    many = (*SHARDS, "--seeds", "0-9", "-r", "both")
    both = [terminal(folder, *many) for _ in range(2)]
    said = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    started = starts(folder)
    assert len(started) == 20 and set(started.values()) == {1}
    for out, _ in said:
        assert "20 runs finished, 0 failed" in out and "[20/20]" in out
    assert not (folder / "both" / "claims").exists()
    assert cli(*many).out.startswith("20 runs: 20 done")
    assert cli(*SHARDS, "--seeds", "0-1", "-r", "one").code == 0
    alone, shared = scores(folder / "one"), scores(folder / "both")
    assert alone and {id: shared[id] for id in alone} == alone


def test_a_killed_terminal_s_runs_are_taken_over(cli, folder: Path) -> None:
    first = terminal(folder, *SHARDS, "--seeds", "0-19")
    assert first.stdout
    while " 2/40]" not in first.stdout.readline():
        assert first.poll() is None
    first.kill()
    first.communicate()
    left = [path.read_bytes() for path in (folder / "results" / "claims").glob("*.claim")]
    before = stored(folder / "results")
    result = cli(*SHARDS, "--seeds", "0-19")
    assert result.code == 0 and ("Waiting" not in result.out or b"" in left)  # killed as it wrote its lease
    assert len(left) <= 1 and len(before) >= 2 and before.items() <= stored(folder / "results").items()
    assert not list((folder / "results" / "claims").glob("*.claim"))


def test_a_lease_left_by_a_dead_host_is_waited_for_and_taken(cli, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(leases, "PACE", Pace(beat=0.05, patience=0.5, poll=0.05))
    left = [lease_of_a_dead_host(folder / "results", id) for id in ids(folder)]  # so that there is nothing else to do
    result = cli(*SHARDS)
    assert result.code == 0 and not result.err
    assert result.out.count("Waiting for 4 runs that others train (process 1 on gone).") == 1
    assert "4 runs finished, 0 failed, 0 not started" in result.out
    trained = {run.spec.id for run in Store(folder / "results").list()}
    assert len(trained) == 4 and {path.stem for path in left if path.exists()}.isdisjoint(trained)


def test_what_another_finishes_meanwhile_is_not_trained_again(cli, folder: Path, monkeypatch) -> None:
    assert cli(*SHARDS, "-r", "other").code == 0
    real, seen = Leases.take, []

    def take(self: Leases, wanted: list[str], partly: bool = False) -> list[str]:
        seen.append(wanted)
        if len(seen) == 2:  # one run was trained here; another terminal finishes all others
            for path in (folder / "other" / "runs").glob("*.parquet"):
                if not (there := folder / "results" / "runs" / path.name).exists():
                    there.write_bytes(path.read_bytes())
        return real(self, wanted, partly)

    monkeypatch.setattr(Leases, "take", take)
    result = cli(*SHARDS)
    assert result.code == 0 and result.out.count("done by another") == 3
    assert "4 runs finished, 0 failed, 0 not started, 3 by others." in result.out


def test_whoever_slept_keeps_what_is_stored(cli, folder: Path, monkeypatch) -> None:
    """It wakes at the end of its training, and finds a result that is there."""
    assert cli(*SHARDS, "-r", "other").code == 0
    from pflbench.engine.simulate import Simulation

    real = Simulation.run

    def slow(self: Simulation) -> object:
        outcome = real(self)
        for path in (folder / "other" / "runs").glob("*.parquet"):
            (folder / "results" / "runs" / path.name).write_bytes(path.read_bytes())
        return outcome

    monkeypatch.setattr(Simulation, "run", slow)
    result = cli(*SHARDS)
    assert result.code == 0
    there, other = stored(folder / "results"), stored(folder / "other")
    assert {name: hash for name, (_, hash) in there.items()} == {name: hash for name, (_, hash) in other.items()}
    kept = scores(folder / "results")
    assert len(kept) == 4
    monkeypatch.setattr(Simulation, "run", real)
    assert cli(*SHARDS, "--redo", "always").code == 0
    again = stored(folder / "results")
    assert scores(folder / "results") == kept and all(again[name][1] != other[name][1] for name in other)


def test_ctrl_c_gives_leases_back(folder: Path) -> None:
    one = terminal(folder, *SHARDS, "--seeds", "0-49", "--jobs", "2")
    assert one.stdout
    while "  1/100]" not in one.stdout.readline():
        assert one.poll() is None
    os.killpg(one.pid, signal.SIGINT)
    one.communicate(timeout=30)
    assert one.returncode == 130 and not (folder / "results" / "claims").exists()


def test_a_killed_worker_s_run_is_given_back(cli, folder: Path) -> None:
    """Of `--jobs 2` one worker is killed: its run is tried once more, by another."""
    one = terminal(folder, *SHARDS, "--seeds", "0-9", "--jobs", "2")
    assert one.stdout
    while " 1/20]" not in one.stdout.readline():
        assert one.poll() is None
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children")
    if not children.exists():
        one.kill()
        pytest.skip("the system does not tell a process's children")
    workers = [pid for pid in children.read_text().split() if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(int(workers[0]), signal.SIGKILL)
    _, err = one.communicate(timeout=120)
    assert one.returncode == 0 and len(stored(folder / "results")) == 20, err
    assert not (folder / "results" / "claims").exists()
    assert err.count("its worker process was killed") == err.count("It is tried once more.") <= 1  # it may have idled


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system in memory of 1 MiB."""
    place = folder / "small"
    place.mkdir()
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up(cli, folder: Path, small_disk: Path) -> None:
    results = small_disk / "results"
    assert cli(*SHARDS, "--seeds", "0", "-r", str(results)).code == 0
    before = stored(results)
    ballast = small_disk / "ballast"
    free = os.statvfs(small_disk)
    ballast.write_bytes(bytes(free.f_bavail * free.f_bsize - 80 * 1024))  # the probe fits, and a few results
    result = cli(*SHARDS, "--seeds", "0-9", "-r", str(results))
    assert result.code == 1 and "Traceback" not in result.err
    assert "No space left on device" in result.err.splitlines()[-1] and "--results" in result.err
    assert before.items() <= stored(results).items() and len(stored(results)) < 20
    ballast.unlink()
    assert cli(*SHARDS, "--seeds", "0-9", "-r", str(results)).code == 0
    assert len(stored(results)) == 20 and not list(results.rglob("*.tmp")) and not list(results.rglob("*.corrupt"))


def test_a_folder_that_becomes_read_only(cli, folder: Path, small_disk: Path, monkeypatch) -> None:
    results, many = small_disk / "results", (*SHARDS, "--seeds", "0-3", "-r", str(small_disk / "results"))
    real, calls = Store.write, []

    def write(self: Store, result: object) -> Path:
        calls.append(1)
        if len(calls) == 3:  # above the folder, as a lease is open on the disk itself
            subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(results / "runs")], check=True)
        return real(self, result)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "write", write)
    result = cli(*many)
    assert result.code == 1 and len(calls) == 3
    (line,) = result.err.splitlines()
    assert "Read-only file system" in line and "--results" in line
    subprocess.run(["umount", str(results / "runs")], check=True)
    assert len(stored(results)) == 2
    assert cli(*many).code == 0 and len(stored(results)) == 8
