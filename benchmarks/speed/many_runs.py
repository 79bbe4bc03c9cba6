"""How long `pflbench report` takes, and how much memory, on a results folder with many packed runs.

    python benchmarks/speed/many_runs.py [--runs 2000] [--results FOLDER]

It makes the results up, in a temporary folder unless one is given: runs of the shipped suites, beginning with the
largest table, each with as many scores as a real one has, packed as `pflbench pack` does. Then it starts `pflbench
report` on them, which shows that table, and prints processor time, time and peak memory of each try. A folder that has
runs already is used as it is.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pflbench.result import Metric, RunResult, Score
from pflbench.selection import selection
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.store.packing import pack
from pflbench.suite.expand import expand
from pflbench.suite.load import load

SUITES = ("pfedvem-table1", "fedec-table2", "fedec-variants", "cafeme-table1", "fedec-femnist")
TRIES = 3


def make(store: Store, number: int) -> int:
    """Fill a store with so many packed runs of these suites; how many there are in the end."""
    made: set[str] = set()
    for name in SUITES:
        table = expand(load(name), selection(suites=[name]))
        cells = {run: cell for cell in reversed(table.cells) for run in cell.needed}
        for run in table.runs:
            if run.id not in made and len(made) < number:
                asked = table.asks(cells[run])
                # The first suite ends last, so it is the one that a bare report shows.
                finished = f"{2040 - SUITES.index(name)}-01-01T00:00:00.000+00:00"
                store.write(invented(run, {"data_hash": run.dataset.name, "asked": asked, "finished": finished}))
                made.add(run.id)
        pack(store)
    return len(made)


def invented(run: RunSpec, provenance: dict[str, object]) -> RunResult:
    """A result of a run with random scores: one for each stage, round, fine-tuning step and client that it scores."""
    chance = random.Random(run.seed)
    clients = {
        "held-out": range(run.training_clients, run.clients),
        "training": range(run.training_clients),
        "all": range(run.clients),
    }[run.scoring.clients][: run.scoring.first]
    scores = []
    for stage in run.scoring.stages:
        steps = run.scoring.finetune.steps if stage == "finetuned" and run.scoring.finetune else 0
        on_test = stage == "global" and run.scoring.global_on == "test-set" and not run.validation
        for round in range(run.rounds - run.scoring.last + 1, run.rounds + 1):
            for step in range(steps + 1):
                for client in [-1] if on_test else clients:
                    correct = chance.randrange(101)
                    scores.append(Score(stage, round, step, client, correct, 100, 50.0, correct / 100))
    support = tuple(Metric(0, client, "support", float(chance.randrange(50, 500))) for client in range(run.clients))
    return RunResult(run, tuple(scores), provenance, None, support)


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)
"""
"""A small process that starts another: a process counts the memory of the one that started it as its own."""


def measure(results: Path) -> tuple[float, float, float]:
    """Processor seconds, seconds and peak memory in MB of one report."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "pflbench", "report", "--results", str(results)]
    measured = subprocess.run([sys.executable, "-c", MEASURE, *command], stdout=subprocess.PIPE, text=True, check=True)
    cpu, memory = map(float, measured.stdout.split())
    return cpu, time.perf_counter() - started, memory


def main() -> None:
    """Make the results, if they are not there, and measure."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=2000, help="How many runs to make up (default: 2000).")
    parser.add_argument("--results", type=Path, help="A results folder to keep them in (default: a temporary one).")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        store = Store(options.results or Path(temporary))
        number = len(store.list()) or make(store, options.runs)
        size = sum(path.stat().st_size for path in store.packs.folder.glob("*.parquet"))
        print(f"{number} runs in {len(store.packs.all())} packs, {size / 1e6:.0f} MB")
        for _ in range(TRIES):
            cpu, seconds, memory = measure(store.root)
            print(f"report: {cpu:.2f} s of processor time, {seconds:.2f} s, {memory:.0f} MB at most")


if __name__ == "__main__":
    main()
