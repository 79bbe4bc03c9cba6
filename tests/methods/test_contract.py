"""Every built-in method passes the contract; each check fails for a method that breaks it, and for no other reason."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from one_round import one_round
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from variants import EXAMPLE, FEATURES, METHODS, VARIANTS

from pflbench import names
from pflbench.engine.batches import support_streams
from pflbench.engine.client_map import ClientMap
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Draw, Method, Objective, Round, steps
from pflbench.methods.fedavg import FedAvg
from pflbench.models.module import wrap
from pflbench.optim import Adam
from pflbench.testing import (
    CHECKS,
    CLASSES,
    SHAPE,
    Case,
    Finding,
    contract,
    tiny_features,
    tiny_federation,
    tiny_network,
    tiny_spec,
)
from pflbench.testing.checks import DoesNotApply

OF_VARIANTS = ("purity", "looped = stacked")


@functools.lru_cache(maxsize=1)
def case(name: str) -> Case:
    """One method for all of its checks."""
    reference, options = METHODS[name]
    method = names.resolve("methods", reference)(**options)
    return Case(method, tiny_features() if name in FEATURES else None)


@pytest.mark.parametrize(
    ("name", "check"), [(n, c) for n in METHODS for c in CHECKS if n not in VARIANTS or c in OF_VARIANTS]
)
def test_contract(name: str, check: str) -> None:
    CHECKS[check](case(name))


def normalized(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, classes),
    )  # fmt: skip


UNTRACKED = ("fedcp", "fednova (example)", "fo-maml", "gpfl", "per-fedavg-split", "pfedbayes")
"""Methods that refuse running statistics."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in METHODS if n not in VARIANTS and n != "cafeme" and n not in UNTRACKED])
def test_contract_with_running_statistics(name: str) -> None:
    """Two checks; all eight take eight minutes."""
    reference, options = METHODS[name]
    network = wrap(normalized, SHAPE, CLASSES, "nets.py:normalized")
    of_name = Case(names.resolve("methods", reference)(**options), network)
    for check in OF_VARIANTS:
        CHECKS[check](of_name)


@pytest.mark.parametrize("name", METHODS)
def test_training_moves_running_statistics(name: str) -> None:
    """Of any method, also of one that has a loop of its own: else it would be scored by the initial ones."""
    reference, options = METHODS[name]
    network = wrap(normalized, SHAPE, CLASSES, "nets.py:normalized")
    try:
        of_name = Case(names.resolve("methods", reference)(**options), network)
    except UsageError:
        return
    where = network.layout.entries("statistic").nonzero().flatten()
    simulation = of_name.simulation([of_name.spec(cohort=6)])
    (run,) = simulation.runs
    before = run.server, *(run.state(client) for client in range(8))
    for _ in range(2 if len(of_name.kinds) == 1 else 20):  # FedDBE trains from the second on
        simulation.step()
    after = run.server, *(run.state(client) for client in range(8))
    pairs = zip(pytree.tree_leaves(before), pytree.tree_leaves(after), strict=True)
    models = [(old, new) for old, new in pairs if old.ndim and old.shape[-1] > where.max()]
    assert any(not torch.allclose(old[..., where], new[..., where]) for old, new in models)


# Broken methods: FedAvg with one mistake each.


@dataclass(frozen=True)
class Local(FedAvg):
    epochs: int = 2
    lr: float = 0.01


class ServerInPlace(Local):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return server.copy_(uploads.mean(0))


class ClientInPlace(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        for b in taken[0]:
            server.sub_(self.lr * f.grad(server, b))
        return server.clone(), state


class DeploysInPlace(Local):
    def deploy(self, f: Objective, server: Tensor, support: Batches) -> Tensor:
        return server.mul_(0.5)


class DrawsFromTorch(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server + 1e-3 * torch.randn(len(server), dtype=server.dtype), state


class DrawsFromItsGenerator(Local):
    """No global generator moves."""

    generator: ClassVar[torch.Generator] = torch.Generator()

    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return uploads.mean(0) * torch.rand((), generator=self.generator)


class CountsCalls(Local):
    """The learning rate falls with each call, counted in the object."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        calls = vars(self).get("calls", 0) + 1
        object.__setattr__(self, "calls", calls)
        return steps(lambda w, b: w - self.lr / calls * f.grad(w, b), server, taken[0]), state


class Moody(Local):
    calls: ClassVar[list[int]] = []

    def draws(self, round: Round) -> tuple[Draw, ...]:
        self.calls.append(1)
        return (Draw(steps=len(self.calls)),)


class Widens(Local):
    """A mean with float64 weights is float64: no difference in double precision."""

    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return (n[:, None] * uploads).sum(0)


class MixesTypes(Local):
    """PyTorch refuses the product."""

    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return n @ uploads


class StartsWithoutState(Local):
    """A client that is new in a later round has another state than those that trained before."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return super().client(f, server, (), *taken, round=round)[0], server


class ReturnsNothing(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        steps(lambda w, b: w - self.lr * f.grad(w, b), server, taken[0])


class SendsHalfAModel(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server[: len(server) // 2], state


class DeploysTwice(Local):
    def deploy(self, f: Objective, server: Tensor, support: Batches) -> Tensor:
        return torch.cat([server, server])


class Undefined(Local):
    """Divides by the distance to the model that it starts from, which is 0."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server / (server - server).norm(), state


class CallsBackward(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        for b in taken[0]:
            f(server, b).backward()
        return server, state


IMPURE = [
    *(ServerInPlace, ClientInPlace, DeploysInPlace, DrawsFromTorch, DrawsFromItsGenerator, CountsCalls, Moody),
    *(Widens, MixesTypes, StartsWithoutState, ReturnsNothing, SendsHalfAModel, DeploysTwice, Undefined, CallsBackward),
]


class CountsRows(Local):
    """Reads the length of the minibatch, padding included."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return steps(lambda w, b: w - self.lr * b.rows.shape[0] * f.grad(w, b), server, taken[0]), state


class CountsSteps(Local):
    """Reads the number of steps, padded ones included."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, _ = super().client(f, server, state, *taken, round=round)
        return w + 0.1 * (w - server) / len(taken[0]), state


class PlainLoop(Local):
    """Adam moves on in a padded step, whose gradient is 0."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, moments = server, Adam(0.0).init(server)
        for b in taken[0]:
            w, moments = Adam(self.lr).update(w, f.grad(w, b), moments)
        return w, state


class ReversesRows(Local):
    """Rows meet the noise of other rows."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        def turned(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.flip(-1)

        taken = tuple(
            tuple(b._replace(rows=turned(b.rows), labels=turned(b.labels), mask=turned(b.mask)) for b in t)
            for t in taken
        )
        return super().client(f, server, state, *taken, round=round)


class Careless(Local):
    """Wrong in a stack by a millionth."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, _ = super().client(f, server, state, *taken, round=round)
        return (w if taken[0][0].mask is None else w * (1 + 1e-6)), state


class ReadsValues(Local):
    """Plain Python on a value cannot be stacked."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, _ = super().client(f, server, state, *taken, round=round)
        return (w if f(w, taken[0][0]).item() < 10 else server), state


class FirstComeFirstServed(Local):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return 0.9 * uploads[0] + 0.1 * uploads[1:].mean(0)


class StoresItsStart(Local):
    """The initial model is kept in the object, so that all seeds of a group are pulled to the last one's."""

    def init(self, new: Any, clients: int) -> Tensor:
        object.__setattr__(self, "start", new())
        return new()

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, _ = super().client(f, server, state, *taken, round=round)
        return w + 0.01 * (vars(self)["start"] - w), state


class HidesMomentum(Local):
    """The server's momentum is an attribute of its tensor, which no checkpoint stores."""

    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        moved = uploads.mean(0) - server + 0.5 * getattr(server, "momentum", torch.zeros_like(server))
        w = server + moved
        w.momentum = moved  # type: ignore[attr-defined]
        return w


class SaysInitial(Local):
    global_model = "initial"


class SaysEveryone(Local):
    """Personal models of training clients, as Ditto's, without `personal_of = "training"`."""

    def init_client(self, server: Tensor, new: Any) -> Tensor:
        return server

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, _ = super().client(f, server, (), *taken, round=round)
        return w, w

    def personal_model(self, f: Any, server: Tensor, state: Any, *batches: Batches, round: Round) -> Any:
        return state


class AddsAStage(Local):
    def personal_model(self, f: Any, server: Tensor, state: Any, *batches: Batches, round: Round) -> Any:
        return {"personalized": server, "mean": server}


class Climbs(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return steps(lambda w, b: w + self.lr * f.grad(w, b), server, taken[0]), state


class VisitsEveryone(Method):
    """The server has a model per training client, and each client trains all of them."""

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (Draw(epochs=2),)

    def init(self, new: Any, clients: int) -> Tensor:
        return new().repeat(clients, 1)

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return torch.stack([steps(lambda w, b: w - 0.01 * f.grad(w, b), w, taken[0]) for w in server]), state

    def deploy(self, f: Objective, server: Tensor, support: Batches) -> Tensor:
        return server.mean(0)


BROKEN = {
    **dict.fromkeys(IMPURE, "purity"),
    **dict.fromkeys((CountsRows, CountsSteps, PlainLoop, ReversesRows, Careless, ReadsValues), "looped = stacked"),
    FirstComeFirstServed: "exchangeable clients",
    StoresItsStart: "seeds alone = together",
    HidesMomentum: "state round-trips",
    **dict.fromkeys((SaysInitial, SaysEveryone, AddsAStage), "stages are as declared"),
    Climbs: "it learns",
    VisitsEveryone: "gradients do not grow",
}


def test_the_method_behind_the_broken_ones_passes() -> None:
    assert list(contract(Local())) == [Finding(check) for check in CHECKS]


@pytest.mark.parametrize(("broken", "check"), BROKEN.items(), ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_one_check_alone_fails_for_a_broken_method(broken: type[Method], check: str) -> None:
    failed = [finding.check for finding in contract(broken()) if finding.problem]
    assert failed == [check, "gradients do not grow"] if broken is ReadsValues else failed == [check]  # no stack at all


def test_every_check_has_a_broken_method() -> None:
    assert set(BROKEN.values()) == set(CHECKS)


def test_an_error_names_the_line_of_the_method() -> None:
    (finding,) = contract(MixesTypes())
    assert finding.problem and __file__ in finding.problem


def test_a_method_that_amplifies_rounding_passes_with_a_remark() -> None:
    """Steps of one size along the signs of the gradient, which rounding turns where the gradient is 0."""

    class Signs(Local):
        def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
            return steps(lambda w, b: w - self.lr * f.grad(w, b).sign(), server, taken[0]), state

    findings = list(contract(Signs()))
    assert len(findings) == len(CHECKS) and not any(finding.problem for finding in findings)
    assert any(finding.remark for finding in findings)


def test_a_check_without_subject_does_not_apply() -> None:
    class Silent(Method):
        def draws(self, round: Round) -> tuple[Draw, ...]:
            return (Draw(steps=1),)

        def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
            return (), state

        def server(self, server: Tensor, uploads: Any, n: Tensor, round: Round) -> Tensor:
            return server

    for check in ("exchangeable clients", "gradients do not grow"):
        with pytest.raises(DoesNotApply):
            CHECKS[check](Case(Silent()))


def test_the_checks_train_the_network_that_they_get() -> None:
    assert Case(Local(), tiny_features()).network.features is not None
    with pytest.raises(UsageError):
        next(contract(names.resolve("methods", "fedrod")(), network=tiny_network()))


def test_clients_are_new_in_later_rounds_of_the_checks() -> None:
    spec, training = tiny_spec(0, rounds=3), tiny_federation(0).training
    first, second = (set(sample_cohort(spec, training, index)) for index in (0, 1))
    assert second - first and second & first


def test_a_silent_fallback_to_the_loop_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientMap, "_stacks", ClientMap._loop)
    with pytest.raises(AssertionError):
        CHECKS["gradients do not grow"](Case(Local()))


# FedNova: a user's file.


def test_the_example_is_fedavg_where_all_make_the_same_number_of_steps() -> None:
    spec, federation = tiny_spec(clients=5, cohort=3, rounds=3), tiny_federation(0, sizes=(20,) * 5)
    fednova = names.resolve("methods", EXAMPLE)(epochs=2, lr=0.05)
    (ours,) = Simulation([spec], [federation], fednova, tiny_network()).run()
    (fedavg,) = Simulation([spec], [federation], FedAvg(epochs=2, lr=0.05), tiny_network()).run()
    torch.testing.assert_close(ours.server, fedavg.server, rtol=1e-12, atol=1e-12)


def test_the_example_counts_real_steps_only() -> None:
    """A short client padded to a long one's steps is normalized by its own number of them."""
    method, federation = names.resolve("methods", EXAMPLE)(), tiny_federation(0)
    for execution in ("loop", "vectorized"):
        results = one_round(method, execution)
        made = [2 * len(support_streams(federation, tiny_spec())[client].batches) for client in (6, 3)]
        assert [results[client][0].made.item() for client in (6, 3)] == made and made[0] < made[1]
