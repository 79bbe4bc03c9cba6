"""What the rounds before the last say, computed from the stored runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.stats

from pflbench.report.cells import recent
from pflbench.report.compact import compact
from pflbench.report.layout import lay_out
from pflbench.report.render import render
from pflbench.report.table import CellValue, Table
from pflbench.result import RunResult, Score
from pflbench.spec import RunSpec
from pflbench.stages import Shown
from pflbench.store import Store
from pflbench.suite.cells import Expansion, Reading, Reference

if TYPE_CHECKING:
    from conftest import Build

SWINGING = [0.9 if round % 2 else 0.5 for round in range(2, 12)]
"""After rounds 2, 4, …, 20; the last is 90 %."""


def walk(build: Build, spec: RunSpec, accuracies: list[float], stage: str = "global", step: int = 0) -> RunResult:
    """A run scored after every second round, on two clients with ten and thirty test examples."""
    result = build.result(spec, accuracies[-1])
    scores = [
        Score(stage, 2 * i, step, client, 0, count, 0.0, accuracy + shift * (accuracy > 0))
        for i, accuracy in enumerate(accuracies, start=spec.rounds // 2 - len(accuracies) + 1)
        for client, count, shift in ((2, 10, -0.03), (3, 30, 0.03))
    ]
    return replace(result, scores=(*scores, *(s for s in result.scores if s.stage != stage)))


@pytest.fixture
def table(build: Build) -> Expansion:
    """The global row alone, of runs of twenty rounds."""
    given = build.table(seeds=2, decimals=1)
    cell = given.places["fedavg", "digits-a"]
    runs = tuple(run.model_copy(update={"rounds": 20}) for run in cell.runs)
    return replace(given, cells=(replace(cell, runs=runs),))


def lines(table: Expansion, store: Store) -> list[str]:
    return [line for line in lay_out(table, store).footer if "scored rounds" in line or "moves by" in line]


def test_the_last_round_stands_beside_the_rounds_before_it(build: Build, store: Store, table: Expansion) -> None:
    first, second = table.places["fedavg", "digits-a"].runs
    store.write(walk(build, first, [0.1, *SWINGING[1:]]))
    store.write(walk(build, second, [0.0, *[0.7] * 10]))  # the first is out of the window
    assert lines(table, store) == [
        "Means over the last 10 scored rounds (2–20) instead of the last one alone, with the range of single runs: "
        "Digits Dir 0.3: FedAvg 68.0 (10.0–90.0, last 80.0).",
        "From one of these rounds to the next, a run moves by up to 80.0 points (FedAvg).",
    ]


def test_clients_weigh_as_in_the_cell(build: Build, table: Expansion) -> None:
    (run, _) = table.places["fedavg", "digits-a"].runs
    found = recent([walk(build, run, [0.6] * 10)], Reading("global", mean="examples"))
    assert found and (found.mean, found.last, found.step) == (pytest.approx(61.5), pytest.approx(61.5), 0)


def test_seeds_without_enough_rounds_are_left_out_and_said(build: Build, store: Store, table: Expansion) -> None:
    first, second = table.places["fedavg", "digits-a"].runs
    store.write(walk(build, first, [0.2] * 9))
    assert lines(table, store) == []
    store.write(walk(build, second, SWINGING))
    assert "FedAvg 70.0 (50.0–90.0, last 90.0; seeds 1)" in lines(table, store)[0]


def test_only_what_the_last_round_alone_decides(build: Build, table: Expansion) -> None:
    (run, _) = table.places["fedavg", "digits-a"].runs
    result = walk(build, run, SWINGING)
    assert recent([result], Reading("global"))
    assert recent([result], Reading("finetuned")) is None  # scored once
    averaged = run.model_copy(update={"scoring": run.scoring.model_copy(update={"last": 10})})
    assert recent([replace(result, spec=averaged)], Reading("global")) is None
    assert recent([], Reading("global")) is None


AROUND_70 = [0.6, 0.8, 0.65, 0.75, 0.62, 0.78, 0.67, 0.73, 0.69, 0.71]
"""Ten scored rounds whose mean is 70 %; their standard deviation is 6.5 points."""


def held_against(build: Build, store: Store, paper: float, *walks: list[float], stage: Shown = "global") -> Table:
    """The table of one cell: runs of twenty rounds, one for each walk, beside a paper's number."""
    table = build.table(seeds=len(walks), decimals=1)
    row, steps = ("fedavg", None) if stage == "global" else ("fedavg-ft", (2,))
    cell = table.places[row, "digits-a"]
    runs = tuple(run.model_copy(update={"rounds": 20}) for run in cell.runs)
    cell = replace(cell, runs=runs, reference=Reference(paper, text=f"{paper:.1f}"), reading=Reading(stage, steps))
    for run, accuracies in zip(runs, walks, strict=True):
        store.write(walk(build, run, accuracies, stage, 0 if steps is None else 2))
    return lay_out(replace(table, cells=(cell,)), store)


def only_cell(table: Table) -> CellValue:
    (value,) = [value for *_, value in table.shown]
    return value


def shifted(walk: list[float], last: float) -> list[float]:
    return [*walk[:-1], last]


@pytest.mark.parametrize("stage", ["global", "finetuned"])
def test_a_worse_mean_of_the_last_rounds_is_told(build: Build, store: Store, stage: str) -> None:
    """The last round alone agrees with 80 %; the rounds before it are ten points below, in all seeds alike."""
    walks = [shifted([one + up for one in AROUND_70], 0.8 + up) for up in (-0.001, 0.0, 0.001)]
    value = only_cell(held_against(build, store, 80.0, *walks, stage=stage))
    assert value.judged == "agrees; rounds 2–20: differs"
    means = [100 * sum(one) / 10 for one in walks]
    assert list(value.recent.seeds.values()) == pytest.approx(means)
    there = scipy.stats.ttest_1samp(means, 80.0).confidence_interval(0.95)
    assert value.recent.verdict.interval == pytest.approx((there.low - 80 - 0.05, there.high - 80 + 0.05))


def test_a_better_mean_of_the_last_rounds_is_told(build: Build, store: Store) -> None:
    walks = [shifted([one + up for one in AROUND_70], 0.5) for up in (0.018, 0.02, 0.022)]
    assert only_cell(held_against(build, store, 70.0, *walks)).judged == "differs; rounds 2–20: agrees"


def test_two_seeds_with_ten_rounds_have_no_word(build: Build, store: Store) -> None:
    walks = [AROUND_70, AROUND_70, AROUND_70[1:]]
    value = only_cell(held_against(build, store, 71.0, *walks))
    assert (list(value.recent.seeds), value.recent.verdict) == ([0, 1], None)
    assert value.judged == "agrees"


def test_what_is_told_of_the_last_rounds_stands_in_every_output(build: Build, store: Store) -> None:
    walks = [shifted([one + up for one in AROUND_70], 0.8 + up) for up in (-0.001, 0.0, 0.001)]
    found = held_against(build, store, 80.0, *walks)
    markdown = render(found, "markdown")
    assert "agrees [1]; rounds 2–20: differs" in markdown
    assert "FedAvg 70.9 (59.9–80.1, last 80.0; -9.1 (-9.4 to -8.8) from the paper: differs)." in markdown
    mark = (
        "ˢ over its last 10 scored rounds a run's standard deviation (the mean over seeds) exceeds the one over seeds"
    )
    assert (
        mark in markdown
        and f"FedAvg {100 * np.std(walks[1], ddof=1):.1f} against 0.1" in markdown
        and "80.0 ± 0.1ˢ" in markdown
    )
    assert r"80.0 $\pm$ 0.1\textsuperscript{s}" in render(found, "latex")
    assert "ˢ: the last ten scored rounds vary more than the seeds." in compact(found).footer


@pytest.mark.parametrize(("apart", "swings"), [(0.06, True), (0.07, False)])
def test_the_mark_compares_deviations_of_one_kind(build: Build, store: Store, apart: float, swings: bool) -> None:
    """Both with ddof 1: 6.53 points over rounds, and over three seeds as far apart as this."""
    walks = [[one + up for one in AROUND_70] for up in (-apart, 0.0, apart)]
    value = only_cell(held_against(build, store, 70.0, *walks))
    assert value.recent.deviation == pytest.approx(100 * np.std(AROUND_70, ddof=1))
    assert value.deviation == pytest.approx(100 * apart)
    assert value.swings == swings


def test_one_seed_has_no_mark(build: Build, store: Store) -> None:
    assert not only_cell(held_against(build, store, 70.0, AROUND_70)).swings
