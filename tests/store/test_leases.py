"""Leases over a file layer that behaves as network file systems do. No real one was at hand."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from pflbench.errors import StoreError
from pflbench.store import process
from pflbench.store.leases import Files, Leases, Pace
from pflbench.store.process import Process, here

PACE = Pace(beat=5.0, patience=120.0)


class Clock:
    """Seconds that pass when something waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Odd(Files):
    """Files of a network: what is queued for an operation happens instead of it, or after it was done.

    `late`: so many reads of a file find nothing yet.
    """

    def __init__(self) -> None:
        self.before: dict[str, list[OSError]] = {}
        self.after: dict[str, list[OSError]] = {}
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.late = 0

    def _do(self, name: str, act: Callable[[], None]) -> None:
        if name in self.meanwhile:
            self.meanwhile.pop(name)()
        if self.before.get(name):
            raise self.before[name].pop(0)
        act()
        if self.after.get(name):
            raise self.after[name].pop(0)

    def create(self, path: Path, content: str) -> None:
        self._do("create", lambda: Files.create(self, path, content))

    def rename(self, path: Path, to: Path) -> None:
        self._do("rename", lambda: Files.rename(self, path, to))

    def read(self, path: Path) -> str:
        self._do("read", lambda: None)
        if path.suffix == ".claim" and self.late:
            self.late -= 1
            raise FileNotFoundError(errno.ENOENT, "not seen yet")
        return super().read(path)


def far(number: int = 1) -> Process:
    """A process of another machine."""
    return Process(f"far{number}", f"boot{number}", "pid:[1]", 7, "70")


class World:
    """Processes on machines of their own that share a folder, and a clock."""

    def __init__(self, results: Path) -> None:
        self.results, self.clock, self.number = results, Clock(), 0

    def leases(self, files: Files | None = None, me: Process | None = None) -> Leases:
        self.number += 1
        return Leases(self.results, files, self.clock, self.clock.sleep, me or far(self.number), PACE)

    def wait(self, seconds: float, *, alive: tuple[Leases, ...] = (), watching: tuple[Leases, ...] = ()) -> None:
        """Time passes, in which some give signs of life and some look."""
        for second in range(int(seconds)):
            self.clock.now += 1
            for one in alive if second % PACE.beat == 0 else ():
                one.beat()
            for one in watching if second % PACE.look == 0 else ():
                one.look()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "results")


def names(world: World) -> set[str]:
    folder = world.results / "claims"
    return {path.name.partition(".")[0] for path in folder.glob("*.claim")} if folder.exists() else set()


def test_a_run_is_one_process_s(world: World) -> None:
    first, second = world.leases(), world.leases()
    assert first.take(["a"]) == ["a"] and first.take(["a"]) == ["a"]
    assert second.take(["a"]) == [] and second.take(["b"]) == ["b"]
    assert second.holders(["a", "b"]) == ["process 7 on far1", "process 7 on far2"]
    first.release(["a"])
    assert second.take(["a"]) == ["a"]
    first.release(["a"])  # no longer its own
    assert names(world) == {"a", "b"}


def test_a_stack_is_taken_whole_or_where_that_is_all_there_is_partly(world: World) -> None:
    first, second = world.leases(), world.leases()
    assert first.take(["b"]) == ["b"]
    assert second.take(["a", "b", "c"]) == [] and names(world) == {"b"}
    assert second.take(["a", "b", "c"], partly=True) == ["a", "c"]


def test_whoever_ends_leaves_nothing(world: World) -> None:
    first, second = world.leases(), world.leases()
    first.take(["a", "b"])
    second.take(["c"])
    first.close()
    assert names(world) == {"c"}
    second.close()
    assert not (world.results / "claims").exists()
    assert first.take(["a"]) == ["a"]  # the folder comes again


def test_what_the_dead_left_is_swept_away(world: World) -> None:
    dead, alive, one = world.leases(), world.leases(), world.leases()
    dead.take(["a"])  # and stored it, before it died
    alive.take(["b"])
    one.take(["c"])
    world.wait(PACE.patience + 30, alive=(alive,), watching=(one,))
    one.close()
    assert names(world) == {"b"}


def test_the_folder_that_goes_between_two_steps_comes_again(world: World) -> None:
    files = Odd()
    one = world.leases(files)

    def removed() -> None:
        for path in (world.results / "claims").iterdir():
            path.unlink()
        (world.results / "claims").rmdir()

    files.meanwhile["create"] = removed
    assert one.take(["a"]) == ["a"]


def test_a_silent_process_loses_its_lease_and_a_living_one_keeps_it(world: World) -> None:
    dead, alive, watcher = world.leases(), world.leases(), world.leases()
    dead.take(["a"])
    alive.take(["b"])
    watcher.look()
    world.wait(PACE.patience - 20, alive=(alive,), watching=(watcher,))
    assert watcher.take(["a"]) == []
    world.wait(40, alive=(alive,), watching=(watcher,))
    assert watcher.take(["a"]) == ["a"] and watcher.take(["b"]) == []
    world.wait(3600, alive=(alive,), watching=(watcher,))
    assert watcher.take(["b"]) == []
    assert not list((world.results / "claims").glob("*.stale"))


def test_all_that_a_silent_process_held_is_free_and_several_watchers_share_it(world: World) -> None:
    dead, one, two = world.leases(), world.leases(), world.leases()
    dead.take(["a", "b", "c"])
    world.wait(PACE.patience + 30, alive=(one, two), watching=(one, two))
    assert one.take(["a"]) == ["a"] and two.take(["a"]) == []
    assert two.take(["b"]) == ["b"] and one.take(["b"]) == []
    world.wait(PACE.look, alive=(one, two), watching=(one, two))
    assert one.take(["c"]) == ["c"], "that its sign of life was cleared away is none"


def test_a_clock_that_jumps_kills_nobody(world: World) -> None:
    """The watcher slept for a day, or its clock was set: of the time between two looks it saw nothing."""
    alive, watcher = world.leases(), world.leases()
    alive.take(["a"])
    watcher.look()
    world.clock.now += 24 * 3600
    watcher.look()
    assert watcher.take(["a"]) == []
    world.clock.now -= 48 * 3600
    watcher.look()
    assert watcher.take(["a"]) == []
    for _ in range(int(PACE.patience) + 30):  # looks within one moment see no time go by
        watcher.look()
    assert watcher.take(["a"]) == []
    world.wait(PACE.patience + 30, alive=(alive,), watching=(watcher,))
    assert watcher.take(["a"]) == []


def test_a_holder_that_slept_and_wakes_touches_nothing_of_its_taker(world: World) -> None:
    slept, taker, other = world.leases(), world.leases(), world.leases()
    slept.take(["a"])
    world.wait(PACE.patience + 30, watching=(taker,))
    assert taker.take(["a"]) == ["a"]
    slept.beat()
    slept.release(["a"])
    assert names(world) == {"a"} and slept.take(["a"]) == []
    assert other.take(["a"]) == []
    slept.close()
    assert names(world) == {"a"} and other.holders(["a"]) == ["process 7 on far2"]


def test_one_of_two_takers_wins_whenever_the_other_comes_between(world: World) -> None:
    files = Odd()
    dead, slow, fast = world.leases(), world.leases(files), world.leases()
    dead.take(["a"])
    world.wait(PACE.patience + 30, watching=(slow, fast))
    files.meanwhile["rename"] = lambda: fast.take(["a"])  # slow has looked, and now renames what is fast's
    assert slow.take(["a"]) == []
    assert fast.holders(["a"]) == ["process 7 on far3"], "what was renamed by mistake is given back"
    assert not list((world.results / "claims").glob("*.stale"))


def test_a_create_that_succeeded_and_says_it_did_not(world: World) -> None:
    """A network repeats a request whose answer was lost: the second finds the file of the first."""
    files = Odd()
    one = world.leases(files)
    files.after["create"] = [FileExistsError(errno.EEXIST, "File exists")]
    assert one.take(["a"]) == ["a"] and world.leases().take(["a"]) == []


def test_a_create_that_another_won(world: World) -> None:
    files = Odd()
    one, other = world.leases(files), world.leases()
    files.meanwhile["create"] = lambda: other.take(["a"])
    assert one.take(["a"]) == [] and other.holders(["a"]) == ["process 7 on far2"]


def test_a_rename_that_succeeded_and_says_it_did_not(world: World) -> None:
    files = Odd()
    dead, one = world.leases(), world.leases(files)
    dead.take(["a"])
    world.wait(PACE.patience + 30, watching=(one,))
    files.after["rename"] = [FileNotFoundError(errno.ENOENT, "No such file")]
    assert one.take(["a"]) == ["a"]


def test_a_lease_that_is_seen_late_is_still_ours(world: World) -> None:
    files = Odd()
    one = world.leases(files)
    files.late = 3  # before it is written, and twice afterwards
    assert one.take(["a"]) == ["a"]
    files.late = 9
    assert one.take(["b"]) == []  # not seen: perhaps another's
    files.late = 0
    assert one.take(["b"]) == ["b"] and names(world) == {"a", "b"}


def test_another_s_lease_that_is_seen_late_is_respected(world: World) -> None:
    files = Odd()
    other, one = world.leases(), world.leases(files)
    other.take(["a"])
    files.late = 1
    assert one.take(["a"]) == [] and other.take(["a"]) == ["a"]


@pytest.mark.parametrize("operation", ["read", "create", "rename"])
def test_a_stale_handle_is_tried_again(world: World, operation: str) -> None:
    files = Odd()
    dead, one = world.leases(), world.leases(files)
    dead.take(["a"])
    world.wait(PACE.patience + 30, watching=(one,))
    files.before[operation] = [OSError(errno.ESTALE, "Stale file handle")]
    assert one.take(["a"]) == ["a"] or one.take(["a"]) == ["a"]


def test_what_cannot_be_written_says_so(world: World) -> None:
    files = Odd()
    one = world.leases(files)
    assert one.take(["a"]) == ["a"]
    files.before["create"] = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]
    with pytest.raises(StoreError, match=r"Cannot note in .*claims' what is being trained: No space left on device\."):
        one.take(["b", "c"])
    assert names(world) == {"a"}


def test_a_full_disk_leaves_no_lease_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one, real = world.leases(), Path.open
    assert one.take(["a"]) == ["a"]

    def full(path: Path, mode: str = "r", **options: Any) -> IO[Any]:
        if mode != "x":
            return real(path, mode, **options)
        path.touch()
        return real(Path("/dev/full"), "w", **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StoreError, match="No space left on device"):
        one.take(["b"])
    monkeypatch.undo()
    assert names(world) == {"a"} and world.leases().take(["b"]) == ["b"]


def test_a_lease_that_says_nothing_is_given_time_and_taken(world: World) -> None:
    (world.results / "claims").mkdir(parents=True)
    odd = {"a": "", "b": "[]", "c": '{"token": "../../x", "process": {"pid": "?"}}', "d": "[" * 100_000}
    for id, content in odd.items():
        (world.results / "claims" / f"{id}.claim").write_text(content)
    one = world.leases()
    assert [one.take([id]) for id in odd] == [[], [], [], []]
    world.wait(PACE.patience + 30, watching=(one,))
    assert [one.take([id]) for id in odd] == [["a"], ["b"], ["c"], ["d"]]


def test_a_process_of_this_boot_that_ended_is_gone_at_once(world: World) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = here()
    if not (mine.boot and mine.space and mine.started):
        pytest.skip("this system does not tell boots and processes apart")
    theirs = replace(mine, pid=child.pid, started=process._started(child.pid))
    assert not theirs.gone and not mine.gone
    ended, one = world.leases(me=theirs), world.leases(me=mine)
    ended.take(["a"])
    assert one.take(["a"]) == []
    child.kill()
    assert one.take(["a"]) == ["a"] or child.wait(10)  # a zombie has ended, too
    child.communicate()
    assert theirs.gone and replace(mine, started="1").gone, "its number was given to another"
    elsewhere = [replace(theirs, **{what: "x"}) for what in ("boot", "space")]
    assert not any(one.gone for one in [*elsewhere, replace(theirs, boot=""), replace(theirs, space="")])


def test_signs_of_life_come_by_themselves(tmp_path: Path) -> None:
    pace = Pace(beat=0.02, patience=0.4, poll=0.02)
    with Leases(tmp_path, pace=pace, me=far(1)) as alive, Leases(tmp_path, pace=pace, me=far(2)) as watcher:
        dead = Leases(tmp_path, pace=pace, me=far(3))
        assert alive.take(["a"]) and dead.take(["b"])
        end = time.monotonic() + 10
        while not watcher.take(["b"]) and time.monotonic() < end:
            time.sleep(pace.poll)
        assert not watcher.take(["a"]) and watcher.take(["b"])
    assert not list((tmp_path / "claims").glob("*.claim"))
