"""The seeded faults can be made, are undone, and show on no ordinary run on a CPU, though such a run goes through them."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.utils import _pytree as pytree

from pflbench import names
from pflbench.engine.capture import Graphs
from pflbench.engine.simulate import Setup, Simulation
from pflbench.running import allocator
from pflbench.spec import Finetune, Scoring
from pflbench.testing import SIZES, Case, tiny_federation

from .faults import BLIND, Fault, edited

Place = tuple[int, str]
"""The id of a module or class, and the name of one of its attributes."""


def everything() -> dict[Place, tuple[Any, Any]]:
    """All attributes of pflbench's modules and classes, each with its owner."""
    found: dict[Place, tuple[Any, Any]] = {}
    for module in [m for name, m in sys.modules.items() if name.startswith("pflbench")]:
        own = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
        for owner in (module, *own):
            found |= {(id(owner), name): (owner, value) for name, value in list(vars(owner).items())}
    return found


def changed(before: dict[Place, tuple[Any, Any]]) -> list[tuple[Any, str]]:
    """The functions that are others now."""
    now = everything()
    return [
        (now[place][0], place[1])
        for place in now
        if place not in before or now[place][1] is not before[place][1]
        if callable(now[place][1])
    ]


@pytest.mark.parametrize("fault", BLIND, ids=lambda fault: fault.name)
def test_a_fault_is_made_and_undone(fault: Fault) -> None:
    before = everything()
    with fault.apply():
        assert changed(before)
    after = everything()
    assert before.keys() == after.keys()
    assert all(after[place][1] is value for place, (_, value) in before.items())


def test_faults_are_undone_after_errors_too() -> None:
    for fault in BLIND:
        before = everything()
        with pytest.raises(KeyError), fault.apply():
            raise KeyError
        assert not changed(before), fault.name


def test_names_are_apart() -> None:
    assert len({fault.name for fault in BLIND}) == len(BLIND) >= 14


def test_a_fault_whose_line_has_gone_says_so() -> None:
    with pytest.raises(LookupError, match=r"Graphs\.clear has 'no such line' 0 times"):
        edited(Graphs, "clear", "no such line", "pass")


@dataclass(frozen=True)
class Setting:
    """Tiny runs that go through a fault."""

    method: str
    hyper: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (20,) * 8
    """Rows of each client; of one size, so that stacks come again."""


FEDAVG = Setting("fedavg", {"epochs": 1, "lr": 0.05})
PFEDVEM = {"head_steps": 2, "head_lr": 1e-4, "base_epochs": 1}
PERSONAL = Scoring(clients="training", stages=("personalized",), features=True)
SETTINGS = {
    "states-on-host": Setting("ditto", {"steps": 1}),
    "decay-made-anew": Setting("fedavg", {"epochs": 1, "weight_decay": 0.01}),
    "entries-on-host": Setting("fedbn"),
    "crops-by-the-host": Setting("fedavg", {"epochs": 1}, {"augment": "crop-flip", "batches": "reshuffled"}),
    "classes-on-host": Setting(
        "cafeme/variants/cafeme.py:Labels",
        {"steps": 2, "outer_batches": 2},
        {"scoring": Scoring(stages=("finetuned",), finetune=Finetune(steps=2, lr=0.05))},
    ),
    "order-by-a-coin": Setting("cafeme", {"steps": 3, "outer_batches": 2}),
    "sure-clients-picked": Setting("pfedvem", PFEDVEM),
    "clients-counted-on-host": Setting("scaffold", {"epochs": 1}),
    "means-from-host": Setting("pfedvem", PFEDVEM, {"scoring": PERSONAL}),
    **dict.fromkeys(["real-rows-picked", "mask-asked"], Setting("fedavg", {"epochs": 1}, sizes=SIZES)),
}
REACHED = [fault for fault in BLIND if fault.name != "device-not-set"]  # that is in a task, which needs a dataset


def outcomes(setting: Setting, case: Case, **setup: Any) -> Any:
    """Four rounds; the third and fourth replay a record where that is asked for."""
    spec = case.spec(0, rounds=4, **setting.spec)
    simulation = Simulation([spec], [tiny_federation(0, setting.sizes)], case.method, case.plain, Setup(**setup))
    found = simulation.run()
    assert all(outcome.failure is None for outcome in found)
    return found


def counted(owner: Any, name: str, calls: Counter[str]) -> Any:
    """A patch that counts the calls of a function."""
    faulty = inspect.getattr_static(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return faulty(*args, **kwargs)

    return patch.object(owner, name, call)


@pytest.mark.parametrize("fault", REACHED, ids=lambda fault: fault.name)
def test_a_run_on_a_cpu_goes_through_a_fault_and_shows_nothing(fault: Fault) -> None:
    setting, calls = SETTINGS.get(fault.name, FEDAVG), Counter[str]()
    case, before = Case(names.resolve("methods", setting.method)(**setting.hyper)), everything()
    stacked: dict[str, Any] = {"execution": "vectorized", "stack": "columns"}
    with ExitStack() as made:
        made.enter_context(fault.apply())
        for owner, name in changed(before):
            made.enter_context(counted(owner, name, calls))
        with allocator.limited(None, torch.device("cpu")):
            looped = outcomes(setting, case)
            case.same_runs(outcomes(setting, case, graphs=False, **stacked), looped, "stacks and clients one by one")
            outcomes(setting, case, graphs=True, **stacked)
    assert calls and all(calls.values()), "the fault was not met"
    assert all(torch.isfinite(x).all() for run in looped for x in pytree.tree_leaves(run.server))
