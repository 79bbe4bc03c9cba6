"""What kind of round it is, who is asked, whose uploads arrive, and what they weigh."""

from __future__ import annotations

import numpy as np
import torch

from pflbench.data.federation import Federation
from pflbench.rng import stream
from pflbench.spec import RunSpec

FEWEST = 2
"""Uploads that arrive in a round at least (pFedVEM, authors' code)."""


def sample_cohort(spec: RunSpec, training: np.ndarray, index: int) -> np.ndarray:
    """The clients asked in round `index`: `spec.cohort` distinct ones, uniformly; `training` bool ["clients"]."""
    return stream(spec.seed, "cohort", index).choice(np.flatnonzero(training), spec.cohort, replace=False)


def coin(spec: RunSpec, index: int) -> float:
    """The round's coin, uniform in [0, 1): one for all clients (`Method.phase`)."""
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
    """Their weights in a server mean, float64 ["cohort"], summing to one."""
    sizes = [len(federation.support[c]) if spec.weights == "examples" else 1 for c in clients]
    n = torch.tensor(sizes, dtype=torch.float64)
    return n / n.sum()
