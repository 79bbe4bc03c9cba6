"""Less of an environment than usual: no home folder, no terminal, closed or full outputs, a link to nowhere."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pflbench.cli.progress import Display
from pflbench.data.root import cache_folder, data_root
from pflbench.errors import UsageError
from pflbench.running import jobs
from pflbench.running.events import Notice
from pflbench.store import Store

SHORT = ("run", "-s", "tiny.toml", "--column", "shards", "-m", "fedavg", "--seeds", "0")


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a shell makes of `pflbench COMMAND`."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    line = f"{sys.executable} -m pflbench {command}"
    return subprocess.run(["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_without_a_home_folder_the_cache_is_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "PFLBENCH_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", nameless)
    assert Path(tempfile.gettempdir()) in cache_folder().parents
    assert data_root() == cache_folder() / "data"
    with pytest.raises(UsageError, match="write the whole path"):
        data_root("~/data")


@pytest.mark.skipif(os.name != "posix", reason="a shell's redirections")
def test_a_closed_output_is_no_error(folder: Path) -> None:
    done = shell("scores >&-", folder)
    assert done.returncode == 0 or "a bug" not in done.stderr, done
    assert "NoneType" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_output_is_one_sentence(folder: Path) -> None:
    done = shell("--version >/dev/full", folder)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert os.strerror(errno.ENOSPC) in done.stderr and "a bug" not in done.stderr


def test_a_full_disk_of_the_log_stops_no_training(cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Display, "_start", full)
    done = cli(*SHORT)
    assert done.code == 0 and done.err.count("progress cannot be printed") == 1
    assert [run.failure for run in Store(folder / "results").list()] == [None]


def test_a_full_disk_of_a_jobs_log_stops_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.print", full)
    jobs.say(Notice("4 runs to do."))


@pytest.mark.usefixtures("no_training")
def test_a_link_to_nowhere_is_named(cli, folder: Path) -> None:
    (folder / "link").symlink_to(folder / "gone")
    done = cli(*SHORT, "-r", "link")
    assert done.code == 1 and len(done.err.splitlines()) == 1
    assert "'link" in done.err
