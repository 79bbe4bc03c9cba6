"""How much of the computing is wasted where a scheduler kills often, with checkpoints and without.

Twelve runs (two methods, six seeds) on the embedded digits, one after the other in one process that is killed (SIGKILL)
after a random time, exponentially distributed, and started again until all are stored. Wasted is what was computed
twice, and starting:

    wasted = 1 - (seconds that the stored runs' rounds took, each once) / (seconds that the processes ran)

where a round's seconds are those that the process that made it last took for it (`--follow`). At the end all scores are
held against those of an undisturbed store: bit for bit, or the program fails.

    python tools/machines/preemption.py [--rounds 2000] [--checkpoint-every 5s] [--kill 20] [--seeds 0-5]

`--checkpoint-every never` measures without checkpoints. Killed every 20 s, a run of a minute then needs about
(e**3 - 1) * 20 s, over six minutes: fewer seeds make fewer runs, two of each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pflbench.store import Store

SELECTED = ("--suite", "cafeme-table1", "--profile", "smoke", "--column", "rmnist-shards")
METHODS = ("--method", "fedavg", "--method", "ditto")


def command(results: Path, rounds: int, *more: str) -> list[str]:
    """The command that trains the runs."""
    run = (sys.executable, "-m", "pflbench", "run", *SELECTED, *METHODS, "--device", "cpu", "--jobs", "1", "--quiet")
    return [*run, "--rounds", str(rounds), "--results", str(results), "--follow", str(results / "rounds.jsonl"), *more]


def killed(results: Path, rounds: int, mean: float, seed: int, *more: str) -> tuple[float, int]:
    """Run to the end with kills, on average one every `mean` seconds; returns all seconds, and how many kills."""
    chance, seconds, kills = random.Random(seed), 0.0, 0
    while True:
        started = time.monotonic()
        process = subprocess.Popen(command(results, rounds, *more), start_new_session=True)
        try:
            code = process.wait(chance.expovariate(1 / mean) if mean else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code, kills = None, kills + 1
        seconds += time.monotonic() - started
        if code == 0:
            return seconds, kills
        if code is not None:
            raise SystemExit(f"pflbench ended with {code}")


def useful(results: Path) -> tuple[float, int]:
    """Seconds of the last time that each round was computed, and how many rounds were computed twice or more."""
    took: dict[tuple[str, int], float] = {}
    before: dict[str, tuple[int, float]] = {}
    again = 0
    for text in (results / "rounds.jsonl").read_text().splitlines():
        line = json.loads(text)
        key = line["run"], line["round"]
        again += key in took
        last = before.get(line["run"], (0, 0.0))
        went_on = last[0] == line["round"] - 1 and last[1] <= line["seconds"]
        took[key] = line["seconds"] - last[1] if went_on else line["seconds"] if line["round"] == 1 else 0.0
        before[line["run"]] = line["round"], line["seconds"]
    return sum(took.values()), again


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=2000, help="rounds of a run; choose them to take 60 to 120 s")
    parser.add_argument("--checkpoint-every", default="5s", help="as of `pflbench run`, or `never`")
    parser.add_argument("--kill", type=float, default=20.0, help="mean seconds between kills")
    parser.add_argument("--seeds", default="0-5", help="each is two runs")
    asked = parser.parse_args()
    seeds = "--seeds", asked.seeds
    kept = () if asked.checkpoint_every == "never" else ("--checkpoint-every", asked.checkpoint_every)
    with tempfile.TemporaryDirectory() as folder:
        calm, torn = Path(folder) / "calm", Path(folder) / "torn"
        seconds, _ = killed(calm, asked.rounds, 0, 0, *seeds)
        runs = {run.spec.id: run for run in map(Store(calm).read, [one.spec.id for one in Store(calm).list()])}
        print(f"undisturbed: {len(runs)} runs in {seconds:.0f} s, {seconds / len(runs):.0f} s a run", flush=True)
        spent, kills = killed(torn, asked.rounds, asked.kill, 1, *seeds, *kept)
        good, again = useful(torn)
        print(f"checkpoints {'every ' if kept else ''}{asked.checkpoint_every}: {spent:.0f} s, {kills} kills, ", end="")
        print(f"{again} rounds computed again, {1 - good / spent:.1%} wasted")
        for id, run in runs.items():
            if Store(torn).read(id).scores != run.scores:
                raise SystemExit(f"run {id} has other scores than undisturbed")
        print("scores are bit for bit those of the undisturbed store")


if __name__ == "__main__":
    main()
