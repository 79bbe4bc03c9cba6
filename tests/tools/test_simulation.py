"""The simulation of many machines, with few: its ratios, and that it would see what is bad."""

from __future__ import annotations

import importlib
import random
from types import ModuleType

import pytest


@pytest.fixture
def simulate() -> ModuleType:
    return importlib.import_module("simulate")


@pytest.fixture
def costs() -> list[float]:
    draw = random.Random(0)
    return [*(60 * draw.lognormvariate(2.0, 1.0) for _ in range(120)), 3600.0 * 3]


def test_the_longest_first_end_together(simulate: ModuleType, costs: list[float]) -> None:
    for slots in (1, 4):
        for hours in (0.0, 4.0):
            found = simulate.simulated(costs, slots, hours, seed=1)
            assert found.ratio(costs, slots) <= simulate.AT_MOST and found.twice == 0
            assert (found.preemptions > 0) == (found.destroyed > 0) == (hours > 0)
    late = simulate.simulated(costs, 8, 0.0, ordered=False)
    assert late.ratio(costs, 8) > simulate.AT_MOST, "the longest run is the last of the table"


def test_without_checkpoints_more_is_destroyed(simulate: ModuleType, costs: list[float]) -> None:
    kept, lost = (simulate.simulated(costs, 4, 2.0, seed=1, checkpoint=each) for each in (600.0, float("inf")))
    assert kept.destroyed <= 600.0 * kept.preemptions and kept.destroyed < lost.destroyed
    assert lost.ratio(costs, 4) < 1.5


def test_what_each_run_takes_is_there(simulate: ModuleType) -> None:
    costs = simulate.read_costs()
    assert len(costs) == 2170 and min(costs) > 30
