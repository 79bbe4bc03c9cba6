"""Kind (a): every method's whole run on device `meta`, where nothing can be read but at the engine's own seam."""

from __future__ import annotations

import pytest
from variants import METHODS

from gpu.kinds import on_meta


@pytest.mark.parametrize("name", METHODS)
def test_a_run_reads_nothing_on_the_host(name: str) -> None:
    on_meta(name)
