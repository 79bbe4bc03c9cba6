"""How often two methods that are the same are told apart, with real training.

FedAvg against FedAvg whose server begins with the seed's second initial model: on average over seeds neither is better.
Both train on scikit-learn's digits (10 clients, Dirichlet 0.5, three rounds of one epoch) under the same federations,
cohorts and minibatches. 400 comparisons of five seeds each, none of which occurs twice; p of the paired t-test at 5 %.
docs/statistics.md has what it printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.fedavg import FedAvg
from pflbench.report.statistics import LEVEL, paired
from pflbench.running import build
from pflbench.spec import Named, Scoring
from pflbench.testing import tiny_spec
from pflbench.typing import Params

SEEDS = 5
GROUP = 50
"""Seeds that are trained in one stack."""


@dataclass(frozen=True)
class Second(FedAvg):
    """FedAvg from another draw of the same distribution of initial models."""

    version: ClassVar[int] = 1

    def init(self, new: Callable[[int], Params], clients: int) -> Params:
        """The seed's second initial model."""
        return new(1)


def differences(seeds: range) -> npt.NDArray[np.float64]:
    """FedAvg minus the same from another start, in points, for each of these seeds."""
    specs = [
        tiny_spec(
            *(seed, "fedavg"),
            dataset="digits",
            partition=Named(name="dirichlet", options={"alpha": 0.5}),
            model="mlp",
            clients=10,
            training_clients=10,
            cohort=5,
            batch=10,
            rounds=3,
            scoring=Scoring(stages=("global",), clients="all"),
            precision="fp32",
        )
        for seed in seeds
    ]
    federations = [build.federation(spec, Path()) for spec in specs]
    network, means = build.network(specs[0]), []
    for method in (FedAvg(epochs=1, lr=0.05), Second(epochs=1, lr=0.05)):
        outcomes = Simulation(specs, federations, method, network, Setup(execution="vectorized")).run()
        means.append([100 * np.mean([score.accuracy for score in one.scores]) for one in outcomes])
    return np.asarray(np.subtract(*means))


def main() -> None:
    """Print how many of the comparisons are significant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=400)
    number = parser.parse_args().comparisons
    torch.set_num_threads(1)
    found = [differences(range(i, min(i + GROUP, SEEDS * number))) for i in range(0, SEEDS * number, GROUP)]
    apart = np.concatenate(found).reshape(number, SEEDS)
    tests = [paired(one) for one in apart]
    by_t = sum(one.p_t is not None and one.p_t <= 1 - LEVEL for one in tests)
    print(f"{number} comparisons of {SEEDS} seeds; a difference has a standard deviation of {apart.std():.2f} points")
    print(f"paired t-test at 5 %: {by_t} ({100 * by_t / number:.1f} %)")


if __name__ == "__main__":
    main()
