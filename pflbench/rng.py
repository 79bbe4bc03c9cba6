"""Named random streams: every draw of a run comes from `(seed, name, …)`, never from global state.

A stream depends on nothing but its name, so methods of one seed meet the same federation, initial model, cohorts and
batches, and no draw depends on what else runs, or in which order. (Looped runs are equal to the bit for it; in a stack
of seeds, other seeds change the rounding.)
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def entropy(seed: int, names: tuple[str | int, ...]) -> int:
    """128 bits that depend on the seed and the names alone."""
    text = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The numpy generator called `names` of the run with this seed, e.g. `stream(0, "cohort", 17)`."""
    return np.random.default_rng(entropy(seed, names))


def torch_stream(seed: int, *names: str | int) -> torch.Generator:
    """The same as a torch generator on the CPU, so that draws do not depend on the device."""
    import torch

    return torch.Generator().manual_seed(entropy(seed, names) % 2**63)
