"""Leases of several processes on runs of one folder. `filelock` has its own tests of what file systems may do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import SoftFileLease

from pflbench.errors import StoreError
from pflbench.store.leases import Leases, Pace

PACE = Pace(beat=0.1, patience=1.5, poll=0.02)
FAR = "filelock/2\npid=7\nhost=far\nmode=lease\ntoken=abc\nduration=1.5\n"
"""Lease of a process of another machine, which may have ended."""
CHILD = """
import sys, time
from pathlib import Path
from pflbench.store.leases import Leases, Pace
one = Leases(Path(sys.argv[1]), Pace(*map(float, sys.argv[2:])))
print(one.take(["a"]), flush=True)
input()
time.sleep(2)  # its heartbeat notices the loss
print(one.take(["a"]), flush=True)
one.close()
"""


@contextmanager
def child(results: Path, pace: Pace) -> Iterator[subprocess.Popen[str]]:
    """Another process that has a lease on `a`, and tries again to take it when it reads a line."""
    program = [sys.executable, "-c", CHILD, str(results), *map(str, pace)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "['a']\n"
        try:
            yield process
        finally:
            process.kill()


def leases(results: Path) -> Leases:
    return Leases(results, PACE)


def names(results: Path) -> set[str]:
    return {path.stem for path in (results / "claims").glob("*.claim")}


def written(results: Path, **content: str) -> None:
    (results / "claims").mkdir(parents=True, exist_ok=True)
    for id, text in content.items():
        (results / "claims" / f"{id}.claim").write_text(text)


def wait_for(one: Leases, id: str, seconds: float = 20) -> float:
    """Seconds until a lease is taken."""
    start = time.monotonic()
    while not one.take([id]):
        assert time.monotonic() < start + seconds
        time.sleep(PACE.poll)
    return time.monotonic() - start


def test_a_run_is_one_process_s(tmp_path: Path) -> None:
    first, second = leases(tmp_path), leases(tmp_path)
    assert first.take(["a"]) == ["a"] and first.take(["a"]) == ["a"]
    assert second.take(["a"]) == [] and second.take(["b"]) == ["b"]
    assert second.holders(["a", "b", "c"])[0].startswith(f"process {os.getpid()} on ")
    first.release(["a"])
    wait_for(second, "a")
    first.release(["a"])  # not its own any more
    assert names(tmp_path) == {"a", "b"}
    second.close()
    assert not (tmp_path / "claims").exists()


def test_a_stack_is_taken_whole_or_where_nothing_else_remains_partly(tmp_path: Path) -> None:
    with leases(tmp_path) as first, leases(tmp_path) as second:
        assert first.take(["b"]) == ["b"]
        assert second.take(["a", "b", "c"]) == [] and names(tmp_path) == {"b"}
        assert second.take(["a", "b", "c"], partly=True) == ["a", "c"]


def test_a_silent_process_loses_its_lease_and_a_living_one_keeps_it(tmp_path: Path) -> None:
    written(tmp_path, dead=FAR)
    with leases(tmp_path) as alive, leases(tmp_path) as watcher:
        assert alive.take(["a"]) == ["a"] and watcher.take(["dead"]) == []
        assert watcher.holders(["dead"]) == ["process 7 on far"]
        assert wait_for(watcher, "dead") >= PACE.patience
        assert watcher.take(["a"]) == [] and alive.take(["dead"]) == []


def test_a_killed_process_of_this_machine_loses_its_lease_long_before_patience_ends(tmp_path: Path) -> None:
    one = Leases(tmp_path, Pace(0.1, 60.0, 0.02))
    with child(tmp_path, one.pace):
        assert one.take(["a"]) == []
    assert wait_for(one, "a") < 20
    one.close()


def test_a_living_process_keeps_its_lease(tmp_path: Path) -> None:
    one = leases(tmp_path)
    with child(tmp_path, PACE) as other:
        end = time.monotonic() + 2 * PACE.patience
        while time.monotonic() < end:
            assert one.take(["a"]) == []
            time.sleep(PACE.beat)
        assert one.holders(["a"])[0].startswith(f"process {other.pid} on ")


@pytest.mark.skipif(os.name != "posix", reason="no signal stops a process")
def test_a_process_that_was_stopped_for_too_long_loses_its_lease_and_runs_on(tmp_path: Path) -> None:
    one = leases(tmp_path)
    with child(tmp_path, PACE) as other:
        assert one.take(["a"]) == []
        other.send_signal(signal.SIGSTOP)
        assert wait_for(one, "a") > PACE.patience / 2
        other.send_signal(signal.SIGCONT)
        assert other.communicate("\n")[0] == "[]\n" and other.returncode == 0
        assert names(tmp_path) == {"a"} and one.take(["a"]) == ["a"]
    one.close()


def test_a_lease_of_another_is_read_once_between_two_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, acquired = [f"{number:016x}" for number in range(20)], list[str]()
    acquire = SoftFileLease.acquire
    monkeypatch.setattr(SoftFileLease, "acquire", lambda self: acquired.append(self.lock_file) or acquire(self))
    with Leases(tmp_path, Pace(60.0, 120.0)) as first, Leases(tmp_path, Pace(60.0, 120.0)) as second:
        assert first.take(ids) == ids and len(acquired) == 20
        for _ in range(10):
            assert second.take(ids, partly=True) == [] and len(second.holders(ids)) == 1
        assert len(acquired) == 40


def test_a_holder_that_lost_its_lease_touches_nothing_of_its_taker(tmp_path: Path) -> None:
    slept, taker = leases(tmp_path), leases(tmp_path)
    assert slept.take(["a"]) == ["a"]
    (tmp_path / "claims" / "a.claim").unlink()  # as its taker does, when it was silent for too long
    assert taker.take(["a"]) == ["a"]
    slept.release(["a"])
    assert slept.take(["a"]) == [] and names(tmp_path) == {"a"}
    slept.close()
    assert names(tmp_path) == {"a"} and taker.take(["a"]) == ["a"]


def test_leases_of_the_dead_are_removed_at_the_end(tmp_path: Path) -> None:
    written(tmp_path, stored=FAR)
    one, alive = leases(tmp_path), leases(tmp_path)
    alive.take(["b"])
    assert one.take(["stored"]) == []
    time.sleep(PACE.patience + 0.2)
    one.close()
    assert names(tmp_path) == {"b"}


def test_a_lease_whose_process_was_killed_as_it_wrote_it_is_removed_at_the_end(tmp_path: Path) -> None:
    written(tmp_path, killed="", slow="")
    writing = threading.Timer(0.02, written, [tmp_path], {"slow": FAR})
    one = leases(tmp_path)
    writing.start()
    one.close()
    writing.join()
    assert names(tmp_path) == {"slow"}
    (tmp_path / "claims" / "slow.claim").unlink()
    written(tmp_path, killed="")
    one.close()
    assert not (tmp_path / "claims").exists()


def test_the_folder_that_was_removed_comes_again(tmp_path: Path) -> None:
    one = leases(tmp_path)
    one.take(["a"])
    shutil.rmtree(tmp_path / "claims")
    assert one.take(["b"]) == ["b"]


def test_a_lease_that_names_nobody_is_given_time_and_taken(tmp_path: Path) -> None:
    odd = {"a": "", "b": "[]", "c": '{"token": "../../x", "process": {"pid": "?"}}', "d": "[" * 100_000}
    written(tmp_path, **odd)
    one = leases(tmp_path)
    assert [one.take([id]) for id in odd] == [[], [], [], []]
    for id in odd:
        wait_for(one, id)


def test_what_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "claims").write_text("a file in the way")
    with pytest.raises(StoreError, match=r"Cannot note in .*claims' what is being trained"):
        leases(tmp_path).take(["b", "c"])


def test_a_full_disk_leaves_no_lease_behind(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    one = leases(tmp_path)
    assert one.take(["a"]) == ["a"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        with pytest.raises(StoreError, match="File too large"):
            one.take(["b"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == {"a"} and leases(tmp_path).take(["b"]) == ["b"]
