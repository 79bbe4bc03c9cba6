"""Costs of local updates, counted while a run trains: by hand, looped and stacked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from torch import Tensor

from pflbench import names
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Draw, Method, Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fo_maml import FOMaml
from pflbench.methods.ifca import IFCA
from pflbench.methods.l2gd import L2GD
from pflbench.methods.local import Local
from pflbench.methods.per_fedavg import PerFedAvg
from pflbench.methods.pfedme import PFedMe
from pflbench.methods.reptile import Reptile
from pflbench.methods.scaffold import Scaffold
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import Case, tiny_federation, tiny_network, tiny_spec

Any_ = Method
SIZE = tiny_network().layout.size
EQUAL = (24,) * 8
"""Rows per client: 18 of them are support, three minibatches of five and one of three."""


def spec(**changes: Any) -> RunSpec:
    return tiny_spec(rounds=2).model_copy(update={"scoring": Scoring(), **changes})


def counted(method: Any_, sizes: tuple[int, ...] = EQUAL, **changes: Any) -> Mapping[str, float]:
    one = spec(**changes)
    (outcome,) = Simulation([one], [tiny_federation(0, sizes)], method, tiny_network()).run()
    assert outcome.failure is None
    return outcome.costs


@pytest.mark.parametrize(
    ("method", "gradients"),
    [
        (FedAvg(epochs=2), 2 * 18 / 5),
        (Reptile(steps=4), 18 / 5),
        (FOMaml(epochs=1), 2 * 18 / 5),  # the gradient of the whole support counts its minibatches
        (PerFedAvg(steps=1, order="first"), (5 + 5) / 5),
        (PerFedAvg(steps=1, order="hf"), (5 + 5 + 2 * 5) / 5),
        (PerFedAvg(steps=1, order="exact"), (5 + 5 + 3 * 5) / 5),
        (IFCA(epochs=1, clusters=3), (18 + 3 * 18 / 3) / 5),
    ],
    ids=lambda x: type(x).__name__ + getattr(x, "order", "") if isinstance(x, Method) else "",
)
def test_gradients_by_hand(method: Any_, gradients: float) -> None:
    # Only the first round's four minibatches of a stream are sure to be those three and the short one.
    assert counted(method, rounds=1)["client_gradients"] == pytest.approx(gradients, abs=1e-3)


def test_what_is_sent_up_and_down() -> None:
    for method, up, down in (
        (FedAvg(epochs=1), SIZE, SIZE),
        (Scaffold(epochs=1), 2 * SIZE, 2 * SIZE + 1),
        (IFCA(epochs=1, clusters=3), SIZE + 1, 3 * SIZE),
        (PFedMe(steps=1), SIZE, SIZE),  # the personal model is in the upload to be scored, and never sent
        (Local(epochs=1), 0, SIZE),
    ):
        found = counted(method)
        assert (found["floats_up"], found["floats_down"]) == (up, down), type(method).__name__
        assert found["bytes_down"] == 8 * found["floats_down"]  # in float64
    assert counted(FedAvg(epochs=1), precision="fp32")["bytes_up"] == 4 * SIZE


def test_least_and_most_are_told_where_clients_differ() -> None:
    sizes = (8, 8, 8, 8, 8, 8, 80, 80)
    found = counted(FedAvg(epochs=1), sizes, clients=8, training_clients=6, cohort=6)
    assert found["client_gradients_least"] == 6 / 5 and found["client_gradients_most"] == 60 / 5
    assert found["client_gradients_least"] < found["client_gradients"] < found["client_gradients_most"]
    assert not {"client_gradients_least", "floats_up_least"} & counted(FedAvg(epochs=1)).keys()


def test_a_method_with_phases_counts_the_rounds_as_they_came() -> None:
    found = counted(L2GD(p=0.5, a=0.1, epochs=1), rounds=20)
    assert found["client_gradients_least"] == 0 and found["client_gradients_most"] == pytest.approx(18 / 5)


@pytest.mark.parametrize("name", ["fedavg", "pfedvem", "cafeme", "ifca", "scaffold", "fedrep", "per-fedavg"])
def test_looped_and_stacked_they_are_the_same(name: str) -> None:
    case = Case(names.resolve("methods", name)())
    specs, federations = [case.stragglers(0), case.stragglers(1)], [tiny_federation(0), tiny_federation(1)]
    looped, stacked = (
        [o.costs for o in Simulation(specs, federations, case.method, case.plain, Setup(execution=execution)).run()]
        for execution in ("loop", "vectorized")
    )
    assert looped == stacked
    assert all({"client_gradients", "floats_up", "bytes_up", "floats_down", "bytes_down"} <= o.keys() for o in looped)


def test_what_only_serves_scoring_costs_nothing() -> None:
    """Training of the base, where the upload is lost and the personal model is scored."""
    method = names.resolve("methods", "pfedvem")(head_steps=2)
    case = Case(method)
    scored, unscored = (
        Simulation([spec], [tiny_federation(0, EQUAL)], method, case.plain).run()[0].costs
        for spec in (case.stragglers(0), case.stragglers(0).model_copy(update={"scoring": Scoring(stages=())}))
    )
    assert scored["client_gradients"] == unscored["client_gradients"]


@dataclass(frozen=True)
class Strange(Method):
    """Makes more steps in later rounds."""

    version: ClassVar[int] = 1

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (Draw(steps=1),)

    def client(self, f: Any, server: Tensor, state: tuple[()], *taken: Any, round: Any) -> Any:
        w = server
        for _ in range(1 + round.index):
            w = w - 0.1 * f.grad(w, taken[0][0])
        return w, state


def test_later_rounds_count_by_themselves() -> None:
    found = counted(Strange(), rounds=3)
    assert [found[f"client_gradients{end}"] for end in ("_least", "", "_most")] == [1.0, 2.0, 3.0]


def test_the_compiler_is_not_imported_to_count() -> None:
    code = """if True:
        import sys
        from pflbench.engine.simulate import Simulation
        from pflbench.methods.local import Local
        from pflbench.testing import tiny_federation, tiny_network, tiny_spec
        Simulation([tiny_spec()], [tiny_federation(0)], Local(epochs=1, momentum=0.9), tiny_network()).run()
        sys.exit("torch._dynamo" in sys.modules)
    """
    subprocess.run([sys.executable, "-c", code], check=True)
