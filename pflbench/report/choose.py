"""Rows whose hyperparameters each client chooses from a grid for itself (pFedVEM's row Local)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pflbench.errors import PflbenchError
from pflbench.report.reading import Scored


def choose(points: Sequence[Scored], by: Sequence[Scored]) -> Scored:
    """For each client the values of the point at which `by` scores best in the mean over its steps; ties: the first."""
    clients = points[0].clients
    if any(one.clients != clients for one in (*points, *by)):
        raise PflbenchError("The runs of a grid do not score the same clients, so none can choose between them.")
    best = np.stack([one.values.mean(axis=0) for one in by]).argmax(axis=0)
    values = np.stack([one.values for one in points])  # [point, step, client]
    return Scored(clients, np.take_along_axis(values, best[None, None], axis=0)[0])
