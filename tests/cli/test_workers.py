"""Runs in worker processes: one is killed, others warn; what the user reads of it."""

import re
from pathlib import Path

from cli_kit import METHOD, start, stored

ROW = """
[[row]]
id = "foo"
title = "Foo"
method = "foo.py:Foo"
stage = "global"

"""


def test_a_killed_worker_costs_one_run_and_warnings_arrive_once(folder: Path) -> None:
    text = METHOD.replace(
        "        (batches,) = taken",
        "        import os, signal, warnings\n"
        "        warnings.warn('be careful')\n"
        "        try:\n"
        "            os.mkdir('killed')\n"
        "        except FileExistsError:\n"
        "            pass\n"
        "        else:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        (batches,) = taken",
    )
    (folder / "foo.py").write_text(text)
    toml = folder / "tiny.toml"
    head, rows = toml.read_text().split("[[row]]", 1)
    toml.write_text(head + ROW.lstrip() + "[[row]]" + rows)

    command = ("run", "-s", "tiny.toml", "--column", "shards", "-m", "foo", "--seeds", "0-2", "--jobs", "2")
    process = start(*command, cwd=folder)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out.startswith("3 runs: 0 done, 0 failed before, 3 to do.\nRunning on cpu (")
    assert "2 runs finished, 1 failed." in out
    killed, warned = sorted(err.splitlines())
    assert re.fullmatch(
        r"Error: shards · foo.py:Foo · seed [01] · 2 rounds: its worker process was killed: "
        r"probably the machine ran out of memory \(fewer --jobs need less\)\.",
        killed,
    )
    assert warned == "Warning: be careful"
    assert len(stored(folder / "results")) == 2  # what was killed is not stored as failed
