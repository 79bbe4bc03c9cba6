"""The order in which tasks are started."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pflbench.running.job import Job
from pflbench.running.worker import longest_first
from pflbench.testing import tiny_spec

TASKS = [Job((tiny_spec(seed),)) for seed in range(6)]


@given(st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_the_longest_first_and_equal_ones_in_their_order(costs: list[int]) -> None:
    work = {task.specs[0].id: cost for task, cost in zip(TASKS, costs, strict=True)}
    slow = [task for cost in (2, 1, 0) for task in TASKS if work[task.specs[0].id] == cost]
    assert longest_first(TASKS, work) == slow
