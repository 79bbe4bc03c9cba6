"""The numbers a method makes may move only with its `version`.

`fingerprints.json` holds, for each built-in method and its version, a summary of a tiny float64 run's server
parameters. Written anew by

    python tests/methods/test_fingerprints.py

which is right after a method's `version` was raised, or a method was added; then say so in CHANGELOG.md, section
Numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench import names
from pflbench.engine.simulate import Simulation
from pflbench.testing import Case, tiny_features, tiny_federation

FILE = Path(__file__).with_name("fingerprints.json")
TOLERANCE = 1e-7
"""Relative to the size of the parameters: rounding differs between versions of torch."""
OPTIONS = {"l2gd": {"p": 0.5, "a": 0.1}}
"""Other than the defaults: one local round, then one that averages."""
FEATURES = ("fedrep",)
"""Methods that could do without a network whose head is one linear layer, but train faster on one."""


def fingerprint(name: str) -> dict[str, Any]:
    """Sum, norm, distance from the start, and five entries of the parameters that gradients determine."""
    case = Case(names.resolve("methods", name)(**OPTIONS.get(name, {})), tiny_features() if name in FEATURES else None)
    simulation = Simulation([case.spec(0)], [tiny_federation(0)], case.method, case.plain)
    start = simulation.runs[0].server, simulation.runs[0].fresh
    (outcome,) = simulation.run()
    assert outcome.failure is None
    (run,) = simulation.runs
    kept = {client: run.states[client] for client in sorted(run.states)} if case.method.commits == "trained" else {}
    before = flat(case, (start[0], [start[1]] * len(kept)))
    after = flat(case, (run.server, list(kept.values())))
    chosen = after[torch.linspace(0, len(after) - 1, 5).long()]
    numbers = [after.sum(), after.norm(), (after - before).norm(), *chosen]
    return {"version": case.method.version, "numbers": [float(f"{x.item():.12g}") for x in numbers]}


def flat(case: Case, tree: Any) -> Tensor:
    """All numbers of a tree that gradients determine."""
    leaves = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
    whole = [leaf.dim() > 0 and leaf.shape[-1] == case.network.layout.size for leaf in leaves]
    return torch.cat([(x[..., case.determined] if w else x).flatten() for x, w in zip(leaves, whole, strict=True)])


STORED: dict[str, dict[str, Any]] = json.loads(FILE.read_text()) if FILE.is_file() else {}


@pytest.mark.parametrize("name", names.BUILT_IN["methods"])
def test_numbers_move_only_with_the_version(name: str) -> None:
    assert name in STORED, f"{name} has no fingerprint; {FILE.name} is written by this file's program"
    now, was = fingerprint(name), STORED[name]
    assert now["version"] == was["version"], f"{name} has a new version: write {FILE.name} anew"
    got, expected = np.array(now["numbers"]), np.array(was["numbers"])
    same = np.abs(got - expected) <= TOLERANCE * np.maximum(1, np.abs(expected))
    same[2] = abs(got[2] - expected[2]) <= TOLERANCE * expected[2]  # a small number that shows a small change
    assert same.all(), f"the numbers of {name} moved: raise its version, or undo the change\n{expected}\n{got}"


def test_no_fingerprint_is_left_over() -> None:
    assert list(STORED) == sorted(names.BUILT_IN["methods"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = {name: fingerprint(name) for name in sorted(names.BUILT_IN["methods"])}
    FILE.write_text(json.dumps(made, indent=2) + "\n")
