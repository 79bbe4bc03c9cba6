"""Rows whose hyperparameters each client chooses from a grid for itself (pFedVEM's row Local)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pflbench.errors import PflbenchError
from pflbench.report.reading import Rounds


def choose(points: Sequence[Rounds], by: Sequence[Rounds]) -> Rounds:
    """For each client the values of the point at which `by` scores best; ties: the first.

    What counts of `by` is a client's mean over rounds and steps. Raises `PflbenchError` where not all rounds of all
    points score the same clients.
    """
    clients = points[0][0].clients
    if any(one.clients != clients for rounds in (*points, *by) for one in rounds):
        raise PflbenchError("The runs of a grid do not score the same clients, so none can choose between them.")
    best = np.stack([np.mean([one.values.mean(axis=0) for one in rounds], axis=0) for rounds in by]).argmax(axis=0)
    chosen = []
    for alike in zip(*points, strict=True):  # the same round of every point
        values = np.stack([one.values for one in alike])  # [point, step, client]
        chosen.append(alike[0]._replace(values=np.take_along_axis(values, best[None, None], axis=0)[0]))
    return tuple(chosen)
