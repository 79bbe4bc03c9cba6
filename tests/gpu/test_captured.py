"""Kinds (b) and (c): contents of every method's graphs, and the numbers of their replays."""

from __future__ import annotations

import pytest
from variants import CAPTURED, LOST

from gpu.kinds import Recorded, policed, recorded, replayed

RECORDED = [*((name, "after") for name in CAPTURED), *((name, "before") for name in LOST)]


@pytest.fixture(scope="module", params=RECORDED, ids=" ".join)
def done(request: pytest.FixtureRequest) -> Recorded:
    """One run with its graphs, for both."""
    return recorded(*request.param)


def test_a_capture_waits_for_nothing_and_rests_on_what_lasts(done: Recorded) -> None:
    policed(done)


def test_replays_are_the_run_without_graphs(done: Recorded) -> None:
    replayed(done)
