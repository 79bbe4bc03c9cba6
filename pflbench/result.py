"""Result of one run: scores per client and moment, provenance, or the failure. Plain values, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pflbench.spec import RunSpec

CLOSE = 0.1
"""Points by which mean accuracies of a run made twice may differ: rounding, on another machine or in a stack."""


class Score(NamedTuple):
    """One client scored once. `round` counts finished rounds; `step` counts fine-tuning updates (0 = none).

    `client` is -1 where the global model is scored on the federation's test rows.
    """

    stage: str
    round: int
    step: int
    client: int
    correct: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which a score does not need
    loss_sum: float
    accuracy: float
    """In [0, 1], formed as the spec's `scoring.average` says (so not always correct / count)."""


class Metric(NamedTuple):
    """A number about one client at one moment, that its method reports (pFedVEM's confidence)."""

    round: int
    client: int
    name: str
    value: float


def core_seconds(provenance: Mapping[str, Any]) -> float | None:
    """Seconds that a run took on a processor's core; None for one on a GPU, or if it is not recorded."""
    took = None if provenance.get("peak_device_memory") else provenance.get("wall_seconds")
    return float(took) if took else None


@dataclass(frozen=True)
class RunResult:
    """A finished or failed run. `failure` is None for a finished one; a failed run has no scores."""

    spec: RunSpec
    scores: Sequence[Score] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    """Flat JSON values: commit, dirty, versions, device, data_hash, wall_seconds, …"""
    failure: str | None = None
    metrics: Sequence[Metric] = ()
