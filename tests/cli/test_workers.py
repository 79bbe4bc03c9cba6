"""Runs in worker processes: one is killed, others warn; what the user reads of it."""

import contextlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_kit import METHOD, start, stored

from pflbench.running import local
from pflbench.running.execution import Execution
from pflbench.running.job import Job
from pflbench.store import Store

pytestmark = pytest.mark.slow

ROW = """
[[row]]
id = "foo"
title = "Foo"
method = "foo.py:Foo"
stage = "global"

"""


KILLED = r"its worker process was killed: probably the machine ran out of memory \(fewer --jobs need less\)\."


def program(folder: Path, doom: str, seeds: str) -> tuple[int, str, list[str]]:
    """The exit code, output and lines of errors of runs of a method that, on a condition, kills its own process."""
    text = METHOD.replace(
        "        (batches,) = taken",
        "        import os, signal, warnings\n"
        "        warnings.warn('be careful')\n"
        f"{doom}"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        (batches,) = taken",
    )
    (folder / "foo.py").write_text(text)
    toml = folder / "tiny.toml"
    head, rows = toml.read_text().split("[[row]]", 1)
    toml.write_text(head + ROW.lstrip() + "[[row]]" + rows)
    command = ("run", "-s", "tiny.toml", "--column", "shards", "-m", "foo", "--seeds", seeds, "--jobs", "2")
    process = start(*command, cwd=folder)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, sorted(err.splitlines())


def test_a_killed_worker_s_run_is_tried_once_more_and_warnings_arrive_once(folder: Path) -> None:
    once = (
        "        try:\n"
        "            os.mkdir('killed')\n"
        "        except FileExistsError:\n"
        "            pass\n"
        "        else:\n"
    )
    code, out, errors = program(folder, once, "0-2")
    assert code == 0 and out.startswith("3 runs: 0 done, 0 failed before, 3 to do.\nRunning on cpu (")
    assert "3 runs finished, 0 failed, 0 not started" in out and len(stored(folder / "results")) == 3
    warned, again = errors
    assert warned == "Warning: be careful"
    assert re.fullmatch(rf"Warning: foo.py:Foo on digits, seed [01]: {KILLED} It is tried once more\.", again)


def test_a_run_whose_workers_are_killed_twice_is_given_up(folder: Path) -> None:
    code, out, errors = program(folder, "        if True:\n", "0-1")
    assert code == 1 and "0 runs finished, 2 failed, 0 not started" in out
    one, *told = errors
    assert re.fullmatch(rf"Error: shards · foo · seed [01] · 2 rounds and 1 more: {KILLED}", one), errors
    assert [line.rpartition("seed ")[2][0] for line in told if "tried once more" in line] == ["0", "1"]
    assert not stored(folder / "results")  # what was killed is not stored as failed


def test_each_worker_sees_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """In turn, also a worker that is started again in the slot of a dead one."""
    served: list[str] = []

    class Served:
        def __enter__(self) -> tuple[None, None]:
            return None, None

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(local, "serving", lambda target, *more: served.append(more[-1]) or Served())
    parent = local._Parent([], Execution(), print, ["cuda:0", "cuda:1"])
    with contextlib.ExitStack() as parent.running:
        for slot in (0, 1, 2, 1):
            parent._start(slot)
    assert served == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"] and parent.board.alive == 4
    assert [local.visible(device) for device in served[:2]] == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5")
    assert [local.visible(device) for device in served[:2]] == ["2", "GPU-5"]


def test_a_worker_killed_after_it_stored_its_run_costs_no_attempt(cli, folder: Path) -> None:
    assert cli("run", "-s", "tiny.toml", "--column", "shards", "--seeds", "0").code == 0
    spec = Store(folder / "results").list()[0].spec
    job = Job((spec,))
    dead: Any = SimpleNamespace(exitcode=-9)
    pipe: Any = None
    parent = local._Parent([job], Execution(results=folder / "results"), lambda _: None, [])
    parent._start = lambda slot: local._Worker(slot, dead, pipe)  # type: ignore[method-assign]
    parent._bury(local._Worker(0, dead, pipe, job))
    assert [done.status for done in parent.dones] == ["done"] and not parent.unreported
    assert not (folder / "results" / "claims").exists()
