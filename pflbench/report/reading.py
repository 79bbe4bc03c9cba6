"""From a run's scores to each client's accuracy, and to the mean that a cell shows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.errors import PflbenchError
from pflbench.report.table import Reading
from pflbench.result import RunResult

Floats = npt.NDArray[np.float64]

EVERYBODY = -1
"""The client of a score on the federation's test rows."""


class Scored(NamedTuple):
    """Accuracies as shares, `values[step, client]`."""

    clients: tuple[int, ...]
    values: Floats


def scored(result: RunResult, reading: Reading) -> Scored:
    """Each client's accuracy after the last round, for each step read. Raises `PflbenchError` if one is missing."""
    rows = [s for s in result.scores if s.stage == reading.stage]
    last = max((s.round for s in rows), default=0)
    found = {(s.client, s.step): s.accuracy for s in rows if s.round == last}
    clients = tuple(sorted({client for client, _ in found})) or (EVERYBODY,)
    steps = reading.steps or (max((step for _, step in found), default=0),)
    if missing := [step for client in clients for step in steps if (client, step) not in found]:
        raise PflbenchError(
            f"Run {result.spec.id} has no scores at stage {reading.stage!r}, step {missing[0]}, that a table reads."
        )
    return Scored(clients, np.array([[found[client, step] for client in clients] for step in steps]))


def average(one: Scored, reading: Reading, sizes: RunResult) -> Floats:
    """The unweighted mean over the clients that count in percent, for each step; `sizes`: a run that knows theirs."""
    values = one.values
    if reading.smallest is not None and one.clients != (EVERYBODY,):
        values = np.ascontiguousarray(values[:, _smallest(one.clients, reading.smallest, sizes)])
    return np.asarray(100 * values.mean(axis=1))


def _smallest(clients: tuple[int, ...], number: int, sizes: RunResult) -> list[int]:
    """The places of the so many clients with the least support rows; ties: the lower client number."""
    support = {m.client: m.value for m in sizes.metrics if m.round == 0 and m.name == "support"}
    if lacking := [client for client in clients if client not in support]:
        raise PflbenchError(
            f"Run {sizes.spec.id} does not say how many support rows client {lacking[0]} has, which a table of the "
            f"{number} smallest clients needs. Compute it again with --redo always."
        )
    return sorted(range(len(clients)), key=lambda i: (support[clients[i]], clients[i]))[:number]
