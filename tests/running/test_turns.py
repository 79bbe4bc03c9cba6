"""The order in which tasks are started, and the moment from which none is."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pflbench.running import sharing
from pflbench.running.sharing import Shared, longest_first
from pflbench.running.task import Task
from pflbench.testing import tiny_spec

TASKS = [Task((tiny_spec(seed),)) for seed in range(6)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=6, max_size=6))
def test_turn_by_turn_the_longest_first(drawn: list[tuple[int, int]]) -> None:
    ids = [task.specs[0].id for task in TASKS]
    turns, work = ({id: values[i] for id, values in zip(ids, drawn, strict=True)} for i in (0, 1))
    slow = []
    for turn in range(3):
        for cost in (2, 1, 0):
            slow += [task for task, values in zip(TASKS, drawn, strict=True) if values == (turn, cost)]
    assert longest_first(TASKS, work, turns) == slow
    by_cost = [work[task.specs[0].id] for task in longest_first(TASKS, work)]
    assert [cost for cost, _ in groupby(by_cost)] == sorted(set(by_cost), reverse=True)


def test_when_time_is_up_nothing_more_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(sharing, "monotonic", lambda: now)
    shared = Shared(TASKS, until=10.0)
    assert shared.take() == TASKS[0] and shared.runs == 5
    now = 10.0
    assert shared.take() is None and shared.runs == 0
