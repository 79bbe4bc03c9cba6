"""A simulation that goes on from what another left after a round ends bit for bit as that one would have."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from pflbench import names
from pflbench.engine import snapshot
from pflbench.engine.run import Run
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.spec import RunSpec
from pflbench.testing import Case, tiny_features, tiny_federation

ROUNDS = 3


class Interrupted(Exception):
    """Training ends here."""


def simulation(case: Case, spec: RunSpec, **fields: Any) -> Simulation:
    return Simulation([spec], [tiny_federation(spec.seed)], case.method, case.plain, Setup(evaluate_every=1, **fields))


def whole(case: Case, spec: RunSpec) -> tuple[RunOutcome, Run]:
    made = simulation(case, spec)
    (outcome,) = made.run()
    return outcome, made.runs[0]


def interrupted(case: Case, spec: RunSpec, after: int) -> tuple[RunOutcome, Run]:
    """The same with another simulation from this round on."""

    def end(first: Simulation) -> None:
        if first.rounds == after:
            raise Interrupted

    first = simulation(case, spec, after_round=end)
    with pytest.raises(Interrupted):
        first.run()
    kept = {name: tensor.clone() for name, tensor in snapshot.tensors(first)}
    told = json.loads(json.dumps(snapshot.values(first), default=lambda number: number.item()))
    second = simulation(case, spec)
    snapshot.restore(second, told, kept.__getitem__)
    (outcome,) = second.run()
    return outcome, second.runs[0]


@pytest.mark.parametrize("name", names.BUILT_IN["methods"])
@pytest.mark.parametrize(("kind", "after"), [("stragglers", 2), ("noisy", 1)])
def test_every_method_goes_on_bit_for_bit(name: str, kind: str, after: int) -> None:
    options = {"l2gd": {"p": 0.5, "a": 0.1}}.get(name, {})
    case = Case(names.resolve("methods", name)(**options), tiny_features() if name == "fedrep" else None)
    spec: RunSpec = getattr(case, kind)(0).model_copy(update={"rounds": ROUNDS})
    expected, run = whole(case, spec)
    assert expected.failure is None and {score.round for score in expected.scores} == {1, 2, 3}
    got, again = interrupted(case, spec, after)
    assert got.scores == expected.scores and got.metrics == expected.metrics and got.costs == expected.costs
    for tree, other in (
        (run.server, again.server),
        (dict(run.states), dict(again.states)),
        (run.local_models, again.local_models),
    ):
        assert pytree.tree_structure(tree) == pytree.tree_structure(other)
        assert all(map(torch.equal, pytree.tree_leaves(tree), pytree.tree_leaves(other)))
