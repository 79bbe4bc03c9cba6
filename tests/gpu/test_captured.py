"""Kinds (b) and (c): what every method's graphs hold, and what their replays come to."""

from __future__ import annotations

import itertools

import pytest
from variants import METHODS

from gpu.kinds import RUNS, Recorded, policed, recorded, replayed


@pytest.fixture(scope="module", params=itertools.product(METHODS, RUNS), ids=" ".join)
def done(request: pytest.FixtureRequest) -> Recorded:
    """One run with its graphs, for both."""
    return recorded(*request.param)


def test_a_capture_waits_for_nothing_and_rests_on_what_lasts(done: Recorded) -> None:
    policed(done)


def test_replays_are_the_run_without_graphs(done: Recorded) -> None:
    replayed(done)
