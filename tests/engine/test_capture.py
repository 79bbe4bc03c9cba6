"""Records of repeated work: what a record may never do is answer for something else. (The capture itself needs CUDA.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from pflbench import names
from pflbench.data.federation import Federation
from pflbench.engine.capture import GRAPHS, MEETINGS, Graphs
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Batches, Objective, Round, steps
from pflbench.methods.fedavg import FedAvg
from pflbench.testing import Case, tiny_federation, tiny_network, tiny_spec


@pytest.fixture(autouse=True)
def at_the_second_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pflbench.engine.capture.MEETINGS", 2)


def affine(tensors: list[Tensor]) -> list[Tensor]:
    """One output is new, one is an input, one is a view of an input."""
    x, y = tensors
    return [2 * x + y, x, y[:1]]


def inputs(i: int, size: int = 4) -> list[Tensor]:
    return [torch.arange(size) + 10.0 * i, torch.full((size,), float(i))]


@pytest.mark.parametrize("enabled", [True, False])
def test_outputs_are_the_functions_and_stay_the_callers(enabled: bool) -> None:
    graphs = Graphs(enabled)
    made = [graphs("a", affine, inputs(i))[0] for i in range(6)]
    for i, outputs in enumerate(made):
        for mine, expected in zip(outputs, affine(inputs(i)), strict=True):
            assert torch.equal(mine, expected)
    assert (graphs.replays > 0) == enabled


def test_a_replay_leaves_its_arguments_alone() -> None:
    graphs = Graphs()
    for i in range(4):
        mine = inputs(i)
        for output in graphs("a", affine, mine)[0]:
            output.add_(1)
        if i:  # the first call is the function itself, whose outputs may be its inputs
            assert all(torch.equal(a, b) for a, b in zip(mine, inputs(i), strict=True))
    assert torch.equal(graphs("a", affine, inputs(7))[0][0], affine(inputs(7))[0])


def named(number: int) -> Any:
    return lambda tensors: [number * t for t in tensors]


def recorded_by(graphs: Graphs, key: Any, tensors: list[Tensor]) -> bool:
    """Whether a new function of this key would be answered for by one recorded before."""
    new = named(1)
    return graphs(key, new, tensors)[1] is not new


def test_keys_shapes_and_types_are_apart() -> None:
    graphs = Graphs()
    kinds = [("a", inputs(0)), ("b", inputs(0)), ("a", inputs(0, 5)), ("a", [t.double() for t in inputs(0)])]
    kinds.append(("a", inputs(0)[:1]))
    for number, (key, tensors) in enumerate(kinds, start=2):
        for _ in range(2):
            outputs, ran = graphs(key, named(number), tensors)
            assert torch.equal(outputs[0], number * tensors[0])
    for number, (key, tensors) in enumerate(kinds, start=2):
        outputs, ran = graphs(key, named(99), tensors)
        assert torch.equal(outputs[0], number * tensors[0]) and torch.equal(ran(tensors)[0], outputs[0])
    assert graphs.replays == 2 * len(kinds)


def test_without_a_key_or_tensors_nothing_is_recorded() -> None:
    graphs = Graphs()
    for _ in range(3):
        assert not recorded_by(graphs, None, inputs(0))
        assert not recorded_by(graphs, "a", [])
    assert graphs.replays == 0


def test_a_record_is_made_at_the_second_meeting() -> None:
    graphs = Graphs()
    assert [recorded_by(graphs, "a", inputs(i)) for i in range(4)] == [False, False, True, True]
    assert graphs.replays == 3


def test_the_least_recently_used_record_goes_first() -> None:
    graphs = Graphs()
    for key in range(GRAPHS):
        for _ in range(2):
            graphs(key, affine, inputs(key))
    assert recorded_by(graphs, 0, inputs(0))  # used again, so 1 is the oldest now
    for _ in range(2):
        graphs("new", affine, inputs(0))
    assert all(recorded_by(graphs, key, inputs(0)) for key in range(GRAPHS) if key != 1)
    assert not recorded_by(graphs, 1, inputs(0))


def test_cleared_records_are_made_anew() -> None:
    graphs = Graphs()
    for _ in range(2):
        graphs("a", named(2), inputs(0))
    graphs.clear()
    outputs, _ = graphs("a", named(3), inputs(1))
    assert torch.equal(outputs[0], 3 * inputs(1)[0])


def test_shapes_that_take_turns_are_soon_no_longer_recorded() -> None:
    graphs = Graphs()
    for i in range(40 * GRAPHS):
        graphs(i % (3 * GRAPHS), affine, inputs(i))
    assert graphs.captures <= 2 * GRAPHS + graphs.replays / 4


def test_a_stack_that_keeps_coming_is_recorded_at_its_third_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pflbench.engine.capture.MEETINGS", MEETINGS)
    graphs = Graphs()
    for i in range(5):
        graphs("a", affine, inputs(i))
    assert graphs.captures == 1 and graphs.replays == 5 - (MEETINGS - 1) == 3


# Whole runs.

EQUAL, RAGGED = (20,) * 8, (13, 26, 9, 31, 18, 22, 5, 15)
METHODS = {
    "fedavg": {"epochs": 1, "lr": 0.05},
    "ifca": {"epochs": 1, "clusters": 2, "lr": 0.05},
    "ditto": {"steps": 2},
    "fedrep-averaged": {},
    "per-fedavg": {"steps": 1},
    "cafeme": {"steps": 2, "outer_batches": 2},
}


def simulated(method: Any, federations: list[Federation], **setup: Any) -> tuple[Any, Simulation]:
    specs = [tiny_spec(seed, rounds=3) for seed in range(len(federations))]
    simulation = Simulation(specs, federations, method, tiny_network(), Setup(**setup))
    outcomes = simulation.run()
    assert all(outcome.failure is None for outcome in outcomes)
    return outcomes, simulation


def compare(method: Any, sizes: tuple[int, ...]) -> tuple[Simulation, Simulation]:
    federations = [tiny_federation(seed, sizes) for seed in range(2)]
    plain, without = simulated(method, federations, execution="vectorized", graphs=False)
    replayed, graphs = simulated(method, federations, execution="vectorized", graphs=True)
    looped, _ = simulated(method, federations)
    Case(method).same_runs(plain, replayed, "stacks with and without records")
    Case(method).same_runs(looped, replayed, "clients one by one and recorded stacks")
    return without, graphs


@pytest.mark.parametrize("name", METHODS)
def test_a_run_is_the_same_with_records(name: str) -> None:
    without, graphs = compare(names.resolve("methods", name)(**METHODS[name]), EQUAL)
    assert without.clients.graphs.replays == 0
    assert graphs.clients.graphs.replays >= 2, "three rounds of equal stacks: the second and third are replayed"


@pytest.mark.parametrize("name", ["fedavg", "ditto"])
def test_a_run_with_ragged_stacks_is_the_same_with_records(name: str) -> None:
    compare(names.resolve("methods", name)(**METHODS[name]), RAGGED)


@dataclass(frozen=True)
class Decaying(FedAvg):
    """FedAvg whose step size depends on the round."""

    epochs: int = 1

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        lr = 0.1 / (1 + round.index)
        return steps(lambda w, b: w - lr * f.grad(w, b), server, taken[0]), state


def test_what_depends_on_the_round_is_not_replayed() -> None:
    _, graphs = compare(Decaying(), EQUAL)
    assert graphs.clients.graphs.replays == 0


def test_scoring_often_is_replayed_and_the_same() -> None:
    federations = [tiny_federation(0, EQUAL)]
    method = Decaying()
    runs = [
        simulated(method, federations, execution="vectorized", graphs=graphs, evaluate_every=1)
        for graphs in (False, True)
    ]
    Case(method).same_runs(runs[0][0], runs[1][0], "scores with and without records")
    assert runs[1][1].clients.graphs.replays == 2, "scored three times, alike"
