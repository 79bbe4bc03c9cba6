"""What is drawn for a round: its coin, the cohort, and the stragglers; and the weights of uploads."""

from __future__ import annotations

import numpy as np
import torch

from pflbench.data.federation import Federation
from pflbench.rng import stream
from pflbench.spec import RunSpec

FEWEST = 2
"""Uploads that arrive in a round at least (pFedVEM, authors' code)."""


def sample_cohort(spec: RunSpec, training: np.ndarray, index: int) -> np.ndarray:
    """The cohort of round `index`: `spec.cohort` distinct training clients, uniformly; `training`: bool ["clients"]."""
    return stream(spec.seed, "cohort", index).choice(np.flatnonzero(training), spec.cohort, replace=False)


def coin(spec: RunSpec, index: int) -> float:
    """A number uniform in [0, 1), one for all clients, which `Method.draws` sees."""
    return float(stream(spec.seed, "coin", index).random())


def arrived(spec: RunSpec, cohort: np.ndarray, index: int) -> np.ndarray:
    """The members of the cohort whose uploads reach the server: each with probability `spec.arrival`, at least two.

    A draw with fewer is drawn again, as in pFedVEM's released code.
    """
    if spec.arrival == 1:
        return cohort
    random = stream(spec.seed, "arrival", index)
    while True:
        there = random.random(len(cohort)) < spec.arrival
        if there.sum() >= min(FEWEST, len(cohort)):
            return cohort[there]


def weights(spec: RunSpec, federation: Federation, clients: list[int]) -> torch.Tensor:
    """The clients' weights in the server's mean, float64 ["cohort"], summing to one."""
    sizes = [len(federation.support[c]) if spec.weights == "examples" else 1 for c in clients]
    n = torch.tensor(sizes, dtype=torch.float64)
    return n / n.sum()
