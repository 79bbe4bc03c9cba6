"""Closed forms on quadratics, and autograd through the whole inner path on the tiny network."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import arrived, sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Batch, Batches, Draw, Round, mean, steps
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.ditto import Client, Ditto
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedper import FedPer
from pflbench.methods.fedprox import FedProx
from pflbench.methods.fedrep import FedRep
from pflbench.methods.ifca import IFCA, Upload
from pflbench.methods.per_fedavg import PerFedAvg
from pflbench.methods.pfedme import PFedMe
from pflbench.methods.scaffold import Scaffold
from pflbench.models.mlp import perceptron
from pflbench.optim import Adam
from pflbench.spec import Scoring
from pflbench.testing import tiny_federation, tiny_network, tiny_spec

NOW = Round(0)
SIZE = 6
ModuleOf = Callable[[Tensor], nn.Module]


class Quadratic:
    """Batch number i has the loss ½ wᵀ A_i w - b_iᵀ w; an `Objective` whose derivatives are exact."""

    cacheable = False
    classes, width = 1, 0

    def __init__(self, count: int, seed: int = 0):
        g = torch.Generator().manual_seed(seed)
        root = torch.randn(count, SIZE, SIZE, generator=g, dtype=torch.float64) / SIZE**0.5
        self.a = root @ root.mT + 0.5 * torch.eye(SIZE, dtype=torch.float64)
        self.b = torch.randn(count, SIZE, generator=g, dtype=torch.float64)
        self.batches = tuple(Batch(torch.tensor([i]), torch.tensor([0])) for i in range(count))

    def __call__(self, w: Tensor, b: Batch) -> Tensor:
        i = b.rows[0]
        return 0.5 * w @ self.a[i] @ w - self.b[i] @ w

    def grad(self, w: Tensor, b: Batch, *, wrt: str | None = None, **_: Any) -> Tensor:
        return (self.a[b.rows[0]] @ w - self.b[b.rows[0]])[self.part(wrt or "base")]

    def hvp(self, w: Tensor, b: Batch, v: Tensor) -> Tensor:
        return self.a[b.rows[0]] @ v

    def with_statistics(self, new: Tensor, w: Tensor, b: Batch, *, wrt: str | None = None) -> Tensor:
        return new

    def logits(self, w: Tensor, b: Batch) -> Tensor:
        raise NotImplementedError

    def features(self, w: Tensor, b: Batch) -> Tensor:
        raise NotImplementedError

    def part(self, name: str) -> slice:
        return slice(0, SIZE)

    def last(self, layers: int) -> slice:
        raise NotImplementedError

    def entries(self, kind: Any) -> Tensor:
        raise NotImplementedError

    def decay(self, rate: float | None, w: Tensor, *, wrt: str | None = None) -> Tensor | None:
        return torch.full_like(w, rate) if rate else None


W = torch.linspace(-1, 2, SIZE, dtype=torch.float64)
EYE = torch.eye(SIZE, dtype=torch.float64)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# Quadratics.


def test_fedavg_on_one_quadratic_is_a_power_of_its_contraction() -> None:
    f = Quadratic(1)
    optimum = torch.linalg.solve(f.a[0], f.b[0])
    upload, state = FedAvg(lr=0.1).client(f, W, (), f.batches * 20, round=NOW)
    close(upload, optimum + torch.linalg.matrix_power(EYE - 0.1 * f.a[0], 20) @ (W - optimum))
    assert state == ()


def test_fedavg_server_is_the_weighted_mean() -> None:
    uploads, n = torch.randn(3, SIZE, dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    close(FedAvg().server(W, uploads, n, NOW), 0.2 * uploads[0] + 0.3 * uploads[1] + 0.5 * uploads[2])
    assert mean(uploads.float()[:, 0], n).dtype == torch.float32


def test_fedprox_settles_where_loss_and_pull_agree() -> None:
    f = Quadratic(1)
    for beta in (None, 0.5):
        upload, _ = FedProx(lr=0.1, mu=0.7, momentum=beta).client(f, W, (), f.batches * 400, round=NOW)
        close(upload, torch.linalg.solve(f.a[0] + 0.7 * EYE, f.b[0] + 0.7 * W), 1e-9)


def test_pfedmes_personal_model_is_the_proximal_point() -> None:
    f = Quadratic(1)
    method = PFedMe(inner_steps=400, lr=0.01, inner_lr=0.1, lam=2.0)
    upload, _ = method.client(f, W, (), f.batches, round=NOW)
    proximal = torch.linalg.solve(f.a[0] + 2 * EYE, f.b[0] + 2 * W)
    close(upload.personal, proximal, 1e-9)
    close(upload.model, W - 0.02 * (W - proximal), 1e-9)


def test_per_fedavg_orders_on_quadratics() -> None:
    f = Quadratic(8)
    alpha, beta = 0.2, 0.1
    expected = {"exact": W, "first": W}
    for order in expected:
        w = W
        for s in (0, 4):
            phi = w - alpha * (f.a[s] @ w - f.b[s])
            g = f.a[s + 1] @ phi - f.b[s + 1]
            w = w - beta * (g - (alpha * f.a[s + 2] @ g if order == "exact" else 0))
        expected[order] = w
    got = {
        order: PerFedAvg(steps=2, inner_lr=alpha, outer_lr=beta, order=order).client(  # type: ignore[arg-type]
            f, W, (), f.batches, round=NOW
        )[0]
        for order in ("exact", "first", "hf")
    }
    close(got["exact"], expected["exact"])
    close(got["first"], expected["first"])
    close(got["hf"], got["exact"], 1e-9)  # a central difference is exact on quadratics
    assert (got["first"] - got["exact"]).abs().max() > 1e-3


@pytest.mark.parametrize("order", ["first", "exact"])
def test_cafemes_meta_gradient_on_quadratics(order: Any) -> None:
    f = Quadratic(5)
    alpha = 0.2
    phi = W
    for s in range(4):
        phi = phi - alpha * (f.a[s] @ phi - f.b[s])
    g = f.a[4] @ phi - f.b[4]
    if order == "exact":
        for s in (3, 2, 1, 0):
            g = (EYE - alpha * f.a[s]) @ g
    method = CAFeMe(steps=4, inner_lr=alpha, order=order, outer_lr=0.01)
    upload, state = method.client(f, W, Adam(0.0).init(W), f.batches[:4], f.batches[4:], round=NOW)
    close(state.first / 0.1, g)  # Adam's first step shows only signs; its moments show the gradient
    close(state.second / 0.001, g * g)
    close(upload, W - 0.01 * g / (g.abs() + 1e-8))


def test_ditto_settles_where_loss_and_pull_agree() -> None:
    f = Quadratic(1)
    method = Ditto(personal_lr=0.2, lam=0.7, lr=0.01)
    _, state = method.client(f, W, Client(-W, Adam(0.0).init(W)), f.batches * 300, f.batches, round=NOW)
    close(state.v, torch.linalg.solve(f.a[0] + 0.7 * EYE, f.b[0] + 0.7 * W), 1e-9)
    assert state.memory.updates == 1


def test_ifca_chooses_by_the_sum_of_losses_and_trains_the_choice() -> None:
    f = Quadratic(3)
    models = torch.stack([W, torch.zeros_like(W), torch.linalg.solve(f.a.sum(0), f.b.sum(0)), -W])
    losses = [sum(f(w, b) for b in f.batches) for w in models]
    assert min(range(4), key=lambda k: losses[k]) == 2
    upload, _ = IFCA(clusters=4, lr=0.1).client(f, models, (), f.batches, f.batches * 2, round=NOW)
    assert upload.choice == 2
    w = models[2]
    for b in f.batches * 2:
        w = w - 0.1 * f.grad(w, b)
    close(upload.model, w)
    close(IFCA(clusters=4).deploy(f, models, f.batches), models[2])


def test_ifca_ties_go_to_the_lowest_number() -> None:
    f = Quadratic(2)
    assert IFCA(clusters=3).choose(f, torch.stack([W, W, W]), f.batches) == 0
    best = torch.linalg.solve(f.a.sum(0), f.b.sum(0))
    assert IFCA(clusters=4).choose(f, torch.stack([W, best, W, best]), f.batches) == 1


def test_ifca_server_averages_who_chose_and_leaves_the_rest() -> None:
    models = torch.arange(4.0 * SIZE, dtype=torch.float64).reshape(4, SIZE)
    uploads = Upload(torch.tensor([2, 0, 2, 0, 0]), torch.randn(5, SIZE, dtype=torch.float64))
    n = torch.tensor([0.1, 0.2, 0.3, 0.25, 0.15], dtype=torch.float64)
    after = IFCA(clusters=4).server(models, uploads, n, NOW)
    u = uploads.model
    close(after[0], (0.2 * u[1] + 0.25 * u[3] + 0.15 * u[4]) / 0.6)
    close(after[2], (0.1 * u[0] + 0.3 * u[2]) / 0.4)
    assert torch.equal(after[[1, 3]], models[[1, 3]])


def test_ifca_starts_from_independent_models_and_the_common_one() -> None:
    net = tiny_network()

    class New:
        classes, width = 3, 0

        def __call__(self, k: int = 0) -> Tensor:
            return net.init(0, k)

        def part(self, name: str) -> slice:
            return net.layout.part(name)

        def last(self, layers: int) -> slice:
            return net.layout.last(layers)

        def entries(self, kind: Any) -> Tensor:
            raise NotImplementedError

        def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
            raise NotImplementedError

    models = IFCA(clusters=3).init(New(), 6)
    assert torch.equal(models[0], net.init(0)) and not torch.equal(models[1], models[2])
    base, head = net.layout.part("base"), net.layout.part("head")
    shared = IFCA(clusters=3, shared="base").init(New(), 6)
    assert torch.equal(shared[:, base], models[:1, base].expand(3, -1)) and torch.equal(
        shared[:, head], models[:, head]
    )


# Rounds in which half of the uploads arrive, written out one client and one minibatch at a time.

NETWORK = perceptron((1, 8, 8), 3, hidden=(16,))
BASE, HEAD = NETWORK.layout.part("base"), NETWORK.layout.part("head")
LR, BETA, ROUNDS = 0.01, 0.9, 4
TRAINING = {"lr": LR, "momentum": BETA, "batch": 4}


class Slow:
    """Who trains, what it draws, what it weighs; and the losses of personal models to compare with."""

    def __init__(self, **changes: Any):
        self.federation = tiny_federation(0)
        scoring = Scoring(clients="training", stages=("personalized",), average="examples", moment="before-aggregation")
        changes = {"arrival": 0.5, "batches": "reshuffled", "weights": "examples", "scoring": scoring} | changes
        self.spec = tiny_spec(cohort=6, rounds=ROUNDS).model_copy(update=changes)
        self.f = LoopObjective(Task(NETWORK, self.federation.x))
        self.start = NETWORK.init(0).double()
        self.clients = np.flatnonzero(self.federation.training).tolist()

    def senders(self, index: int) -> dict[int, float]:
        """The clients whose uploads arrive, and their shares of the examples."""
        there = arrived(self.spec, sample_cohort(self.spec, self.federation.training, index), index).tolist()
        sizes = {c: len(self.federation.support[c]) for c in there}
        return {c: size / sum(sizes.values()) for c, size in sizes.items()}

    def draw(self, client: int, takes: Any, *moment: Any) -> list[Batches]:
        drawn, _ = support_streams(self.federation, self.spec)[client].draw(takes, 0, *moment)
        return [
            tuple(self.batch(rows[0] if take.indexed else rows) for rows in batches)
            for take, batches in zip(takes, drawn, strict=True)
        ]

    def batch(self, rows: np.ndarray) -> Batch:
        return Batch(torch.from_numpy(rows), torch.from_numpy(self.federation.labels[rows]))

    def sgd(self, w: Tensor, batches: Batches, part: slice = slice(None), beta: float = BETA, lr: float = LR) -> Tensor:
        """SGD with momentum on one part of the model."""
        w, velocity = w.clone(), 0
        for b in batches:
            velocity = beta * velocity + self.f.grad(w, b)[part]
            w[part] -= lr * velocity
        return w

    def loss(self, w: Tensor, client: int) -> float:
        b = self.batch(self.federation.query[client])
        return F.cross_entropy(self.f.logits(w, b), b.labels, reduction="sum").item()

    def same(self, method: Any, server: Any, models: dict[int, Tensor], stage: str = "personalized") -> list[Any]:
        """The engine comes to the same server state and the same personal models; returns the clients' states."""
        for execution in ("loop", "vectorized"):
            setup = Setup(execution=execution, most_padding=math.inf)
            simulation = Simulation([self.spec], [self.federation], method, NETWORK, setup)
            (outcome,) = simulation.run()
            assert outcome.failure is None
            for mine, theirs in zip(pytree.tree_leaves(outcome.server), pytree.tree_leaves(server), strict=True):
                close(mine, theirs)
            losses = {s.client: s.loss_sum for s in outcome.scores if s.stage == stage}
            assert losses == pytest.approx({c: self.loss(w, c) for c, w in models.items()}, rel=1e-9)
        return [simulation.runs[0].states.get(c) for c in self.clients]


def test_scaffold_rounds() -> None:
    slow, method = Slow(scoring=Scoring()), Scaffold(epochs=2, lr=LR, batch=4)
    x, c, own = slow.start, torch.zeros_like(slow.start), {i: torch.zeros_like(slow.start) for i in slow.clients}
    for index in range(ROUNDS):
        moved, changed = [], []
        for client in slow.senders(index):
            (batches,) = slow.draw(client, method.draws(Round(0)), "round", index)
            y = x
            for b in batches:
                y = y - LR * (slow.f.grad(y, b) + c - own[client])
            new = own[client] - c + (x - y) / (len(batches) * LR)
            moved.append(y - x)
            changed.append(new - own[client])
            own[client] = new
        x, c = x + sum(moved) / len(moved), c + sum(changed) / len(slow.clients)
    states = slow.same(method, (x, c, torch.tensor(6.0, dtype=torch.float64)), {})
    for client, state in zip(slow.clients, states, strict=True):
        close(own[client] if state is None else state, own[client])


def test_ifca_rounds_with_a_shared_base() -> None:
    slow, method = Slow(), IFCA(clusters=2, epochs=2, shared="base", **TRAINING)
    base = slow.start[BASE]
    heads = [slow.start[HEAD], NETWORK.init(0, 1).double()[HEAD]]

    def choose(client: int) -> int:
        everything = slow.batch(slow.federation.support[client])
        losses = [slow.f(torch.cat([base, head]), everything).item() for head in heads]
        return losses.index(min(losses))

    assert method.draws(Round(0))[:1] == method.personal_draws() == (Draw(whole=True),)
    chosen = set()
    for index in range(ROUNDS):
        models, total = {}, [0.0, 0.0]
        for client, n in slow.senders(index).items():
            k = choose(client)
            w = slow.sgd(torch.cat([base, heads[k]]), slow.draw(client, method.draws(Round(0)), "round", index)[1])
            models[client], total[k] = (k, n, w), total[k] + n
        base = sum(n * w[BASE] for _, n, w in models.values())
        for k in range(2):
            if total[k]:
                heads[k] = sum(n * w[HEAD] for mine, n, w in models.values() if mine == k) / total[k]
        chosen |= {k for k, _, _ in models.values()}
    assert chosen == {0, 1}
    server = torch.stack([torch.cat([base, head]) for head in heads])
    slow.same(method, server, {c: server[choose(c)] for c in slow.clients})


def test_fedper_rounds() -> None:
    slow, method = Slow(), FedPer(epochs=2, **TRAINING)
    base, heads, models = slow.start[BASE], dict.fromkeys(slow.clients, slow.start[HEAD]), {}
    for index in range(ROUNDS):
        for client in slow.clients:
            (batches,) = slow.draw(client, method.draws(Round(0)), "round", index)
            models[client] = slow.sgd(torch.cat([base, heads[client]]), batches)
            heads[client] = models[client][HEAD]
        base = sum(n * models[client][BASE] for client, n in slow.senders(index).items())
    states = slow.same(method, torch.cat([base, slow.start[HEAD]]), models)
    for client, state in zip(slow.clients, states, strict=True):
        close(state, heads[client])
    later = Slow(scoring=slow.spec.scoring.model_copy(update={"moment": "after-aggregation"}))
    later.same(method, torch.cat([base, slow.start[HEAD]]), {c: torch.cat([base, heads[c]]) for c in slow.clients})


def test_fedrep_rounds_with_personal_heads() -> None:
    """Features once a round, and bases where they are used only: the numbers of the plain algorithm."""
    slow, method = Slow(), FedRep(head_epochs=3, base_epochs=2, **TRAINING)
    base, heads, models = slow.start[BASE], dict.fromkeys(slow.clients, slow.start[HEAD]), {}
    for index in range(ROUNDS):
        for client in slow.clients:
            _, for_head, for_base = slow.draw(client, method.draws(Round(0)), "round", index)
            w = slow.sgd(torch.cat([base, heads[client]]), for_head, HEAD)
            heads[client] = w[HEAD]
            models[client] = slow.sgd(w, for_base, BASE)
        base = sum(n * models[client][BASE] for client, n in slow.senders(index).items())
    states = slow.same(method, torch.cat([base, slow.start[HEAD]]), models)
    for client, state in zip(slow.clients, states, strict=True):
        close(state, heads[client])


def test_fedrep_trains_only_bases_that_are_sent_or_scored() -> None:
    slow, method = Slow(scoring=Scoring()), FedRep(base_epochs=2, batch=4)
    simulation = Simulation([slow.spec], [slow.federation], method, NETWORK)
    simulation.run()
    sent = [-(-len(slow.federation.support[c]) // 4) for index in range(ROUNDS) for c in slow.senders(index)]
    assert simulation.clients.gradient_calls == 2 * sum(sent)


def test_pfedme_rounds() -> None:
    slow, method = Slow(), PFedMe(steps=3, inner_steps=2, lr=LR, inner_lr=0.1, lam=2.0, batch=4)
    server = slow.start
    for index in range(ROUNDS):
        local, personal = {}, {}
        for client in slow.clients:
            w = theta = server
            for b in slow.draw(client, method.draws(Round(0)), "round", index)[0]:
                for _ in range(2):
                    theta = theta - 0.1 * (slow.f.grad(theta, b) + 2 * (theta - w))
                w = w - LR * 2 * (w - theta)
            local[client], personal[client] = w, theta
        server = sum(n * local[client] for client, n in slow.senders(index).items())
    slow.same(method, server, personal)
    slow.same(method, server, local, "local")


def test_a_personal_model_of_per_fedavg_is_sgd_from_the_new_global_one() -> None:
    slow, method = Slow(), PerFedAvg(steps=2, inner_lr=0.1, outer_lr=LR, batch=4, personal_epochs=2)
    server = slow.start
    for index in range(ROUNDS):
        models = []
        for client, n in slow.senders(index).items():
            (drawn,), w = slow.draw(client, method.draws(Round(0)), "round", index), server
            for s in (0, 4):
                v = slow.f.grad(w - 0.1 * slow.f.grad(w, drawn[s]), drawn[s + 1])
                third = drawn[s + 2]
                h = (slow.f.grad(w + 1e-3 * v, third) - slow.f.grad(w - 1e-3 * v, third)) / 2e-3
                w = w - LR * (v - 0.1 * h)
            models.append(n * w)
        server = sum(models)
    adapted = {
        c: slow.sgd(server, slow.draw(c, method.personal_draws(), "personalize", ROUNDS)[0], beta=0, lr=0.1)
        for c in slow.clients
    }
    slow.same(method, server, adapted)


# The loop over minibatches.


def test_steps_leaves_the_whole_carry_at_padded_steps() -> None:
    f = Quadratic(4)
    real = [True, False, True, False]
    padded = tuple(b._replace(real=torch.tensor(r)) for b, r in zip(f.batches, real, strict=True))

    def fn(carry: tuple[Tensor, Tensor], b: Batch) -> tuple[Tensor, Tensor]:
        return carry[0] - 0.1 * f.grad(carry[0], b), carry[1] + 1

    zero = torch.zeros(())
    w, count = steps(fn, (W, zero), padded)
    expected, _ = steps(fn, (W, zero), f.batches[0::2])
    assert torch.equal(w, expected) and count == 2


# The tiny network, against autograd through the path.

FEDERATION = tiny_federation(0)


def taken(method: Any) -> list[Batches]:
    drawn, _ = support_streams(FEDERATION, tiny_spec())[3].draw(method.draws(Round(0)), 0)
    return [tuple(Batch(torch.from_numpy(r), torch.from_numpy(FEDERATION.labels[r])) for r in rows) for rows in drawn]


def maml(loss: Callable[[Tensor, Batch], Tensor], w: Tensor, alpha: float, inner: Batches, outer: Batch) -> Tensor:
    """The exact meta-gradient: autograd through every inner step."""
    w = w.detach().requires_grad_()
    phi = w
    for b in inner:
        (g,) = torch.autograd.grad(loss(phi, b), phi, create_graph=True)
        phi = phi - alpha * g
    return torch.autograd.grad(loss(phi, outer), w)[0]


def module_loss(build: ModuleOf, w: Tensor) -> Callable[[Tensor, Batch], Tensor]:
    """The loss as a function of the vector, through an independent torch module."""
    module = build(w)
    shapes = {name: p.shape for name, p in module.named_parameters()}

    def loss(v: Tensor, b: Batch) -> Tensor:
        chunks = v.split([s.numel() for s in shapes.values()])
        named = {name: c.reshape(s) for (name, s), c in zip(shapes.items(), chunks, strict=True)}
        return F.cross_entropy(functional_call(module, named, FEDERATION.x[b.rows].double() / 255), b.labels)

    return loss


@pytest.mark.parametrize("mode", ["c0", "c1", "c2"])
def test_exact_cafeme_is_autograd_through_the_path(mode: Any) -> None:
    method = CAFeMe(steps=4, outer_batches=2, inner_lr=0.1, order="exact", modulation=mode)
    network = method.network(tiny_network())
    f, theta = LoopObjective(Task(network, FEDERATION.x)), network.init(0).double()
    inner, (outer,) = taken(method)
    _, state = method.client(f, theta, Adam(0.0).init(theta), inner, (outer,), round=NOW)

    def loss(w: Tensor, b: Batch) -> Tensor:
        return F.cross_entropy(network.logits([w], FEDERATION.x[b.rows].double() / 255), b.labels)

    close(state.first / 0.1, maml(loss, theta, 0.1, inner, outer), 1e-9)


def test_exact_per_fedavg_is_autograd_through_the_path(tiny_module: ModuleOf) -> None:
    """With the third minibatch equal to the first, the exact order is MAML with one inner step."""
    method = PerFedAvg(steps=3, inner_lr=0.1, outer_lr=0.05, order="exact")
    f, w = LoopObjective(Task(tiny_network(), FEDERATION.x)), tiny_network().init(0).double()
    (drawn,) = taken(method)
    batches = tuple(drawn[i - 2] if i % 4 == 2 else b for i, b in enumerate(drawn))
    upload, _ = method.client(f, w, (), batches, round=NOW)
    expected, loss = w, module_loss(tiny_module, w)
    for s in range(0, 12, 4):
        expected = expected - 0.05 * maml(loss, expected, 0.1, (batches[s],), batches[s + 1])
    close(upload, expected, 1e-9)


def test_exact_meta_gradient_of_the_plain_network_is_autograd_through_a_module(tiny_module: ModuleOf) -> None:
    """The same recursion as CAFeMe's, on the network without gates and against a module that shares no code."""
    method = CAFeMe(steps=5, outer_batches=3, inner_lr=0.1, order="exact")
    f, w = LoopObjective(Task(tiny_network(), FEDERATION.x)), tiny_network().init(0).double()
    inner, (outer,) = taken(method)
    _, state = method.client(f, w, Adam(0.0).init(w), inner, (outer,), round=NOW)
    close(state.first / 0.1, maml(module_loss(tiny_module, w), w, 0.1, inner, outer), 1e-9)


def test_per_fedavgs_central_difference_converges_to_the_exact_product() -> None:
    """Away from kinks (of ReLU and pooling) the error falls with the square of delta; across one it does not."""
    f, w = LoopObjective(Task(tiny_network(), FEDERATION.x)), tiny_network().init(2).double()
    (drawn,) = taken(PerFedAvg())
    v = f.grad(w, drawn[1])
    exact = PerFedAvg(order="exact").hessian_times(v, f, w, drawn[2])
    coarse, middle, fine = (
        (PerFedAvg(delta=delta).hessian_times(v, f, w, drawn[2]) - exact).norm().item() / exact.norm().item()
        for delta in (1e-3, 1e-4, 1e-5)
    )
    assert coarse < 1e-3 and middle < 1e-4 and fine < 1e-6
    assert middle == pytest.approx(coarse / 100, rel=0.1) and fine == pytest.approx(middle / 100, rel=0.1)
