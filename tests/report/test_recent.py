"""What the rounds before the last say, computed from the stored runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pflbench.report.cells import recent
from pflbench.report.layout import lay_out
from pflbench.result import RunResult, Score
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.cells import Expansion, Reading

if TYPE_CHECKING:
    from conftest import Build

SWINGING = [0.9 if round % 2 else 0.5 for round in range(2, 12)]
"""After rounds 2, 4, …, 20; the last is 90 %."""


def walk(build: Build, spec: RunSpec, accuracies: list[float]) -> RunResult:
    """A run scored after every second round, on two clients with ten and thirty test examples."""
    result = build.result(spec, accuracies[-1])
    scores = [
        Score("global", 2 * i, 0, client, 0, count, 0.0, accuracy + shift)
        for i, accuracy in enumerate(accuracies, start=spec.rounds // 2 - len(accuracies) + 1)
        for client, count, shift in ((2, 10, -0.03), (3, 30, 0.03))
    ]
    return replace(result, scores=(*scores, *(s for s in result.scores if s.stage != "global")))


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
    store.write(walk(build, second, [0.0, 0.0, *[0.7] * 10]))  # the first two are out of the window
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
    assert recent([result], Reading("finetuned")) is None
    averaged = run.model_copy(update={"scoring": run.scoring.model_copy(update={"last": 10})})
    assert recent([replace(result, spec=averaged)], Reading("global")) is None
    assert recent([], Reading("global")) is None
