"""Rows whose hyperparameters each client chooses from a grid for itself (pFedVEM's row Local)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pflbench.errors import PflbenchError
from pflbench.report.reading import Rounds


def choose(points: Sequence[Rounds], by: Sequence[Rounds]) -> Rounds:
    """For each client the values of the point at which `by` scores best; ties: the first.

    Raises `PflbenchError` where not all rounds of all points score the same clients.
    """
    _check_alike((*points, *by))
    best = best_points(by)
    chosen = []
    for alike in zip(*points, strict=True):  # the same round of every point
        values = np.stack([one.values for one in alike])  # [point, step, client]
        chosen.append(alike[0]._replace(values=np.take_along_axis(values, best[None, None], axis=0)[0]))
    return tuple(chosen)


def best_points(by: Sequence[Rounds]) -> npt.NDArray[np.intp]:
    """For each client the number of the point that scores best in its mean over rounds and steps; ties: the first.

    Raises `PflbenchError` as `choose` does.
    """
    _check_alike(by)
    means = np.stack([np.mean([one.values.mean(axis=0) for one in rounds], axis=0) for rounds in by])
    return np.asarray(means.argmax(axis=0))


def _check_alike(points: Sequence[Rounds]) -> None:
    clients = points[0][0].clients
    if any(one.clients != clients for rounds in points for one in rounds):
        raise PflbenchError("The runs of a grid do not score the same clients, so none can choose between them.")
