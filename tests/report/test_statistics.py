from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from pflbench.report.cells import Summary, summarize, verdict
from pflbench.suite.cells import Reference
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


def ours(mean: float, spread: float | None, n: int = 5) -> Summary:
    return Summary(mean, spread, spread, spread, n)


@pytest.mark.parametrize(
    ("mean", "label"),
    [
        (50.0, "within 1"),
        (55.0, "within 1"),
        (45.0, "within 1"),
        (55.01, "within 2"),
        (60.0, "within 2"),
        (39.99, "off"),
    ],
)
def test_verdict_boundaries(mean: float, label: str) -> None:
    found = verdict(ours(mean, 3.0), Reference(50.0, 4.0))  # joint spread: 5
    assert found.label == label
    assert found.ratio == pytest.approx(abs(mean - 50) / 5)


def test_a_boundary_is_not_lost_to_rounding() -> None:
    assert verdict(ours(0.1 + 0.2, 0.3), Reference(0.0, 0.0)).label == "within 1"


def test_what_bars_a_verdict() -> None:
    reference = Reference(50.0, 1.0)
    assert verdict(ours(50, 1, n=2), reference).label == "too few seeds"
    assert verdict(ours(50, None, n=1), reference).label == "too few seeds"
    suspect = verdict(ours(50, 1, n=1), Reference(50.0, 1.0, suspect="differs from Fig. 3"))
    assert (suspect.label, suspect.suspect, suspect.word) == (
        "too few seeds",
        "differs from Fig. 3",
        "reference suspect",
    )
    barred = verdict(ours(50, 1), Reference(50.0, 1.0, suspect="x"), "other data")
    assert (barred.label, barred.reason, barred.word) == ("not comparable", "other data", "not comparable")


def test_a_suspect_reference_is_compared_all_the_same() -> None:
    plain, suspect = (verdict(ours(56, 3.0), Reference(50.0, 4.0, why)) for why in (None, "a misprint"))
    assert (plain.label, plain.ratio, plain.suspect) == ("within 2", 1.2, None)
    assert replace(suspect, suspect=None) == plain and suspect.word == "reference suspect"


def test_a_reference_without_spread() -> None:
    found = verdict(ours(51, 2), Reference(50.0))
    assert (found.label, found.ratio) == ("within 1", 0.5)
    assert "prints no ±" in found.reason


def test_no_spread_at_all() -> None:
    assert verdict(ours(50, 0), Reference(50.0, 0.0)).ratio == 0.0
    assert verdict(ours(51, 0), Reference(50.0, 0.0)).label == "off"


def test_torch_stays_out() -> None:
    code = "import sys, pflbench.report.layout, pflbench.report.render; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
