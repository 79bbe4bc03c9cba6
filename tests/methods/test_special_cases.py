"""Equalities between methods, given the same minibatches (each is promised in a method's docstring)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.simulate import simulate
from pflbench.methods.base import Batch, Batches, Method, Round
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.ditto import Ditto
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedrep import FedRep
from pflbench.methods.ifca import IFCA
from pflbench.methods.per_fedavg import PerFedAvg
from pflbench.models.network import Network
from pflbench.optim import adam_init
from pflbench.testing import tiny_federation, tiny_network, tiny_spec
from pflbench.vector import Parameter

NOW = Round(0)
FEDERATION = tiny_federation(0)
CLIENT = 3
ModuleOf = Callable[[Tensor], nn.Module]


def objective(network: Network | None = None) -> LoopObjective:
    return LoopObjective(Task(network or tiny_network(), FEDERATION.x))


def start(network: Network | None = None) -> Tensor:
    return (network or tiny_network()).init(0).double()


def batches(rows: Sequence[Any]) -> Batches:
    return tuple(Batch(torch.from_numpy(r), torch.from_numpy(FEDERATION.labels[r])) for r in rows)


def drawn(method: Method[Any, Any, Any]) -> list[Batches]:
    taken, _ = support_streams(FEDERATION, tiny_spec())[CLIENT].draw(method.takes(), 0)
    return [batches(rows) for rows in taken]


def sgd(f: LoopObjective, w: Tensor, taken: Batches, lr: float) -> Tensor:
    for b in taken:
        w = w - lr * f.grad(w, b)
    return w


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", ["hf", "first", "exact"])
def test_per_fedavg_without_inner_step_is_sgd_on_every_second_of_four(order: Any) -> None:
    method, f, w = PerFedAvg(steps=3, inner_lr=0.0, outer_lr=0.1, order=order), objective(), start()
    (taken,) = drawn(method)
    upload, _ = method.client(f, w, (), taken, round=NOW)
    close(upload, sgd(f, w, taken[1::4], 0.1))
    (fedavg, _) = FedAvg(lr=0.1).client(f, w, (), taken[1::4], round=NOW)
    close(upload, fedavg)


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_ifca_with_one_cluster_is_fedavg(weights: Any) -> None:
    spec = tiny_spec(rounds=3).model_copy(update={"weights": weights})
    (ifca,) = simulate([spec], [FEDERATION], IFCA(clusters=1, epochs=2, lr=0.05), tiny_network())
    (fedavg,) = simulate([spec], [FEDERATION], FedAvg(epochs=2, lr=0.05), tiny_network())
    close(ifca.server[0], fedavg.server)
    for a, b in zip(ifca.scores, fedavg.scores, strict=True):
        assert a[:6] == b[:6] and a.accuracy == b.accuracy and a.loss_sum == pytest.approx(b.loss_sum, rel=1e-12)


def test_ditto_without_pull_trains_its_personal_model_alone() -> None:
    method, f, w = Ditto(steps=4, personal_lr=0.1, lam=0.0), objective(), start()
    mine, shared = drawn(method)
    personal = start() + 0.1  # another place than the server's model
    state = method.init_client(w, _New())._replace(personal=personal)
    _, after = method.client(f, w, state, mine, shared, round=NOW)
    close(after.personal, sgd(f, personal, mine, 0.1))


def test_dittos_personal_model_never_touches_the_global_one() -> None:
    f, w = objective(), start()
    uploads = []
    for lam in (0.0, 5.0):
        method = Ditto(steps=3, lam=lam)
        uploads.append(method.client(f, w, method.init_client(w, _New()), *drawn(method), round=NOW)[0])
    assert torch.equal(*uploads)


class _New:
    """An initializer, for methods whose clients start from the server's state alone."""

    def __call__(self, k: int = 0) -> Tensor:
        return tiny_network().init(0, k).double()

    def part(self, name: str) -> slice:
        return tiny_network().layout.part(name)


def headless() -> Network:
    """The tiny network with everything in the base and a head of no entries."""
    plain = tiny_network()
    parameters = tuple(replace(p, name=f"base.{p.name}") for p in plain.parameters)

    def forward(ops: Any, p: dict[str, Tensor], x: Tensor, gate: Any) -> Tensor:
        return plain.forward(ops, {name.removeprefix("base."): value for name, value in p.items()}, x, gate)

    return Network((*parameters, Parameter("head.none", (0,))), forward, plain.shape, plain.classes)


def test_fedrep_without_a_head_is_fedavg() -> None:
    method = FedRep(head_steps=0, base_steps=4, base_lr=0.05, optimizer="sgd")
    f, w = objective(headless()), start()
    for_head, for_base = drawn(method)
    upload, _ = method.client(f, w, method.init_client(w, _New()), for_head, for_base, round=NOW)
    close(upload, FedAvg(lr=0.05).client(f, w, (), for_base, round=NOW)[0])


def test_fedrep_moves_one_part_at_a_time() -> None:
    f, w = objective(), start()
    for steps, moved, frozen in (((3, 0), "head", "base"), ((0, 3), "base", "head")):
        method = FedRep(head_steps=steps[0], base_steps=steps[1])
        upload, _ = method.client(f, w, method.init_client(w, _New()), *drawn(method), round=NOW)
        assert torch.equal(upload[f.part(frozen)], w[f.part(frozen)])
        assert not torch.equal(upload[f.part(moved)], w[f.part(moved)])


def test_fedavg_with_one_client_and_one_step_is_sgd(tiny_module: ModuleOf) -> None:
    federation = tiny_federation(0, sizes=(6, 6, 6))  # 5 support rows each: one minibatch
    spec = tiny_spec(clients=3, cohort=1, rounds=1)
    (outcome,) = simulate([spec], [federation], FedAvg(epochs=1, lr=0.1), tiny_network())
    rows = federation.support[int(federation.training.argmax())]
    module = tiny_module(start())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    F.cross_entropy(module(federation.x[rows].double() / 255), torch.from_numpy(federation.labels[rows])).backward()
    optimizer.step()
    close(outcome.server, flat(module))


def flat(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def test_cafeme_with_open_gates_is_first_order_maml(tiny_module: ModuleOf) -> None:
    """Gates of exactly 1: the modulator's last layer says 50 for every input, and sigmoid(50) is 1 in float64."""
    method = CAFeMe(steps=3, outer_batches=2, inner_lr=0.1, outer_lr=0.01)
    network = method.network(tiny_network())
    theta = start(network)
    views = network.layout.views([theta])  # they share theta's memory
    last = max(name for name in views if name.startswith("modulator.after"))
    layer = last.rsplit(".", 1)[0]
    views[f"{layer}.weight"].zero_()
    views[f"{layer}.bias"].fill_(50.0)
    n = tiny_network().layout.size
    assert (theta == 50).sum() == sum(network.gated) and torch.equal(theta[-n:], start())

    # First-order MAML on the base alone, over three participations with one Adam state.
    module = tiny_module(theta[-n:])
    meta = torch.optim.Adam(module.parameters(), lr=0.01)
    state, w = adam_init(theta), theta
    for _ in range(3):
        inner, (outer,) = drawn(method)
        w, state = method.client(objective(network), w, state, inner, (outer,), round=NOW)
        adapted = tiny_module(flat(module))
        optimizer = torch.optim.SGD(adapted.parameters(), lr=0.1)
        for b in (*inner, outer):
            adapted.zero_grad()
            F.cross_entropy(adapted(FEDERATION.x[b.rows].double() / 255), b.labels).backward()
            if b is not outer:
                optimizer.step()
        for mine, theirs in zip(module.parameters(), adapted.parameters(), strict=True):
            mine.grad = theirs.grad
        meta.step()
        moved = determined()
        torch.testing.assert_close(w[-n:][moved], flat(module)[moved], rtol=1e-9, atol=1e-9)
        assert torch.equal(w[:-n], theta[:-n])  # nothing flows through a gate that does not give


def determined() -> Tensor:
    """All but biases in front of a normalization, whose gradients are rounding that Adam blows up."""
    names = {p.name for p in tiny_network().parameters}
    keep = [
        torch.full((p.size,), f"{p.name.removesuffix('.bias')}.norm.scale" not in names)
        for p in tiny_network().parameters
    ]
    return torch.cat(keep)
