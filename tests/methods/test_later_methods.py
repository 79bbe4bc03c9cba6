"""FedAdam, FedBN, FedBABU and FedALA: their oracles and special cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import Initial, sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Batch, Round
from pflbench.methods.fedadam import FedAdam
from pflbench.methods.fedala import FedALA
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedbabu import FedBABU
from pflbench.methods.fedbn import FedBN
from pflbench.spec import Scoring
from pflbench.testing import tiny_features, tiny_federation, tiny_network, tiny_spec

FEDERATION = tiny_federation(0)
EXECUTIONS = ("loop", "vectorized")
OPTIONS: dict[str, Any] = {"epochs": 2, "lr": 0.05, "momentum": 0.5, "weight_decay": 0.01}
BOTH = Scoring(clients="training", stages=("global", "personalized"))


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_fedadams_rounds_are_the_papers_algorithm_2(execution: Any) -> None:
    """Number by number: m from 0, v from tau squared, no correction of their bias."""
    spec = tiny_spec(rounds=4).model_copy(update={"weights": "examples"})
    method = FedAdam(server_lr=0.03, beta1=0.8, beta2=0.95, eps=1e-2, **OPTIONS)
    (outcome,) = Simulation([spec], [FEDERATION], method, tiny_features(), Setup(execution=execution)).run()
    # The same rounds, the mean model by FedAvg's local updates from each of Adam's models.
    x = Initial(tiny_features(), 0, torch.device("cpu"), torch.float64)().numpy()
    m, v = np.zeros_like(x), np.full_like(x, 1e-4)
    average = Simulation([spec], [FEDERATION], FedAvg(**OPTIONS), tiny_features())
    for _ in range(4):
        average.runs[0].server = torch.from_numpy(x.copy())
        average.step()
        delta = average.runs[0].server.numpy() - x
        m, v = 0.8 * m + 0.2 * delta, 0.95 * v + 0.05 * delta**2
        x = x + 0.03 * m / (np.sqrt(v) + 1e-2)
    close(outcome.server.w, torch.from_numpy(x))
    still = FedAdam(server_lr=0.0).server(outcome.server, torch.ones(2, len(x)).double(), torch.ones(2) / 2, Round(0))
    assert torch.equal(still.w, outcome.server.w)


def test_what_a_mask_of_entries_costs_is_counted() -> None:
    """It is followed on tensors without content, and the mask of a kind must not be the exception."""
    (outcome,) = Simulation([tiny_spec(rounds=1)], [FEDERATION], FedBN(epochs=1), tiny_network()).run()
    assert outcome.costs["client_gradients"] > 0 and outcome.costs["floats_up"] == tiny_network().layout.size


def test_fedbn_keeps_scale_and_shift_at_the_clients() -> None:
    network = tiny_network()
    simulation = Simulation([tiny_spec(cohort=6, rounds=2)], [FEDERATION], FedBN(**OPTIONS), network)
    start = simulation.runs[0].server.clone()
    own = network.layout.entries("normalization")
    named = torch.cat([torch.full((p.size,), ".norm." in p.name) for p in network.parameters])
    assert torch.equal(own, named) and own.any() and not own.all()
    for _ in range(2):
        received = simulation.runs[0].server
        before = dict(simulation.runs[0].states)
        simulation.step()
    server, states = simulation.runs[0].server, simulation.runs[0].states
    close(server[own], start[own])
    assert not torch.equal(server[~own], start[~own])
    kept = torch.stack([state[own] for state in states.values()])
    assert (kept - start[own]).abs().max() > 1e-4 and (kept - kept.mean(0)).abs().max() > 1e-6
    # One client's second update by hand: from the server's model with its own scale and shift.
    client = sorted(states)[0]
    (rows,), _ = support_streams(FEDERATION, tiny_spec())[client].draw(FedBN(**OPTIONS).draws(Round(1)), 0)
    f = LoopObjective(Task(network, FEDERATION.x))
    batches = tuple(Batch(torch.from_numpy(r), torch.from_numpy(FEDERATION.labels[r])) for r in rows)
    begin = torch.where(own, before[client], received)
    (w, _) = FedAvg(**OPTIONS).client(f, begin, (), batches, round=Round(1))
    close(states[client], w)
    mine = FedBN(**OPTIONS).personal_model(f, server, states[client], round=Round(2))
    assert torch.equal(mine[own], states[client][own]) and torch.equal(mine[~own], server[~own])


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_fedbabu_trains_the_base_under_the_initial_head(execution: Any) -> None:
    network = tiny_features()
    spec = tiny_spec(rounds=2, cohort=2)
    (outcome,) = Simulation([spec], [FEDERATION], FedBABU(**OPTIONS), network, Setup(execution=execution)).run()
    base, head = network.layout.part("base"), network.layout.part("head")
    w = start = Initial(network, 0, torch.device("cpu"), torch.float64)()
    decay = network.layout.entries("weight")[base] * 0.01
    for index in range(2):
        made = []
        for client in sample_cohort(spec, FEDERATION.training, index).tolist():
            (rows,), _ = support_streams(FEDERATION, spec)[client].draw(FedBABU(**OPTIONS).draws(Round(0)), 0)
            theta, velocity = w[base].clone(), torch.zeros_like(w[base])
            for r in rows:
                leaf = theta.clone().requires_grad_()
                logits = network.logits([leaf, start[head]], FEDERATION.x[r].double() / 255)
                F.cross_entropy(logits, torch.from_numpy(FEDERATION.labels[r])).backward()
                assert leaf.grad is not None
                velocity = leaf.grad + decay * theta + 0.5 * velocity
                theta = theta - 0.05 * velocity
            made.append(theta)
        w = torch.cat([sum(made) / len(made), start[head]])
    assert torch.equal(outcome.server[head], start[head])
    close(outcome.server, w)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_fedala_with_weights_of_one_is_fedavg(execution: Any) -> None:
    spec = tiny_spec(rounds=4).model_copy(update={"batches": "reshuffled"})
    ours, plain = (
        Simulation([spec], [FEDERATION], m, tiny_features(), Setup(execution=execution)).run()[0]
        for m in (FedALA(eta=0.0, layers=2, **OPTIONS), FedAvg(**OPTIONS))
    )
    assert torch.equal(ours.server, plain.server)


@pytest.mark.parametrize("layers", [1, 2])
def test_fedalas_weights_are_trained_as_the_paper_says(layers: int) -> None:
    """By autograd through theta_hat = theta_local + (theta_global - theta_local) W, and clipped."""
    network, method = tiny_features(), FedALA(eta=40.0, layers=layers, **OPTIONS)
    f, last = LoopObjective(Task(network, FEDERATION.x)), network.layout.last(layers)
    generator = torch.Generator().manual_seed(0)
    old, new = (0.5 * torch.randn(network.layout.size, generator=generator, dtype=torch.float64) for _ in range(2))
    weights = torch.rand(network.layout.size, generator=generator, dtype=torch.float64)[last]
    rows = [FEDERATION.support[3][:5], FEDERATION.support[3][5:9]]
    batches = tuple(Batch(torch.from_numpy(r), torch.from_numpy(FEDERATION.labels[r])) for r in rows)

    mixed, found = method.mixed(f, new, (old, weights), batches)
    for r in rows:
        leaf = weights.clone().requires_grad_()
        theta = torch.cat([new[: last.start], old[last] + (new - old)[last] * leaf])
        logits = network.logits([theta], FEDERATION.x[r].double() / 255)
        F.cross_entropy(logits, torch.from_numpy(FEDERATION.labels[r])).backward()
        assert leaf.grad is not None
        weights = (weights - 40.0 * leaf.grad).clip(0, 1)
    close(found, weights)
    assert ((found == 0) | (found == 1)).any() and ((found > 0) & (found < 1)).any()
    close(mixed, torch.cat([new[: last.start], old[last] + (new - old)[last] * weights]))

    ones = torch.ones_like(weights)
    first, untouched = method.mixed(f, new, (new, ones), batches)
    assert torch.equal(first, new) and torch.equal(untouched, ones)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_fedalas_first_update_is_fedavgs_in_round_0_and_mixes_the_initial_model_later(execution: Any) -> None:
    """Algorithm 1: every local model begins as the initial one, whenever its client is first sampled."""
    network, method = tiny_features(), FedALA(eta=40.0, **OPTIONS)
    spec = tiny_spec(rounds=2, cohort=1).model_copy(update={"batches": "reshuffled"})
    start = Initial(network, 0, torch.device("cpu"), torch.float64)()
    ours, plain = (
        Simulation([spec], [FEDERATION], one, network, Setup(execution=execution))
        for one in (method, FedAvg(**OPTIONS))
    )
    ours.step()
    plain.step()
    received = ours.runs[0].server.clone()
    assert torch.equal(received, plain.runs[0].server)
    late = set(sample_cohort(spec, FEDERATION.training, 1).tolist()) - set(ours.runs[0].states)
    assert late, "a client is first sampled in round 1"
    ours.step()
    f = LoopObjective(Task(network, FEDERATION.x))
    for client in late:
        (_, rows), _ = support_streams(FEDERATION, spec)[client].draw(method.draws(Round(1)), 0, "round", 1)
        batches = tuple(Batch(torch.from_numpy(r), torch.from_numpy(FEDERATION.labels[r])) for r in rows)
        ones = torch.ones_like(start[network.layout.last(1)])
        _, weights = method.mixed(f, received, (start, ones), batches)
        assert (weights < 1).any()
        close(ours.runs[0].states[client][1], weights)
