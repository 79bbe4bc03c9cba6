"""Kind (d): methods of every form where the GPU's memory runs out, and under a limit."""

from __future__ import annotations

import pytest
from variants import STARVED

from gpu.kinds import starved


@pytest.mark.parametrize("name", STARVED)
def test_too_little_memory_changes_no_score(name: str) -> None:
    starved(name)
