"""Files that a verb was asked to write: the old one, or the new one whole, and nothing else in the folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pflbench.errors import StoreError
from pflbench.output import requested


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), requested(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_bytes() == b"old"
        raise RuntimeError
    assert path.read_bytes() == b"old" and names(tmp_path) == ["table.csv"]
    with requested(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new" and names(tmp_path) == ["table.csv"]


def test_a_full_disk_costs_the_new_file_only(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"old")
    with pytest.raises(StoreError, match=r"Cannot write '.*table\.csv': No space left on device\."):
        with requested(path) as file:
            file.write(b"half")
            with Path("/dev/full").open("wb", buffering=0) as full:
                full.write(b"x")
    assert path.read_bytes() == b"old" and names(tmp_path) == ["table.csv"]


def test_a_process_that_is_killed_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"old")
    program = (
        "import os, sys; from pathlib import Path; from pflbench.output import requested\n"
        "with requested(Path(sys.argv[1])) as file: file.write(b'half'); file.flush(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == -9
    assert path.read_bytes() == b"old"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "there" / "table.csv")
    with requested(tmp_path / "link.csv") as file:
        file.write(b"new")
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "there" / "table.csv").read_bytes() == b"new"


@pytest.mark.parametrize("redirected", [True, False])
def test_a_device_is_written_to_and_not_replaced(redirected: bool, tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from pflbench.output import requested\n"
        "with requested(Path('/dev/stdout')) as file: file.write(b'new')\n"
        "print('er', flush=True)"
    )
    if redirected:  # a plain file, which the shell holds open
        with (tmp_path / "out").open("ab") as out:
            subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
        assert (tmp_path / "out").read_bytes() == b"newer\n"
    else:
        assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout == b"newer\n"
    assert names(tmp_path) == ["out"] * redirected and Path("/dev/stdout").is_symlink()


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    with requested(tmp_path / "pipe") as file:
        file.write(b"new")
    assert reader.communicate()[0] == b"new"


def test_a_long_name(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 251 + ".csv")
    with requested(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
