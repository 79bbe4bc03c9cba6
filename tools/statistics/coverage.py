"""How often each interval of pflbench/report/statistics.py holds the true value.

Simulated accuracies: a seed's level is normal around 70 %, its clients are normal around that level. `ratio` is the
standard deviation of levels over that of clients. Prints Markdown: the percentage of 2,000 simulated tables whose
interval holds the truth (its standard error is at most 0.7 points near 90 %). docs/statistics.md has what it printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pflbench.report.statistics import (
    Interval,
    difference_interval,
    mean_interval,
    paired,
    sample,
)

Floats = npt.NDArray[np.float64]
SEEDS = 3, 5, 10
CLIENTS = 20, 100
RATIOS = 0.1, 0.3, 1.0
SPREAD = 5.0
"""Standard deviation over the clients of a seed, in points."""
PAPER = 5
"""Runs behind a paper's number."""


def tables(rng: np.random.Generator, times: int, seeds: int, clients: int, ratio: float) -> Floats:
    """Simulated accuracies ["times", "seeds", "clients"]."""
    levels = rng.normal(70, ratio * SPREAD, (times, seeds, 1))
    return np.asarray(levels + rng.normal(0, SPREAD, (times, seeds, clients)))


def over_seeds(table: Floats, rng: np.random.Generator) -> Interval | None:
    """Student's interval of a cell's mean."""
    return mean_interval(table.mean(1))


def by_pairs(table: Floats, rng: np.random.Generator) -> Interval | None:
    """The interval of the paired differences of two methods, which share levels; the truth is 0."""
    other = table + rng.normal(0, 0.5 * SPREAD, table.shape) + rng.normal(0, 0.2 * SPREAD, (len(table), 1))
    return paired((table - other).mean(1)).interval


def covered(
    made: Callable[[Floats, np.random.Generator], Interval | None], expected: float, found: Floats, seed: int
) -> float:
    """The percentage of the simulated tables whose interval holds the expected value."""
    rng = np.random.default_rng(seed)
    intervals = [made(table, rng) for table in found]
    return 100 * float(np.mean([one is not None and expected in one for one in intervals]))


def main() -> None:
    """Print the coverage of every interval over the grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2000, help="Simulated tables for each entry.")
    times = parser.parse_args().times
    print("| seeds | clients | ratio | mean | ours minus the paper's | paired |")
    print("|---|---|---|---|---|---|")
    for clients in CLIENTS:
        for seeds in SEEDS:
            for ratio in RATIOS:
                rng = np.random.default_rng([seeds, clients, int(10 * ratio)])
                found = tables(rng, times, seeds, clients, ratio)
                both = tables(rng, times, seeds + PAPER, clients, ratio)
                entries = [
                    covered(over_seeds, 70.0, found, 1),
                    covered(lambda t, _, n=seeds: welch(t, n), 0.0, both, 2),  # type: ignore[misc]
                    covered(by_pairs, 0.0, found, 3),
                ]
                print(
                    f"| {seeds} | {clients} | {ratio} | " + " | ".join(f"{one:.1f}" for one in entries) + " |",
                    flush=True,
                )


def welch(table: Floats, seeds: int) -> Interval | None:
    """Welch's interval of our seeds' mean minus that of the paper's runs, the rest of the table; the truth is 0."""
    return difference_interval(sample(table[:seeds].mean(1)), sample(table[seeds:].mean(1)))


if __name__ == "__main__":
    main()
