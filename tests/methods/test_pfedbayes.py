"""pFedBayes: an independent implementation with `torch.optim.Adam`, its special cases, and the stateless switch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from pflbench import names, noise
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.methods import gaussian as g
from pflbench.methods.base import Batch, Draw, Round
from pflbench.methods.gaussian import Gaussian
from pflbench.methods.pfedbayes import Client, PFedBayes
from pflbench.models.mlp import perceptron
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import CLASSES, SHAPE, SIZES, tiny_federation, tiny_spec

WIDTH = 6
NETWORK = perceptron(SHAPE, CLASSES, hidden=(WIDTH,))
PARAMS = NETWORK.layout.size
FEDERATION = tiny_federation(0)
F_ = LoopObjective(Task(NETWORK, FEDERATION.x))
ROWS = torch.from_numpy(FEDERATION.support[3])
LABELS = torch.from_numpy(FEDERATION.labels)[ROWS]
EXECUTIONS = ["loop", "vectorized"]
STATELESS: type[PFedBayes] = names.load("pfedvem/variants/pfedvem.py:Stateless")
KINDS = pytest.mark.parametrize("kind", [PFedBayes, STATELESS])


class Initial:
    """An `Initializer` in float64."""

    classes, width = 3, 0

    part = staticmethod(NETWORK.layout.part)

    def __call__(self, k: int = 0) -> Tensor:
        return NETWORK.init(0, k).double()

    def last(self, layers: int) -> slice:
        return NETWORK.layout.last(layers)

    def entries(self, kind: Any) -> Tensor:
        raise NotImplementedError

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError


def start(method: PFedBayes) -> tuple[Gaussian, Client]:
    server = method.init(Initial(), 6)
    return server, method.init_client(server, Initial())


def now(index: int) -> Round:
    return Round(index, torch.tensor(noise.key(0, 3, index)))


def take_part(method: PFedBayes, server: Gaussian, state: Client, index: int = 0) -> tuple[Gaussian, Client]:
    with torch.no_grad():
        return method.client(F_, server, state, (Batch(ROWS, LABELS),), round=now(index))


def close(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def near(a: Gaussian, b: Gaussian, tolerance: float = 1e-10) -> None:
    close(a.mean, b.mean, tolerance)
    close(a.prescale, b.prescale, tolerance)


def moved(x: Gaussian) -> Gaussian:
    return Gaussian(*(v + 0.1 * noise.normal(torch.tensor(i), (), (PARAMS,), v.dtype) for i, v in enumerate(x)))


# One participation, written once more with autograd and `torch.optim`.


class Slow:
    """One client over several participations."""

    def __init__(self, method: PFedBayes, server: Gaussian):
        self.method = method
        self.q = [x.clone().requires_grad_() for x in server]
        self.p = [x.clone().requires_grad_() for x in server]
        self.optimizers = [torch.optim.Adam(x, lr=method.lr) for x in (self.q, self.p)]

    def take_part(self, server: Gaussian, index: int) -> None:
        with torch.no_grad():
            for mine, received in zip(self.p, server, strict=True):
                mine.copy_(received)
        for i in range(self.method.steps):
            eps = now(index).noise("weights", i, shape=(PARAMS,), dtype=torch.float64)
            m, s = self.q[0], F.softplus(self.q[1])
            nll = F.cross_entropy(forward(m + s * eps), LABELS, reduction="sum")
            self.descend(0, nll + self.divergence())
            self.descend(1, self.divergence())

    def divergence(self) -> Tensor:
        q, p = (Normal(mean, F.softplus(prescale)) for mean, prescale in (self.q, self.p))
        return self.method.lam * kl_divergence(q, p).sum()

    def descend(self, which: int, loss: Tensor) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        self.optimizers[which].step()


def forward(w: Tensor) -> Tensor:
    pieces = w.split([64 * WIDTH, WIDTH, WIDTH * CLASSES, CLASSES])
    h = F.linear(FEDERATION.x[ROWS].double().flatten(1) / 255, pieces[0].view(WIDTH, 64), pieces[1]).relu()
    return F.linear(h, pieces[2].view(CLASSES, WIDTH), pieces[3])


@pytest.mark.parametrize("lam", [1.0, 10.0])
def test_participations_are_those_of_a_plain_implementation(lam: float) -> None:
    method = PFedBayes(steps=4, lr=0.01, lam=lam, scale=0.1)
    server, state = start(method)
    plain = Slow(method, server)
    for index, received in enumerate((server, moved(server), server)):
        sent, state = take_part(method, received, state, index)
        plain.take_part(received, index)
        near(sent, Gaussian(*(x.detach() for x in plain.p)))
        near(state.q, Gaussian(*(x.detach() for x in plain.q)))
        assert (sent.mean - received.mean).norm() > 1e-2


def test_a_clients_state_is_ten_vectors() -> None:
    _, state = start(PFedBayes())
    vectors = [*state.q, *(x for kept in state[1:] for one in kept for x in (one.first, one.second))]
    assert [tuple(x.shape) for x in vectors] == [(PARAMS,)] * 10
    _, after = take_part(PFedBayes(steps=3), *start(PFedBayes()))
    assert [one.updates.item() for kept in after[1:] for one in kept] == [3] * 4


def test_everything_starts_from_the_seeds_model_with_one_spread() -> None:
    server, state = start(PFedBayes(scale=0.3))
    assert torch.equal(server.mean, Initial()()) and state.q is server
    close(server.std, torch.full((PARAMS,), 0.3, dtype=torch.float64))


# Special cases.


def test_the_first_step_on_q_does_not_feel_p() -> None:
    """q = p: the divergence has gradient 0."""
    server, state = start(PFedBayes())
    near(*(take_part(PFedBayes(steps=1, lam=lam), server, state)[1].q for lam in (0.0, 100.0)))


def test_a_large_lam_pulls_q_and_p_together() -> None:
    method = PFedBayes(steps=200, lr=0.01, lam=1e9, scale=0.1)
    server, state = start(method)
    away = state._replace(q=moved(server))
    _, after = take_part(method, server, away)
    sent, _ = take_part(method, server, away)
    before = g.divergence(away.q.mean, away.q.std, server.mean, server.std)
    assert g.divergence(after.q.mean, after.q.std, sent.mean, sent.std) < 1e-3 * before
    loose, _ = take_part(replace(method, lam=0.0), server, away)
    near(loose, server, 0)


def spec(rounds: int = 3) -> RunSpec:
    scoring = Scoring(
        clients="training", stages=("personalized", "global"), average="examples", moment="before-aggregation"
    )
    changes = {"batches": "reshuffled", "weights": "examples", "arrival": 0.5, "scoring": scoring}
    return tiny_spec(0, cohort=len(SIZES) - 2, rounds=rounds).model_copy(update=changes)


def run(method: PFedBayes, execution: Any = "loop", rounds: int = 3) -> RunOutcome:
    (outcome,) = Simulation([spec(rounds)], [FEDERATION], method, NETWORK, Setup(execution=execution)).run()
    assert outcome.failure is None, outcome.failure
    return outcome


def same(a: RunOutcome, b: RunOutcome, tolerance: float = 1e-9) -> None:
    near(a.server, b.server, tolerance)
    for x, y in zip(sorted(a.scores), sorted(b.scores), strict=True):
        assert x[:4] == y[:4] and x.count == y.count and x.loss_sum == pytest.approx(y.loss_sum, rel=tolerance)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("still", [{"steps": 0}, {"lam": 0.0}], ids=["no steps", "lam 0"])
def test_the_global_model_never_changes(still: dict[str, Any], execution: Any) -> None:
    method = PFedBayes(**{"steps": 2} | still)
    near(run(method, execution).server, start(method)[0], 1e-12)


@KINDS
def test_loop_and_stacks_agree(kind: type[PFedBayes]) -> None:
    looped, stacked = (run(kind(steps=3, lr=0.01), e) for e in EXECUTIONS)
    same(looped, stacked)
    assert {s.stage for s in looped.scores} == {"personalized", "global"}


@KINDS
def test_it_learns(kind: type[PFedBayes]) -> None:
    def loss(rounds: int) -> dict[str, float]:
        scores = run(kind(steps=5, lr=0.01, scale=0.1), rounds=rounds).scores
        return {x: sum(s.loss_sum for s in scores if s.stage == x) for x in ("personalized", "global")}

    before, after = loss(1), loss(8)
    assert all(after[stage] < 0.9 * before[stage] for stage in after)


def test_models_are_the_two_means() -> None:
    method = PFedBayes(steps=2)
    server, fresh = start(method)
    sent, state = take_part(method, server, fresh)
    assert method.deploy(F_, server, ()) is server.mean and method.personal_draws() == ()
    assert (
        method.personal_model(F_, server, state, round=now(0))
        is method.personal_model(None, None, state, round=Round(0), upload=sent)
        is state.q.mean
    )


# Without memory.


def test_a_client_without_memory_starts_from_what_it_receives() -> None:
    method, kept = STATELESS(steps=3, lr=0.01), PFedBayes(steps=3, lr=0.01)
    server, fresh = start(method)
    sent, used = take_part(method, server, fresh)
    later = moved(server)
    for ours, theirs in zip(take_part(method, later, used, 1), take_part(method, later, fresh, 1), strict=True):
        near(ours, theirs, 0)
    p, state = take_part(kept, server, start(kept)[1])
    near(p, sent, 0)
    near(state.q, used, 0)
    assert method.personal_model(F_, server, used, round=now(0)) is used.mean


@dataclass(frozen=True)
class Full(STATELESS):  # type: ignore[misc,valid-type]
    """Everyone trains, read or not."""

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (Draw(whole=True),)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_without_memory_those_whose_result_nobody_reads_need_not_train(execution: Any) -> None:
    short, full = (run(kind(steps=3, lr=0.01), execution) for kind in (STATELESS, Full))
    same(short, full, 1e-12)
