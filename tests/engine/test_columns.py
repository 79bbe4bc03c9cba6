"""Whole runs whose stacks convolve by matrix products, as on a GPU: the same as the loop, in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from pflbench import names
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.models.network import Gate, Network, conv_parameters, with_linear_head
from pflbench.models.ops import Ops
from pflbench.testing import CLASSES, SHAPE, Case, tiny_federation, tiny_network, tiny_spec

COLUMNS = Setup(execution="vectorized", stack="columns", most_padding=math.inf, graphs=True)


def runs(case: Case, network: Network, setup: Setup) -> list[RunOutcome]:
    federations = [tiny_federation(0), tiny_federation(1)]
    outcomes = Simulation([tiny_spec(0), tiny_spec(1)], federations, case.method, network, setup).run()
    assert all(outcome.failure is None for outcome in outcomes)
    return outcomes


@pytest.mark.parametrize(
    ("method", "options"),
    [("fedavg", {}), ("ifca", {}), ("per-fedavg", {"order": "exact"}), ("cafeme", {}), ("cafeme", {"order": "exact"})],
)
def test_stacks_by_matrix_products_are_the_loop(method: str, options: dict[str, Any]) -> None:
    case = Case(names.resolve("methods", method)(**options))
    specs = [tiny_spec(0), tiny_spec(1)]
    columns, looped = runs(case, tiny_network(), COLUMNS), case.run(specs)
    case.same_runs(columns, looped, "columns and a loop", lambda nudge: case.run(specs, nudge))


def averaged() -> Network:
    """What cnn6 is made of, tiny: pooling with padding, and the mean over pixels in front of one linear layer."""

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = ops.conv(ops.images(x), p["base.conv0.weight"], p["base.conv0.bias"], 1)
        h = ops.conv(ops.pool(h, padding=1).relu(), p["base.conv1.weight"], p["base.conv1.bias"], 1)
        return ops.average(h.relu())

    base = (*conv_parameters("base.conv0", SHAPE[0], 4, 3), *conv_parameters("base.conv1", 4, 6, 3))
    return with_linear_head(base, features, 6, SHAPE, CLASSES)


@pytest.mark.parametrize(("method", "options"), [("fedrep-averaged", {}), ("per-fedavg", {"order": "exact"})])
def test_padded_pools_and_averages_are_the_loop(method: str, options: dict[str, Any]) -> None:
    case = Case(names.resolve("methods", method)(**options))
    looped = runs(case, averaged(), Setup(execution="loop"))
    for stack in ("grouped", "columns"):
        case.same_runs(looped, runs(case, averaged(), replace(COLUMNS, stack=stack)), f"loop and {stack}")
