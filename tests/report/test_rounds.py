"""Tables that average over the last rounds, weight clients by their examples, and show what participations leave."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from table_kit import row, without_paper

from pflbench.errors import PflbenchError
from pflbench.report.figures.make import draw_runs
from pflbench.report.layout import lay_out
from pflbench.report.reading import Shelf
from pflbench.report.render import render
from pflbench.report.table import Table
from pflbench.result import Metric, RunResult, Score
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.cells import Cell, Expansion, Reading, Reference
from pflbench.suite.figure import Curve, Scatter

if TYPE_CHECKING:
    from conftest import Personal

COUNTS = (30, 10)
STAGES = ("personalized", "stored")


def run(personal: Personal, seed: int, last: int = 2) -> RunSpec:
    spec = personal.spec(seed, "fedec", stages=STAGES, rounds=3)
    return spec.model_copy(update={"scoring": spec.scoring.model_copy(update={"last": last, "global_on": "clients"})})


def scores(spec: RunSpec) -> RunResult:
    """Personal models: 5, 15, 25 % after the rounds for client 0 and twice that for client 1, five more for a seed.

    Stored ones: client 1 never takes part.
    """
    found = []
    for round in (1, 2, 3):
        base = (2 * round - 1 + spec.seed) / 20
        found += [Score("personalized", round, 0, c, 0, COUNTS[c], 0.0, (c + 1) * base) for c in (0, 1)]
        found += [Score("stored", round, 0, 0, 0, COUNTS[0], 0.0, base)]
    sizes = tuple(Metric(0, c, "support", 9.0 * count) for c, count in enumerate(COUNTS))
    return RunResult(spec, tuple(found), {"data_hash": "d1"}, None, sizes)


def make(personal: Personal, stage: str = "personalized", mean: str = "examples", **changes: object) -> Expansion:
    (column,), fedec = personal.columns("a-2"), row("fedec", "FedEC")
    reading = Reading(stage, mean=mean)  # type: ignore[arg-type]
    cell = Cell(fedec, column, reading, tuple(run(personal, seed) for seed in (0, 1)))
    return personal.alone(cell, **({"rows": (fedec,), "blocks": "none"} | changes))


@pytest.fixture
def filled(personal: Personal, store: Store) -> Store:
    for seed in (0, 1):
        store.write(scores(run(personal, seed)))
    return store


def mean(table: Table) -> float:
    cell = table.rows[0].cells[0]
    assert cell and cell.mean is not None
    return cell.mean


def test_a_cell_is_the_mean_over_the_last_rounds_of_weighted_means(personal: Personal, filled: Store) -> None:
    # Client 0 after rounds 2 and 3: 15 and 25 %, with seed 1 five more: 22.5 on average; client 1 twice that.
    assert mean(lay_out(make(personal, mean="clients"), filled)) == pytest.approx((22.5 + 45) / 2)
    assert mean(lay_out(make(personal), filled)) == pytest.approx((30 * 22.5 + 10 * 45) / 40)


def test_the_footer_says_how(personal: Personal, filled: Store) -> None:
    foot = lay_out(make(personal), filled).footer
    assert any(line.endswith("; means of the scores after each of the last 2 rounds, no round or fine-tuning step is selected on test data.")
               for line in foot)  # fmt: skip
    assert "Scored: 2 clients of 2, each weighted by its number of test examples (accuracy: correct / count)." in foot
    assert "With every client counting the same instead, A 2 Clients: FedEC 33.8." in foot
    plain = lay_out(make(personal, mean="clients"), filled).footer
    assert not any("instead" in line for line in plain)
    assert "Scored: 2 clients of 2, each counting the same (accuracy: correct / count)." in plain


def test_means_that_print_alike_are_not_said_twice(personal: Personal, filled: Store) -> None:
    foot = lay_out(make(personal, "stored"), filled).footer
    assert not any("instead" in line for line in foot)
    assert "Clients that never took part, over all seeds: A 2 Clients: 2." in foot
    assert mean(lay_out(make(personal, "stored"), filled)) == pytest.approx(22.5)


def test_a_run_that_lacks_a_round(personal: Personal, store: Store) -> None:
    whole = scores(run(personal, 0))
    store.write(replace(whole, scores=tuple(s for s in whole.scores if s.round != 2)))
    with pytest.raises(PflbenchError, match="no scores at stage 'personalized', step 0, after round 2"):
        lay_out(make(personal), store)


def test_without_spread_numbers_stand_as_the_paper_prints_them(personal: Personal, filled: Store) -> None:
    given = make(personal)
    given = replace(given, cells=(replace(given.cells[0], reference=Reference(25.0)),))
    spread, without = (lay_out(replace(given, shows_spread=one), filled) for one in (True, False))
    for format in ("terminal", "markdown"):
        assert "28.1 ± 3.1" in render(spread, format, width=200) and "±" not in render(without_paper(without), format)
        assert "28.1" in render(without, format, width=200)
    assert render(spread, "csv") == render(without, "csv")
    (line,) = csv.DictReader(io.StringIO(render(without, "csv")))
    assert float(line["sem"]) == pytest.approx(3.125) and line["verdict"] == "too few seeds"
    cell = without.rows[0].cells[0]
    assert cell and cell.spread is None and cell.verdict == spread.rows[0].cells[0].verdict  # type: ignore[union-attr]


def test_figures(personal: Personal, filled: Store) -> None:
    scatter = draw_runs(make(personal), Scatter(kind="scatter", bins=2), Shelf(filled))
    assert [(p.x, p.y) for p in scatter.panels[0].series[0].points] == [
        (90, pytest.approx(45)),
        (270, pytest.approx(22.5)),
    ]
    curve = draw_runs(make(personal), Curve(kind="curve", every=1), Shelf(filled))
    # Every round stands for itself: client 0's accuracy, and client 1's of twice that at a third of its weight.
    assert [(p.x, p.y) for p in curve.panels[0].series[0].points] == [
        (r, pytest.approx((2 * r - 0.5) * 5 * 1.25)) for r in (1, 2, 3)
    ]
