"""Trainings before a run's own: each goes on from what the one before it left, with clients that keep nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pflbench.engine.batches import support_streams
from pflbench.engine.chain import ChainTraining, Walked, check_chain, train_chain
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import Diverged, UsageError
from pflbench.methods.base import Batch, Method
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.ditto import Ditto
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.ifca import IFCA
from pflbench.methods.per_fedavg import PerFedAvg
from pflbench.methods.scaffold import Scaffold
from pflbench.spec import Link, MethodSpec, RunSpec
from pflbench.testing import assert_same, tiny_federation, tiny_network, tiny_spec

AnyMethod = Method[Any, Any, Any]
SETUPS = (Setup(), Setup(execution="vectorized"))


def chained(rounds: int, *before: tuple[str, int], seed: int = 0, **fields: Any) -> RunSpec:
    links = tuple(Link(method=MethodSpec(name=name, version="1"), rounds=n) for name, n in before)
    return tiny_spec(seed, rounds=rounds, after=links, **fields)


def walked(methods: list[AnyMethod], *specs: RunSpec, setup: Setup = SETUPS[0]) -> Walked:
    """What the trainings before these runs come to."""
    federations = [tiny_federation(spec.seed) for spec in specs]
    links = zip(methods, zip(*(spec.links for spec in specs), strict=True), strict=True)
    trainings = [ChainTraining(mine, federations, method) for method, mine in links]
    return train_chain(trainings, len(specs), tiny_network(), setup)


def outcomes(methods: list[AnyMethod], own: AnyMethod, *specs: RunSpec, setup: Setup = SETUPS[0]) -> list[RunOutcome]:
    left = walked(methods, *specs, setup=setup).left
    federations = [tiny_federation(spec.seed) for spec in specs]
    return Simulation(specs, federations, own, tiny_network(), setup, left).run()


def slow_loop(spec: RunSpec, parts: list[tuple[int, int, float]]) -> Tensor:
    """FedAvg in parts of so many rounds, epochs and this rate, each with the cohorts from round 0 on."""
    federation = tiny_federation(spec.seed)
    f, w = LoopObjective(Task(tiny_network(), federation.x)), tiny_network().init(spec.seed).double()
    streams = support_streams(federation, spec)
    for rounds, epochs, lr in parts:
        for index in range(rounds):
            models = []
            for client in sample_cohort(spec, federation.training, index).tolist():
                local = w
                for rows in streams[client].batches * epochs:
                    batch = Batch(torch.from_numpy(rows), torch.from_numpy(federation.labels[rows]))
                    local = local - lr * f.grad(local, batch)
                models.append(local)
            w = torch.stack(models).mean(0)
    return w


@pytest.mark.parametrize("setup", SETUPS)
def test_a_chain_is_a_slow_loop(setup: Setup) -> None:
    spec = chained(2, ("fedavg", 3))
    (outcome,) = outcomes([FedAvg(epochs=1, lr=0.05)], FedAvg(epochs=2, lr=0.02), spec, setup=setup)
    expected = slow_loop(spec, [(3, 1, 0.05), (2, 2, 0.02)])
    torch.testing.assert_close(outcome.server, expected, rtol=1e-8, atol=1e-8)
    fresh = slow_loop(spec, [(2, 2, 0.02)])
    assert not torch.allclose(fresh, expected, atol=1e-3)


@pytest.mark.parametrize("setup", SETUPS)
def test_ifca_with_one_cluster_goes_on_as_fedavg_does(setup: Setup) -> None:
    spec = chained(2, ("per-fedavg", 2), ("fedavg", 1))
    before: list[AnyMethod] = [PerFedAvg(steps=2), FedAvg(epochs=1, lr=0.05)]
    (one,) = outcomes(before, IFCA(clusters=1, epochs=1, lr=0.02), spec, setup=setup)
    (other,) = outcomes(before, FedAvg(epochs=1, lr=0.02), spec, setup=setup)
    assert_same(one.server[0], other.server)


def test_ifcas_first_cluster_alone_is_what_was_trained_before() -> None:
    spec = chained(1, ("fedavg", 1))
    found = walked([FedAvg(epochs=1, lr=0.05)], spec)
    started = Simulation([spec], [tiny_federation(0)], IFCA(clusters=3), tiny_network(), left=found.left).runs[0]
    assert_same(started.server[0], found.left[0])
    assert_same(started.server[1:], torch.stack([tiny_network().init(0, k).double() for k in (1, 2)]))


def test_what_goes_before_is_that_methods_own_run_of_which_nothing_is_scored() -> None:
    """With states that clients keep, too: the next method's clients have none of it."""
    heard: list[int] = []
    specs = [chained(2, ("per-fedavg", 2), ("ditto", 3), seed=seed) for seed in (0, 1)]
    before: list[AnyMethod] = [PerFedAvg(steps=2), Ditto(steps=2)]
    found = walked(before, *specs, setup=Setup(on_round=heard.append, evaluate_every=1))
    assert (heard, found.rounds) == ([1, 2, 3, 4, 5], 5)
    for spec, left, told in zip(specs, found.left, found.told, strict=True):
        alone = spec.pieces[0]
        (first,) = Simulation([alone], [tiny_federation(spec.seed)], before[0], tiny_network()).run()
        (second,) = Simulation(
            [spec.pieces[1]], [tiny_federation(spec.seed)], before[1], tiny_network(), left=[first.server]
        ).run()
        assert_same(left, second.server)
        assert [(one["method"], one["rounds"]) for one in told] == [("per-fedavg", 2), ("ditto", 3)]
        assert told[0]["client_gradients"] == first.costs["client_gradients"]


def test_costs_and_scores_are_of_a_runs_own_rounds() -> None:
    spec = chained(2, ("per-fedavg", 2))
    (outcome,) = outcomes([PerFedAvg(steps=2)], FedAvg(epochs=1, lr=0.02), spec)
    (fresh,) = Simulation([spec.pieces[1]], [tiny_federation(0)], FedAvg(epochs=1, lr=0.02), tiny_network()).run()
    assert outcome.costs == fresh.costs
    assert {score.round for score in outcome.scores} == {2} and outcome.scores != fresh.scores


def test_a_training_before_that_diverges_fails_its_run_alone() -> None:
    specs = [chained(2, ("fedavg", 2), ("per-fedavg", 1), seed=seed) for seed in (0, 1)]
    federations = [tiny_federation(0), tiny_federation(1)]
    left: list[Any] = [None, Diverged("fedavg, which is trained before it, diverged")]
    bad, good = Simulation(specs[::-1], federations[::-1], FedAvg(), tiny_network(), left=left[::-1]).run()
    assert "before it" in str(bad.failure) and bad.scores == () and good.failure is None and good.scores
    found = walked([FedAvg(epochs=1, lr=1e200), PerFedAvg()], specs[0]).left[0]
    assert isinstance(found, Diverged)
    assert str(found).startswith("fedavg, which is trained before it, diverged in round ") and "per-fedavg" not in str(
        found
    )


@pytest.mark.parametrize(("name", "method"), [("ifca", IFCA()), ("scaffold", Scaffold())])
def test_only_a_single_model_can_be_gone_on_from(name: str, method: AnyMethod) -> None:
    spec = chained(1, (name, 1))
    with pytest.raises(UsageError, match=f"Nothing can be trained after {name}: what its server holds is no single"):
        check_chain(spec, [method], FedAvg(), tiny_network())
    with pytest.raises(UsageError, match="no single model"):
        walked([method], spec)


def test_all_of_a_chain_train_one_network() -> None:
    with pytest.raises(UsageError, match="checked trains another network than fedavg, so the two cannot stand in"):
        check_chain(chained(1, ("fedavg", 1)), [FedAvg()], CAFeMe(), tiny_network())
    check_chain(chained(1, ("fedavg", 1)), [FedAvg()], Scaffold(), tiny_network())
    check_chain(chained(1), [], CAFeMe(), tiny_network())
