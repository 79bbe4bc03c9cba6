"""GPFL: two rounds against modules that autograd differentiates, FedPer without its additions, gradients, the network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pfllib_kit import (
    BASE,
    EXECUTIONS,
    FEDERATION,
    HEAD,
    NETWORK,
    OPTIONS,
    RATE,
    START,
    TRAINING,
    C,
    D,
    client_of,
    close,
    data,
    features,
    parts,
    passes,
    spec,
    trained,
)
from torch import Tensor, nn

from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import Initial
from pflbench.engine.simulate import Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Round
from pflbench.methods.fedper import FedPer
from pflbench.methods.gpfl import GPFL, Client, Shared, cosine_gradient
from pflbench.models.valve import with_valve
from pflbench.testing import tiny_features
from pflbench.vector import replace as replaced

ROUTED = with_valve(NETWORK)
NEW = Initial(ROUTED, 0, torch.device("cpu"), torch.float64)
VALVE = ROUTED.layout.part("valve")
BEGUN = GPFL().init(NEW, 3)


class Route(nn.Module):
    """Both maps of the valve."""

    def __init__(self) -> None:
        super().__init__()
        maps = [nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.LayerNorm(D)) for _ in range(2)]
        self.gamma, self.beta = (one.double() for one in maps)

    def forward(self, f: Tensor, condition: Tensor) -> Tensor:
        return F.relu((self.gamma(condition) + 1) * f + self.beta(condition))


NAMES = {"gamma.0.weight": "gamma.weight", "gamma.0.bias": "gamma.bias", "gamma.2.weight": "gamma.scale",
         "gamma.2.bias": "gamma.shift", "beta.0.weight": "beta.weight", "beta.0.bias": "beta.bias",
         "beta.2.weight": "beta.scale", "beta.2.bias": "beta.shift"}  # fmt: skip


def values(modules: Tensor) -> dict[str, Tensor]:
    """Parameters of a `Route` out of base and valve as one vector."""
    views = ROUTED.layout.views([modules])
    return {name: views[f"valve.{theirs}"].clone() for name, theirs in NAMES.items()}


def label_shares(client: int) -> Tensor:
    rows = np.concatenate(support_streams(FEDERATION, spec())[client].batches)  # type: ignore[union-attr]
    return torch.bincount(torch.from_numpy(FEDERATION.labels[rows]), minlength=C).double() / len(rows)


def averaged(trees: list[list[Tensor]]) -> list[Tensor]:
    sizes = torch.tensor([len(FEDERATION.support[client]) for client in TRAINING]).double()
    return [torch.einsum("c,c...->...", sizes / sizes.sum(), torch.stack(same)) for same in zip(*trees, strict=True)]


@EXECUTIONS
def test_gpfl_is_its_loss(execution: Any) -> None:
    lam, mu = 0.4, 0.3
    route, base, embeddings = Route(), START[BASE], BEGUN.embeddings
    route.load_state_dict(values(BEGUN.modules))
    valve = [p.detach().clone() for p in route.parameters()]
    inputs = {client: (torch.zeros(D).double(), torch.zeros(D).double()) for client in TRAINING}
    heads = dict.fromkeys(TRAINING, START[HEAD])
    for _ in range(2):
        sent = []
        for client in TRAINING:
            g, q = inputs[client]
            with torch.no_grad():
                for p, received in zip(route.parameters(), valve, strict=True):
                    p.copy_(received)
            phi, e, head = (x.clone().requires_grad_() for x in (base, embeddings, heads[client]))
            plain = torch.optim.SGD([phi, head], RATE)
            shrunk = torch.optim.SGD([*route.parameters(), e], RATE, weight_decay=mu)
            for batch in passes(client):
                x, y = data(batch)
                f = features(phi, x)
                weight, bias = parts(head)
                general, personal = route(f, g), route(f, q)
                loss = F.cross_entropy(personal @ weight.mT + bias, y)
                loss = loss + F.cross_entropy(F.cosine_similarity(general[:, None], e, dim=-1), y)
                loss = loss + lam * (general - embeddings[y]).norm()
                for by in (plain, shrunk):
                    by.zero_grad()
                loss.backward()
                for by in (plain, shrunk):
                    by.step()
            e = e.detach()
            sent.append([phi.detach(), e, *(p.detach().clone() for p in route.parameters())])
            inputs[client], heads[client] = (e.mean(0), label_shares(client) @ e), head.detach()
        base, embeddings, *valve = averaged(sent)
    run = trained(GPFL(lam=lam, mu=mu, **OPTIONS), execution)
    close(run.server.modules[BASE], base)
    close(run.server.embeddings, embeddings)
    found = values(run.server.modules)
    for (name, _), value in zip(route.named_parameters(), valve, strict=True):
        close(found[name], value)
    for client in TRAINING:
        for got, expected in zip(run.states[client], (*inputs[client], heads[client]), strict=True):
            close(got, expected)
    scored = GPFL().personal_model(f_of(ROUTED), run.server, run.states[TRAINING[0]], round=Round(2))
    x, _ = data(FEDERATION.query[TRAINING[0]])
    with torch.no_grad():
        for p, mean in zip(route.parameters(), valve, strict=True):
            p.copy_(mean)
        weight, bias = parts(heads[TRAINING[0]])
        close(ROUTED.logits([scored], x), route(features(base, x), inputs[TRAINING[0]][1]) @ weight.mT + bias)


def f_of(network: Any) -> LoopObjective:
    return LoopObjective(Task(network, FEDERATION.x))


class WithoutAdditions(LoopObjective):
    """An objective whose valve has no gradient, and whose losses of features have none."""

    def grad(self, w: Tensor, b: Batch, **options: Any) -> Tensor:
        g = super().grad(w, b, **options)
        return torch.zeros_like(g) if options else replaced(g, VALVE, torch.zeros_like(g[VALVE]))


def test_with_an_idle_valve_and_the_heads_loss_alone_gpfl_is_fedper() -> None:
    f, everything, cut = client_of([0, 1, 2, 2, 1, 0, 2])
    modules = BEGUN.modules.clone()
    for name in ("scale", "shift"):
        for one in ("gamma", "beta"):
            ROUTED.layout.views([modules])[f"valve.{one}.{name}"].zero_()
    state = GPFL().init_client(BEGUN, NEW)
    own = WithoutAdditions(Task(ROUTED, FEDERATION.x))
    server = Shared(modules, BEGUN.embeddings)
    sent, kept = GPFL(mu=0.0, momentum=0.5, **OPTIONS).client(own, server, state, everything, cut, round=Round(0))
    base, head = FedPer(momentum=0.5, **OPTIONS).client(f, START, START[HEAD], cut, round=Round(0))
    close(sent.modules[BASE], base)
    close(kept.head, head)
    assert torch.equal(sent.modules[VALVE], modules[VALVE])


def test_the_embeddings_gradient_is_that_of_the_cosines_cross_entropy() -> None:
    generator = torch.Generator().manual_seed(0)
    e, z = (torch.randn(n, D, generator=generator, dtype=torch.float64) for n in (C, 5))
    e.requires_grad_()
    b = Batch(torch.arange(5), torch.tensor([0, 2, 2, 1, 0]))
    for real in (5, 3):
        mask = torch.arange(5) < real
        loss = F.cross_entropy(F.cosine_similarity(z[:real, None], e, dim=-1), b.labels[:real])
        found = cosine_gradient(e.detach(), z, b._replace(mask=None if real == 5 else mask))
        close(found, torch.autograd.grad(loss, e)[0])
    nothing = cosine_gradient(e.detach(), z, b._replace(mask=torch.zeros(5, dtype=torch.bool)))
    assert torch.equal(nothing, torch.zeros_like(e)), "a step that only pads"


def test_a_client_of_equally_frequent_classes_has_two_equal_inputs_and_one_of_one_class_its_embedding() -> None:
    f, method, state = f_of(ROUTED), GPFL(**OPTIONS), GPFL().init_client(BEGUN, NEW)
    assert not state.general.any() and not state.personal.any() and torch.equal(state.head, START[HEAD])
    _, everything, cut = client_of([0, 1, 2, 2, 1, 0])
    _, kept = method.client(f, BEGUN, state, everything, cut, round=Round(0))
    close(kept.general, kept.personal)
    assert kept.personal.abs().min() > 0
    _, everything, cut = client_of([1] * 6)
    sent, kept = method.client(f, BEGUN, state, everything, cut, round=Round(0))
    assert torch.equal(kept.personal, sent.embeddings[1])


def test_inputs_of_ones_own_are_neither_received_nor_trained() -> None:
    f, everything, cut = client_of([0, 1, 2, 2, 1, 0])
    f, method = f_of(ROUTED), GPFL(momentum=0.9, weight_decay=0.1, **OPTIONS)
    own = Client(torch.full((D,), 0.3).double(), torch.full((D,), -0.2).double(), START[HEAD])
    seen = []

    def watched(w: Tensor, b: Batch, **options: Any) -> Tensor:
        seen.append((options.get("at", "logits"), ROUTED.layout.views([w])["condition.input"]))
        return LoopObjective.grad(f, w, b, **options)

    f.grad = watched  # type: ignore[method-assign]
    method.client(f, BEGUN, own, everything, cut, round=Round(0))
    assert len(seen) == 2 * len(cut) == 4
    for at, used in seen:
        assert torch.equal(used, own.general if at == "features" else own.personal)


def test_base_valve_and_embeddings_are_sent() -> None:
    (outcome,) = Simulation([spec(rounds=1)], [FEDERATION], GPFL(epochs=1), NETWORK).run()
    both = 2 * (D * D + D + 2 * D)
    assert outcome.costs["floats_up"] == BASE.stop + both + C * D


# ---- the network


def test_a_network_with_a_valve_begins_as_it_does_without() -> None:
    for plain in (NETWORK, replace(NETWORK, initial=lambda seed, k: NETWORK.init(seed + 10, k))):
        routed = with_valve(plain)
        w = routed.init(3, 1)
        assert list(routed.layout.parts) == ["base", "valve", "condition", "head"]
        assert torch.equal(torch.cat([w[routed.layout.part(name)] for name in ("base", "head")]), plain.init(3, 1))
        views = routed.layout.views([w])
        for one in ("gamma", "beta"):
            drawn = torch.cat([views[f"valve.{one}.{name}"].flatten() for name in ("weight", "bias")])
            assert 0.9 * D**-0.5 < drawn.abs().max() <= D**-0.5
            assert (views[f"valve.{one}.scale"] == 1).all() and not views[f"valve.{one}.shift"].any()
        assert not torch.equal(views["valve.gamma.weight"], views["valve.beta.weight"])
        assert not torch.equal(w[VALVE], routed.init(4, 1)[VALVE])
        assert not views["condition.input"].any()


@pytest.mark.parametrize("stack", ["grouped", "columns"])
def test_a_stack_of_valves_is_each_of_them(stack: str) -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(2, ROUTED.layout.size, generator=generator, dtype=torch.float64)
    x = torch.rand(2, 4, *ROUTED.shape, generator=generator, dtype=torch.float64)
    for found, one in (
        (ROUTED.logits([w], x, mask=None, stack=stack), lambda i: ROUTED.logits([w[i]], x[i])),
        (ROUTED.represent([w], x, mask=None, stack=stack), lambda i: ROUTED.represent([w[i]], x[i])),
    ):
        close(found, torch.stack([one(i) for i in range(2)]))
    assert ROUTED.represent([w[0]], x[0]).abs().max() > 0 and not ROUTED.batchwise


def test_gpfl_refuses_dropout_and_weight_decay_is_that_of_layers() -> None:
    with pytest.raises(UsageError, match="without dropout"):
        GPFL().network(tiny_features(dropout=0.4))
    marked = ROUTED.layout.views([ROUTED.layout.entries("weight")])
    assert all(marked[f"valve.{one}.weight"].all() for one in ("gamma", "beta"))
    others = ("condition.input", "valve.gamma.scale", "valve.gamma.shift", "valve.beta.scale", "valve.beta.bias")
    assert not any(marked[name].any() for name in others)
