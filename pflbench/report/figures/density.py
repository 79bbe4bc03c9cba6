"""The density of a metric over clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pflbench.errors import PflbenchError
from pflbench.report.figures.panels import Point, Series
from pflbench.report.figures.runs import metric
from pflbench.report.reading import Floats
from pflbench.result import RunResult

POINTS = 201
CUT = 3
"""Bandwidths that a curve goes on beyond the outermost values."""
_ALIKE = 1e-6
_WHOLE = 1e-3


def pooled(runs: Sequence[RunResult], name: str, scale: str, round: int) -> list[Floats]:
    """A metric's finite values in a round, of each run that has them."""
    found = [_scaled(run, name, scale, round) for run in runs]
    return [values[np.isfinite(values)] for values in found if len(values)]


def density(label: str, values: Floats) -> Series:
    """A Gaussian kernel density, with Scott's bandwidth; a spike where all values are the same."""
    from scipy.stats import gaussian_kde  # takes a while to import

    if np.ptp(values) <= _ALIKE * np.abs(values).max():
        return Series(label, "spike", (Point(float(values.mean()), None, None, len(values)),))
    kernel = gaussian_kde(values)
    beyond = CUT * kernel.factor * values.std(ddof=1)
    x = np.linspace(values.min() - beyond, values.max() + beyond, POINTS)
    points = (Point(float(a), float(b), None, len(values)) for a, b in zip(x, kernel(x), strict=True))
    return Series(label, "line", tuple(points))


def dimension(run: RunResult, round: int) -> int:
    """How many parameters a head has, from pFedVEM's metrics: tau * (trace + deviation) is that number."""
    tau, trace, deviation = (metric(run, name, round) for name in ("tau", "trace", "deviation"))
    products = tau * (trace + deviation)
    products = products[np.isfinite(products)]
    d = round_to_whole(products)
    if d is None:
        raise PflbenchError(
            f"Run {run.spec.id} does not tell the dimension of its heads: it has not pFedVEM's full tau."
        )
    return d


def round_to_whole(products: Floats) -> int | None:
    """The positive whole number that all of these are up to rounding; None if there is none."""
    whole = round(float(np.median(products))) if len(products) else 0
    return whole if whole > 0 and np.all(np.abs(products / whole - 1) < _WHOLE) else None


def _scaled(run: RunResult, name: str, scale: str, round: int) -> Floats:
    values = metric(run, name, round)
    if not len(values) or scale == "none":
        return values
    return values / (np.nansum(values) if scale == "share" else dimension(run, round))
