"""How much memory a worker of `pflbench run` takes, method by method, at its peak.

    python tools/speed/memory.py                        # CAFeMe's RMNIST columns, three rounds
    python tools/speed/memory.py --rounds 60 -m cafeme  # long enough that nearly every client has a state
    python tools/speed/memory.py --together             # all methods one after the other in the same workers

Each method's runs are made by so many workers at a time, in a temporary results folder, and `/proc` is asked every 50
ms. What counts is the proportional set size (PSS): pages that several processes share count for each in part. `own` is
what a worker shares with nobody and no file. All are the peaks of the largest worker, in MB. Linux only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PAUSE = 0.05  # seconds between two samples
TREE = Path(__file__).parents[2]


class Sample(NamedTuple):
    """A process's memory in MB: its proportional set, what is its own alone, and its resident set."""

    pss: float
    own: float
    rss: float


def sample(process: int) -> Sample | None:
    """A process's memory now; None if it is gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return None
    found = {line.split(":")[0]: float(line.split()[1]) * 1024 / 1e6 for line in lines}
    return Sample(found["Pss"], found["Anonymous"], found["Rss"]) if "Pss" in found else None


def children(process: int) -> list[int]:
    """The processes that a process has started and that are there."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == process:
                found.append(int(folder.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def peak(command: list[str]) -> tuple[Sample, float]:
    """The peaks of the largest process that a command starts, and the seconds that it takes.

    Raises `SystemExit` if the command fails, or starts no process.
    """
    highest, started = Sample(0, 0, 0), time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(TREE))}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as program:
        while program.poll() is None:
            for found in filter(None, map(sample, children(program.pid))):
                highest = Sample(*map(max, highest, found))
            time.sleep(PAUSE)
    if program.returncode or not highest.pss:
        sys.exit(f"{' '.join(command)} failed, or started no worker.")
    return highest, time.perf_counter() - started


def main() -> None:
    """Measure, and print a row for each column and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-s", "--suite", default="cafeme-table1")
    parser.add_argument("--column", action="append", help="default: rmnist-shards and rmnist-dirichlet")
    parser.add_argument("-m", "--method", action="append", help="default: those of CAFeMe's table")
    parser.add_argument("--profile", default="paper")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="workers, and seeds of each method")
    parser.add_argument("--together", action="store_true", help="all methods in the same workers")
    options = parser.parse_args()
    columns = options.column or ["rmnist-shards", "rmnist-dirichlet"]
    methods = options.method or ["fedavg", "ifca", "ditto", "fedrep-averaged", "per-fedavg", "cafeme"]
    print("| column | method | PSS | own | RSS | seconds |\n|---|---|---|---|---|---|", flush=True)
    for column in columns:
        for some in [methods] if options.together else [[method] for method in methods]:
            with tempfile.TemporaryDirectory() as results:
                command = [sys.executable, "-m", "pflbench", "run", "-s", options.suite, "--profile", options.profile]
                command += ["--column", column, "--rounds", str(options.rounds), "--seeds", f"0-{options.jobs - 1}"]
                command += ["--jobs", str(options.jobs), "--device", "cpu", "--quiet", "--results", results]
                found, seconds = peak(command + [part for method in some for part in ("-m", method)])
            print(
                f"| {column} | {', '.join(some)} | {' | '.join(f'{n:.0f}' for n in found)} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
