"""Shipped suites, loaded once in each test process: loading checks every profile, and a loaded suite is frozen."""

from __future__ import annotations

from functools import cache

from pflbench.suite.document import Suite
from pflbench.suite.load import available, read
from pflbench.suite.load import load as loaded


@cache
def load(name: str) -> Suite:
    """Return a shipped suite, checked down to each method's hyperparameters."""
    assert name in available(), name
    return loaded(name)


def with_rows() -> list[str]:
    """Return the names of shipped suites that train something; only their files are read."""
    return [name for name in available() if read(name).document().row]
