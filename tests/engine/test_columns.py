"""Whole runs whose stacks convolve by matrix products, as on a GPU: the same as the loop, in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pflbench import names
from pflbench.engine.simulate import Setup, simulate
from pflbench.testing import Case, tiny_federation, tiny_network, tiny_spec


@pytest.mark.parametrize(
    ("method", "options"),
    [("fedavg", {}), ("ifca", {}), ("per-fedavg", {"order": "exact"}), ("cafeme", {}), ("cafeme", {"order": "exact"})],
)
def test_stacks_by_matrix_products_are_the_loop(method: str, options: dict[str, Any]) -> None:
    case = Case(names.resolve("methods", method)(**options))
    setup = Setup(execution="vectorized", stack="columns", most_padding=math.inf, graphs=True)
    specs, federations = [tiny_spec(0), tiny_spec(1)], [tiny_federation(0), tiny_federation(1)]
    case.same_runs(case.looped, simulate(specs, federations, case.method, tiny_network(), setup), "loop and columns")
