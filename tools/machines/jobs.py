"""How much faster a smoke matrix is with several workers: interleaved runs of the same command into fresh folders.

    python tools/machines/jobs.py [--jobs 2] [--pairs 3] [--suite cafeme-table1] [--seeds 0-1]

Prints the seconds of each, starting included, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median


def seconds(jobs: int, options: list[str]) -> float:
    """What the matrix takes with so many workers."""
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "pflbench", "run", *options, "--profile", "smoke", "--device", "cpu", "--quiet"]
        started = time.monotonic()
        subprocess.run([*run, "--jobs", str(jobs), "--results", str(Path(folder) / "results")], check=True)
        return time.monotonic() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=2, help="workers, at most as many as cores")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--suite", default="cafeme-table1")
    parser.add_argument("--seeds", default="0-1")
    parser.add_argument("--rounds", help="other than those of the smoke profile")
    asked = parser.parse_args()
    options = ["--suite", asked.suite, "--seeds", asked.seeds, *(["--rounds", asked.rounds] if asked.rounds else [])]
    took: dict[int, list[float]] = {1: [], asked.jobs: []}
    for _ in range(asked.pairs):
        for jobs, found in took.items():
            found.append(seconds(jobs, options))
            print(f"--jobs {jobs}: {found[-1]:.1f} s", flush=True)
    one, several = (median(found) for found in took.values())
    print(f"{one:.1f} s against {several:.1f} s: {one / several:.2f} times as fast with {asked.jobs} workers")


if __name__ == "__main__":
    main()
