from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from pflbench.report.cells import summarize
from pflbench.suite.schema import Spread

# Two seeds, two steps, moving against each other: each step spreads by 2, the means of the seeds do not.
OPPOSED = np.array([[10.0, 14.0], [14.0, 10.0]])


def test_spread_of_each_step_or_of_the_mean() -> None:
    each = summarize(OPPOSED, Spread(kind="std", ddof=0, of="each-step"))
    assert (each.mean, each.std, each.spread, each.n) == (12.0, 2.0, 2.0, 2)
    assert each.sem == pytest.approx(math.sqrt(8) / math.sqrt(2))
    mean = summarize(OPPOSED, Spread(kind="std", ddof=0, of="mean"))
    assert (mean.mean, mean.std, mean.sem) == (12.0, 0.0, 0.0)


def test_each_step_averages_standard_deviations_not_variances() -> None:
    values = np.array([[1.0, 6.0], [3.0, 0.0]])  # deviations 1 and 3; the seed means are 3.5 and 1.5
    assert summarize(values, Spread(kind="std", ddof=0, of="each-step")).std == 2.0
    assert summarize(values, Spread(kind="std", ddof=0, of="mean")).std == 1.0


def test_ddof_and_sem() -> None:
    values = np.array([[1.0], [3.0], [5.0]])
    population = summarize(values, Spread(kind="std", ddof=0))
    sample = summarize(values, Spread(kind="std", ddof=1))
    assert population.spread == pytest.approx(math.sqrt(8 / 3))
    assert sample.spread == 2.0
    for summary in (population, sample, summarize(values, Spread(kind="sem", ddof=0))):
        assert summary.sem == pytest.approx(2 / math.sqrt(3))
    assert summarize(values, Spread(kind="sem", ddof=0)).spread == pytest.approx(2 / math.sqrt(3))


@pytest.mark.parametrize("kind", ["std", "sem"])
@pytest.mark.parametrize("of", ["each-step", "mean"])
def test_one_seed_has_no_spread(kind: str, of: str) -> None:
    summary = summarize(np.array([[98.82, 98.82]]), Spread(kind=kind, ddof=0, of=of))  # type: ignore[arg-type]
    assert summary.mean == pytest.approx(98.82)
    assert summary[1:] == (None, None, None, 1)


def test_torch_stays_out() -> None:
    code = "import sys, pflbench.report.layout, pflbench.report.render; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
