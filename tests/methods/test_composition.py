"""Methods are composed of shared hyperparameters, which keep their names, import paths and ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pflbench import catalog, trust
from pflbench.catalog import complete, describe
from pflbench.engine.objective import LoopObjective, Task
from pflbench.methods.base import Batch, Draw, Method, Round
from pflbench.methods.ditto import Ditto
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.per_fedavg import PerFedAvg
from pflbench.running.build import construct
from pflbench.testing import tiny_federation, tiny_network

HEAD = "from dataclasses import dataclass\n"
DOCUMENTED = {
    "LocalSGD": {"epochs": 5, "steps": None, "batch": None, "lr": 1e-3, "momentum": None, "weight_decay": None},
    "LocalEpochs": {"epochs": 5, "steps": None, "batch": None},
    "LocalSteps": {"steps": 5},
    "LocalRate": {"lr": 1e-3},
    "SGDOptions": {"momentum": None, "weight_decay": None},
    "OwnBatch": {"batch": None},
    "Adapted": {"personal_epochs": None, "batch": None},
    "PersonalRate": {"personal_lr": None},
    "TwoRates": {"inner_lr": 0.01, "outer_lr": 1.0},
    "ServerRate": {"server_lr": 1.0},
    "Pull": {"lam": 0.1},
}
"""Hyperparameters of each class to derive from that docs/methods.md lists."""


@pytest.mark.parametrize(("make", "name", "value"), [(FedAvg, "lr", 0.1), (Ditto, "lam", 2.0), (PerFedAvg, "steps", 3)])
def test_a_hyperparameter_is_an_argument_and_an_attribute(make: Callable[..., Any], name: str, value: float) -> None:
    method = make(**{name: value})
    assert getattr(method, name) == value
    assert getattr(dataclasses.replace(method, **{name: 2 * value}), name) == 2 * value
    assert name in {one.name for one in dataclasses.fields(method)}
    with pytest.raises(TypeError):
        make(nothing=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(method, name, 1)


def test_a_subclass_changes_defaults() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(FedAvg, epochs=20, lr=0.5):
        """Mine."""

    assert (Mine().epochs, Mine().lr, Mine(epochs=1).epochs, FedAvg().epochs) == (20, 0.5, 1, 5)
    assert Mine().draws(Round(0)) == (Draw(epochs=20),)


@pytest.mark.parametrize("base", [FedAvg, LocalSGD])
def test_a_derived_method_trains_by_the_inherited_loop(base: Any) -> None:
    bases = (base,) if base is FedAvg else (base, Method)

    class Mine(*bases, epochs=1, lr=0.1, momentum=0.5):  # type: ignore[misc]
        """Twice the local update of FedAvg."""

        def client(self, f: Any, server: Any, state: Any, *batches: Any, round: Round) -> Any:
            return self.sgd(f, self.sgd(f, server, *batches, lr=self.lr), *batches, lr=self.lr), state

    federation, w = tiny_federation(0), tiny_network().init(0).double()
    f = LoopObjective(Task(tiny_network(), federation.x))
    rows = [torch.from_numpy(one) for one in (federation.support[0][:4], federation.support[0][4:8])]
    taken = (tuple(Batch(one, torch.from_numpy(federation.labels)[one]) for one in rows),)
    method = dataclasses.dataclass(frozen=True)(Mine)()
    plain = FedAvg(epochs=1, lr=0.1, momentum=0.5)
    once, _ = plain.client(f, w, (), *taken, round=Round(0))
    twice, _ = plain.client(f, once, (), *taken, round=Round(0))
    assert torch.equal(method.client(f, w, (), *taken, round=Round(0))[0], twice)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_documented_classes_bring_what_the_docs_say(tmp_path: Path, name: str) -> None:
    """Told alike by the source, by the class and by a stored source; None is no part of a run's identity."""
    file = tmp_path / "mine.py"
    file.write_text(
        f"{HEAD}from pflbench.methods.base import Method\nfrom pflbench.methods.local_sgd import {name}\n"
        f"@dataclass(frozen=True)\nclass Mine({name}, Method):\n    mine: float = 0.5\n"
    )
    trust.grant(f"{file}:Mine")
    info, expected = describe(f"{file}:Mine"), {"mine": 0.5, **DOCUMENTED[name]}
    assert expected.items() <= {key: field.default for key, field in info.fields.items()}.items()
    assert expected.items() <= dataclasses.asdict(construct(f"{file}:Mine", {})).items()
    assert complete(info, {}) == {key: value for key, value in expected.items() if value is not None}
    stored = catalog.of_source("mine.py:Mine", "abc", file.read_text())
    assert stored is not None and stored.fields == info.fields
