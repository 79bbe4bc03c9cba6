"""Is one checkout as fast as another? Times the engines of two trees in turn, and compares within pairs.

    python tools/speed/trees.py BEFORE AFTER            # two checkouts of this repository

Each pair is one block of both, back to back, in an order that alternates. A machine's speed changes over minutes, so
the median over pairs of seconds after / seconds before is what counts; the range says how sure that is.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from workloads import WORKLOADS


class Engine:
    """The engine of one tree, in a process of its own: `seconds(n)` of n more rounds."""

    def __init__(self, tree: Path, network: str, execution: str):
        folder = tree.resolve() / "tools" / "speed"
        if not (folder / "engine.py").is_file():
            sys.exit(f"{tree} is no checkout of pflbench: it has no tools/speed/engine.py.")
        command = [sys.executable, "engine.py", "--network", network, "--execution", execution]
        environment = {**os.environ, "PYTHONPATH": f"{tree.resolve()}", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.hear()

    def hear(self) -> dict[str, float]:
        """The next answer. Raises `SystemExit` where there is none, or where it is an error."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer: dict[str, float] = json.loads(line) if line else {"error": "the engine ended"}
        if "error" in answer:
            sys.exit(str(answer["error"]))
        return answer

    def seconds(self, rounds: int) -> float:
        """How long so many rounds take."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{rounds}\n")
        self.process.stdin.flush()
        answer = self.hear()
        return answer["seconds"] / answer["rounds"]


def compare(before: Path, after: Path, network: str, execution: str, pairs: int, seconds: float) -> list[float]:
    """Seconds after over seconds before, for each pair of blocks of about so many seconds."""
    engines: list[Engine] = []
    try:
        for tree in (before, after):
            engines.append(Engine(tree, network, execution))
        rounds = max(1, round(seconds / statistics.mean(engine.seconds(2) for engine in engines)))
        ratios = []
        for pair in range(pairs):
            took = {i: engines[i].seconds(rounds) for i in ((0, 1) if pair % 2 == 0 else (1, 0))}
            ratios.append(took[1] / took[0])
        return ratios
    finally:
        for engine in engines:
            engine.process.kill()
            engine.process.communicate()


def main() -> None:
    """Compare on each network, and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--network", action="append", choices=list(WORKLOADS), help="default: all")
    parser.add_argument("--execution", choices=("loop", "vectorized"), default="loop")
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one block, about")
    options = parser.parse_args()
    for network in options.network or WORKLOADS:
        ratios = compare(options.before, options.after, network, options.execution, options.pairs, options.seconds)
        middle, least, most = statistics.median(ratios), min(ratios), max(ratios)
        print(
            f"{network:6} {options.execution}: {middle:.3f} ({least:.3f} to {most:.3f}, {len(ratios)} pairs)",
            flush=True,
        )


if __name__ == "__main__":
    main()
