"""The order in which jobs are started, and the second attempt at one that failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pflbench.running import worker
from pflbench.running.events import Waiting
from pflbench.running.execution import Execution
from pflbench.running.job import Done, Job
from pflbench.running.worker import Board, clear_errors, longest_first, work
from pflbench.store import leases
from pflbench.testing import tiny_spec

TASKS = [Job((tiny_spec(seed),)) for seed in range(6)]


@given(st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_the_longest_first_and_equal_ones_in_their_order(costs: list[int]) -> None:
    work = {task.specs[0].id: cost for task, cost in zip(TASKS, costs, strict=True)}
    slow = [task for cost in (2, 1, 0) for task in TASKS if work[task.specs[0].id] == cost]
    assert longest_first(TASKS, work) == slow


@pytest.mark.parametrize("waits", [True, False])
def test_a_run_that_failed_here_is_tried_again_if_no_sibling_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Another command may have set the count of attempts back, so that a sibling failed at it, too."""
    place, heard, attempts = Execution(results=tmp_path, wait=waits), list[object](), 0

    def run_job(job: Job, *_: object) -> list[Done]:
        nonlocal attempts
        attempts += 1
        return [Done(job.specs[0], "error", "no memory")]

    def hear(event: object) -> None:
        if isinstance(event, Waiting) and len(heard) < 2:
            clear_errors(tmp_path, [TASKS[0].specs[0].id])
        heard.append(event)

    monkeypatch.setattr(worker, "run_job", run_job)
    monkeypatch.setattr(worker, "TURN", 0.05)
    monkeypatch.setattr(leases, "PACE", leases.PACE._replace(poll=0.01))
    with pytest.warns(UserWarning, match="tried once more"):
        work(TASKS[:1], place, hear, Board(alive=2))
    assert attempts == 3 and [one.runs for one in heard if isinstance(one, Waiting)] == [1, 1]
    assert isinstance(heard[-1], Done) and heard[-1].status == "error"
