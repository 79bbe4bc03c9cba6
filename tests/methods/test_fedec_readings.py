"""What FedEC's sheet leaves open of FedRep, APFL and LG-FedAvg: each option against a slow implementation of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fedec_kit import (
    BETA,
    DECAY,
    FEDERATION,
    LAST,
    LR,
    NETWORK,
    OPTIONS,
    ROUNDS,
    SPEC,
    START,
    TRAINING,
    Models,
    Optimizer,
    close,
    cohort,
    draw,
    gradient,
    loss,
    same,
    strangers,
)
from torch import Tensor

from pflbench import names, noise
from pflbench.engine.client_map import keyed
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.methods.apfl import APFL
from pflbench.methods.apfl_apart import adapted
from pflbench.methods.base import Batches, Draw, Method, Round
from pflbench.methods.fedper import FedPer
from pflbench.methods.fedrep import FedRep
from pflbench.methods.lg_fedavg import LGFedAvg
from pflbench.models.plain_cnn import fedrep_cnn
from pflbench.testing import tiny_features

BASE, HEAD = slice(0, LAST[1]), slice(LAST[1], len(START))
FirstShared, AdaptiveAPFL, OneOptimizer = (
    names.resolve("methods", f"fedec/variants/baselines.py:{name}")
    for name in ("FirstShared", "AdaptiveAPFL", "OneOptimizer")
)


def run(method: Method, execution: Any = "loop") -> RunOutcome:
    (outcome,) = Simulation([SPEC], [FEDERATION], method, NETWORK, Setup(execution=execution)).run()
    assert outcome.failure is None
    return outcome


# FedRep with one optimizer.


def two_phases(w: Tensor, for_head: Batches, for_base: Batches, *, gradients_of_0: bool) -> Tensor:
    """The released code: one SGD of all, and the parameters of the other part want no gradient.

    `gradients_of_0`: whether zeroing leaves gradients of 0, as in PyTorch 1, or none, as in PyTorch 2.
    """
    one = Optimizer()
    m = one.begin(w)
    parameters = list(m.parameters())
    for chosen, batches in ((slice(4, 6), for_head), (slice(0, 4), for_base)):
        for p in parameters:
            p.requires_grad_(False)
        for p in parameters[chosen]:
            p.requires_grad_(True)
        for b in batches:
            m.zero_grad(set_to_none=not gradients_of_0)
            loss(m, b).backward()
            one.torch.step()
    return torch.cat([p.detach().flatten() for p in parameters])


@pytest.mark.parametrize("one_optimizer", [None, True])
def test_fedrep_rounds_with_one_optimizer(one_optimizer: bool | None) -> None:
    """With PyTorch 2's zeroing, one optimizer for both phases is a fresh one for each."""
    method = (OneOptimizer if one_optimizer else FedRep)(head_epochs=2, base_epochs=1, **OPTIONS)
    server, left = START, Models()

    def model(client: int) -> Tensor:
        return torch.cat([server[BASE], left.get(client, START)[HEAD]])

    for index in range(ROUNDS):
        mine = Models()
        for client in cohort(index):
            _, for_head, for_base = draw(client, method.draws(Round(0)), "round", index)
            mine[client] = two_phases(model(client), for_head, for_base, gradients_of_0=bool(one_optimizer))
        left |= mine
        server = torch.cat([sum(n * mine[c][BASE] for c, n in cohort(index).items()), START[HEAD]])
    same(method, server, {c: model(c) for c in TRAINING})


def test_one_optimizer_goes_on_moving_the_head_and_nothing_else_of_fedrep() -> None:
    """Without momentum and decay the frozen head has nothing to go on by; without base epochs there is no time to."""
    common = {"head_epochs": 2, "base_epochs": 1, "lr": LR, "batch": 4}
    for options in (common, common | {"momentum": 0.0}, common | {"momentum": BETA, "base_epochs": 0}):
        plain, one = (run(make(**options)) for make in (FedRep, OneOptimizer))
        close(plain.server, one.server, 1e-12)
        assert [s.loss_sum for s in plain.scores] == pytest.approx([s.loss_sum for s in one.scores], rel=1e-12)
    plain, one = (run(make(**OPTIONS)) for make in (FedRep, OneOptimizer))
    assert (plain.server - one.server).norm() > 1e-6


def test_whoever_keeps_a_head_of_one_optimizer_trains_the_base() -> None:
    draws = {None: FedRep().draws(Round(0)), True: OneOptimizer().draws(Round(0))}
    assert [d.for_upload for d in draws[None]] == [False, False, True]
    assert [d.for_upload for d in draws[True]] == [False] * 3
    assert [d.epochs for d in draws[True]] == [d.epochs for d in draws[None]]


def test_one_optimizer_under_dropout() -> None:
    """Where nothing is cached, the head's velocity is that of its gradients on minibatches."""
    network, client = tiny_features(dropout=0.4), TRAINING[0]
    method = OneOptimizer(head_epochs=2, base_epochs=1, **OPTIONS)
    task = Task(method.network(network), FEDERATION.x)
    f, w = LoopObjective(task), network.init(0).double()
    taken = keyed(draw(client, method.draws(Round(0)), "round", 0), torch.tensor(noise.key(0, client, 0)), task)
    base, head = method.client(f, w, w[f.part("head")], *taken, round=Round(0))
    slow = {part: w[f.part(part)] for part in ("base", "head")}
    velocity = {part: torch.zeros_like(x) for part, x in slow.items()}
    for phase, batches in (("head", taken[1]), ("base", taken[2])):
        for b in batches:
            g = {part: torch.zeros_like(x) for part, x in slow.items()}
            g[phase] = f.grad(torch.cat([slow["base"], slow["head"]]), b, wrt=phase)
            for part in ("head", phase) if phase == "base" else ("head",):
                rate = f.decay(DECAY, slow[part], wrt=part)
                velocity[part] = BETA * velocity[part] + g[part] + rate * slow[part]
            for part in {"head", phase}:
                slow[part] = slow[part] - LR * velocity[part]
    close(base, slow["base"])
    close(head, slow["head"])


# LG-FedAvg that shares its first layers.


def test_rounds_of_lg_fedavg_with_shared_first_layers() -> None:
    method = FirstShared(epochs=2, private_layers=2, **OPTIONS)
    shared = slice(0, LAST[2])
    server, left = START, Models()

    def model(client: int) -> Tensor:
        own = left.get(client, START)
        return torch.cat([server[shared], own[shared.stop :]])

    for index in range(ROUNDS):
        mine = {
            c: Optimizer().descend(model(c), draw(c, method.draws(Round(0)), "round", index)[0]) for c in cohort(index)
        }
        left |= mine
        both = sum(n * mine[c] for c, n in cohort(index).items())
        server = torch.cat([both[shared], START[shared.stop :]])
    assert strangers()
    same(method, server, {c: model(c) for c in TRAINING})


def test_lg_fedavg_sends_the_first_layers_and_nothing_else() -> None:
    """On two convolutions and three dense layers: the convolutions' weights and biases."""
    network = fedrep_cnn((3, 32, 32), 10)
    sizes = {p.name: p.size for p in network.parameters}
    convolutions = sum(size for name, size in sizes.items() if ".conv" in name)
    f = LoopObjective(Task(network, torch.zeros(1, 3, 32, 32, dtype=torch.uint8)))
    w = network.init(0)
    sent, kept = FirstShared(private_layers=3).client(f, w, w[convolutions:], (), round=Round(0))
    assert torch.equal(sent, w[:convolutions]) and torch.equal(kept, w[convolutions:])
    last = sum(sizes[name] for name in sizes if "dense1" in name or "head" in name)
    sent, kept = LGFedAvg().client(f, w, w[:-last], (), round=Round(0))
    assert torch.equal(sent, w[-last:]) and torch.equal(kept, w[:-last])


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_lg_fedavg_of_one_private_layer_is_fedper(execution: Any) -> None:
    lg, fedper = (
        run(m, execution) for m in (FirstShared(epochs=2, private_layers=1, **OPTIONS), FedPer(epochs=2, **OPTIONS))
    )
    assert torch.equal(lg.server, fedper.server) and lg.scores == fedper.scores


# APFL that adapts alpha.


def test_apfl_rounds_with_an_alpha_that_adapts() -> None:
    """Written out, number by number; alpha changes once in a client's local update, after its first step."""
    first = 0.7
    rates = DECAY * torch.cat([torch.full((p.size,), float(len(p.shape) > 1)) for p in NETWORK.parameters]).double()
    method = AdaptiveAPFL(alpha=first, epochs=2, **OPTIONS)
    server, v, alphas = START, Models(), dict[int, float]()

    def own(client: int) -> Tensor:
        return v.get(client, START)

    for index in range(ROUNDS):
        sent = []
        for client in cohort(index):
            w, mine, of_w, of_v = server, own(client), torch.zeros_like(START), torch.zeros_like(START)
            alpha = alphas.get(client, first)
            for i, b in enumerate(draw(client, method.draws(Round(0)), "round", index)[0]):
                m = alpha * mine + (1 - alpha) * w
                g_w, g_v = gradient(w, b), gradient(m, b)
                slope = sum(
                    (a - c) * (alpha * x + (1 - alpha) * y)
                    for a, c, x, y in zip(mine.tolist(), w.tolist(), g_v.tolist(), g_w.tolist(), strict=True)
                )
                new = min(1.0, max(0.0, alpha - LR * (slope + 0.02 * alpha)))
                of_w = BETA * of_w + g_w + rates * w
                w = w - LR * of_w
                of_v = BETA * of_v + g_v + rates * m
                mine = mine - LR * alpha * of_v
                alpha = new if i == 0 else alpha
            sent.append(w)
            v[client], alphas[client] = mine, alpha
        server = sum(sent) / len(sent)
    assert strangers() and all(alpha != first for alpha in alphas.values())
    models = {c: alphas.get(c, first) * own(c) + (1 - alphas.get(c, first)) * server for c in TRAINING}
    simulation = same(method, server, models)
    for client, state in simulation.runs[0].states.items():
        assert state.alpha.item() == pytest.approx(alphas[client], abs=1e-12)
        assert method.diagnose(state) == {"alpha": state.alpha}


def test_an_alpha_that_adapts_stays_between_0_and_1() -> None:
    between, g, alpha = torch.ones(3), torch.full((3,), 100.0), torch.tensor(0.5)
    assert adapted(alpha, between, g, g, 1.0) == 0 and adapted(alpha, -between, g, g, 1.0) == 1
    # Where v is w, alpha shrinks by 2 % of the rate.
    assert adapted(alpha, 0 * between, g, g, 1.0).item() == pytest.approx(0.5 - 0.02 * 0.5)


def test_an_alpha_that_adapts_at_no_rate_is_apfls() -> None:
    options = {"epochs": 2, "lr": 0.0, "batch": 4}
    fixed, free = (run(make(**options)) for make in (APFL, AdaptiveAPFL))
    close(fixed.server, free.server, 0)
    assert [s.loss_sum for s in fixed.scores] == pytest.approx([s.loss_sum for s in free.scores], rel=1e-12)
    assert {m.name for m in free.metrics} - {m.name for m in fixed.metrics} == {"alpha"}


def test_only_alpha_is_added_to_what_a_client_keeps() -> None:
    """It changes v from a client's second step on, and never w of its own round."""
    client = TRAINING[0]
    f = LoopObjective(Task(NETWORK, FEDERATION.x))
    (batches,) = draw(client, (Draw(epochs=1, batch=4),), "round", 0)
    fixed, free = APFL(**OPTIONS), AdaptiveAPFL(**OPTIONS)
    v = START + 0.01
    for taken, alike in ((batches[:1], True), (batches, False)):
        sent, kept = fixed.client(f, START, v, taken, round=Round(0))
        other, state = free.client(f, START, free.init_client(v, None), taken, round=Round(0))
        assert torch.equal(sent, other)
        assert torch.allclose(kept, state.v, rtol=0, atol=1e-12) == alike
