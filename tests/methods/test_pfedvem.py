"""pFedVEM: the sheet's numbers, an independent implementation, the guard, the ablations, and the shortcut."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from pflbench import names, noise
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods import gaussian as g
from pflbench.methods.base import Batch, Draw, Round
from pflbench.methods.pfedvem import FLOOR, Client, PFedVEM, Upload
from pflbench.models.mlp import perceptron
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import CLASSES, SHAPE, SIZES, tiny_federation, tiny_network, tiny_spec

WIDTH = 6
NETWORK = perceptron(SHAPE, CLASSES, hidden=(WIDTH,))
BASE, HEAD = NETWORK.layout.part("base"), NETWORK.layout.part("head")
D = CLASSES * WIDTH + CLASSES
FEDERATION = tiny_federation(0)
F_ = LoopObjective(Task(NETWORK, FEDERATION.x))
EXECUTIONS = ["loop", "vectorized"]
CONFIDENCES = ["full", "uncertainty", "deviation", "deviation-prior"]
"""The last one is a variant."""
SMALL = {"head_steps": 4, "base_epochs": 2, "base_lr": 0.01, "samples": 3}


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
        return noise.normal(torch.tensor(noise.key(0, "initial")), name, shape, torch.float64)


def made(confidence: str, **options: Any) -> PFedVEM:
    """pFedVEM, or its variant with the deviation in the prior, too."""
    if confidence != "deviation-prior":
        return PFedVEM(confidence=confidence, **options)  # type: ignore[arg-type]
    method: PFedVEM = names.load("pfedvem/variants/pfedvem.py:DeviationPrior")(**options)
    return method


def start(method: PFedVEM) -> tuple[Tensor, Client]:
    server = method.init(Initial(), 6)
    return server, method.init_client(server, Initial())


def batch(rows: Any) -> Batch:
    rows = torch.as_tensor(rows)
    return Batch(rows, torch.from_numpy(FEDERATION.labels)[rows])


SUPPORT = torch.from_numpy(FEDERATION.support[3])
WHOLE = batch(SUPPORT)
BATCHES = tuple(batch(rows) for rows in (*SUPPORT.split(5), *SUPPORT.flip(0).split(5)))
NOW = Round(0, torch.tensor(noise.key(0, 3, 0)))


def take_part(method: PFedVEM, server: Tensor, state: Client, round: Round = NOW) -> tuple[Upload, Any]:
    with torch.no_grad():
        return method.client(F_, server, state, (WHOLE,), BATCHES, round=round)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def prescale(stds: Tensor) -> Tensor:
    """The inverse of softplus."""
    return stds + torch.log(-torch.expm1(-stds))


def spread(*stds: float) -> Tensor:
    return prescale(numbers(*stds))


# Gaussians.


def test_softplus_and_its_inverse() -> None:
    assert spread(1.0).item() == pytest.approx(0.5413248546, abs=1e-10)
    assert spread(math.sqrt(0.1), 0.1).tolist() == pytest.approx([-0.989015, -2.252168], abs=1e-6)
    x = numbers(-700, -40, -16, -1, 0, 1, 25, 800)
    close(g.Gaussian(x, x).std, numbers(*[math.log1p(math.exp(v)) if v < 100 else v for v in x.tolist()]), 1e-15)
    for std in (0.5, 2.0, 25.0):
        close(g.gaussian(x, std).std, torch.full_like(x, std), 1e-12)
    assert g.Gaussian(x, torch.tensor(-80.0)).std > 0  # in float32


def test_divergence_is_the_sheets_number_and_torchs() -> None:
    close(g.divergence(numbers(0.5), numbers(0.8), numbers(0.0), numbers(1.2)[0]), numbers(0.2144928859)[0])
    m, s, a, r = numbers(0.3, -1, 2), numbers(0.1, 2, 0.7), numbers(1, 0, 2), numbers(0.5, 1.5, 0.01)
    close(g.divergence(m, s, a, r), kl_divergence(Normal(m, s), Normal(a, r)).sum())
    assert g.divergence(m, s, m, s) == 0


def test_gradients_of_the_divergence_are_autograds() -> None:
    m, s, a, r = numbers(0.3, -1, 2), numbers(0.1, 2, 0.7), numbers(1, 0, 2), numbers(0.5, 1.5, 0.01)
    leaves = [x.requires_grad_() for x in (m.clone(), prescale(s), a.clone(), prescale(r))]
    kl = kl_divergence(Normal(leaves[0], F.softplus(leaves[1])), Normal(leaves[2], F.softplus(leaves[3]))).sum()
    expected = torch.autograd.grad(kl, leaves)
    q, p = g.Gaussian(m, prescale(s)), g.Gaussian(a, prescale(r))
    ours = [*g.divergence_by_first(q, q.std, a, r), *g.divergence_by_second(m, s, p, r)]
    for mine, theirs in zip(ours, expected, strict=True):
        close(mine, theirs)


def test_a_divergence_of_a_gaussian_from_itself_has_gradient_0() -> None:
    """Exactly: Adam makes a step of rounding, in a direction of its own in loop and stack."""
    q = g.Gaussian(torch.linspace(-3, 3, 99), torch.linspace(-5, 5, 99))
    for mine in [*g.divergence_by_first(q, q.std, q.mean, q.std), *g.divergence_by_second(q.mean, q.std, q, q.std)]:
        assert not mine.any()


# The confidence, and the server.


@pytest.mark.parametrize(
    ("confidence", "variance", "weight"),
    [("full", 7, 7), ("uncertainty", 2.5, 2.5), ("deviation", 7, 4.5), ("deviation-prior", 4.5, 4.5)],
)
def test_confidence_is_of_the_kept_posterior_and_the_new_mean(confidence: Any, variance: float, weight: float) -> None:
    """By deviation alone, the prior keeps both terms, and the weights have one, or the prior has that one, too."""
    found = made(confidence).prior(*numbers(5, 9, 1), 2)
    close(torch.stack(found), numbers(variance, 1 / weight))


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("scale", [1.0, 0.1**0.5, 0.1])
def test_the_first_rounds_variance_is_the_initial_one(confidence: Any, scale: float) -> None:
    method = made(confidence, scale=scale, **SMALL)
    server, fresh = start(method)
    trace, deviation = fresh.q.std.square().sum(), (fresh.q.mean - server[HEAD]).square().sum()
    close(method.prior(trace, deviation, fresh.tau, D)[0], numbers(scale**2)[0])
    sent, state = take_part(method, server, fresh)
    close(torch.stack([sent.tau, state.tau]), numbers(scale**-2, scale**-2), 1e-9)


def test_deviation_alone_has_a_floor_once_a_client_took_part() -> None:
    _, tau = PFedVEM(confidence="deviation").prior(*numbers(5, 0, 1), 2)
    assert 1 / tau.item() == pytest.approx(FLOOR) and FLOOR == 1e-8


def test_deviation_alone_stays_finite() -> None:
    """In the weights. With the deviation as the prior's variance, too, this run comes to 1e9."""
    found = {c: run(made(c, head_lr=0.01, **SMALL), rounds=12) for c in CONFIDENCES[2:]}
    assert found["deviation"].server.abs().max() < 100 and sum(recorded(found["deviation"], "guards")) == 0
    assert found["deviation-prior"].server.abs().max() > 1e6


def test_the_deviation_in_the_prior_changes_the_prior_alone() -> None:
    """A first local update is that of both terms; after it tau is that of the deviation, and the head another."""
    methods = {c: made(c, **SMALL) for c in CONFIDENCES}
    server, fresh = start(methods["full"])
    (both, _), (sent, state) = (take_part(methods[c], server, fresh) for c in ("full", "deviation-prior"))
    assert torch.equal(both.mu, sent.mu) and torch.equal(both.base, sent.base) and both.tau == sent.tau
    (weights, _), (prior, _) = (take_part(methods[c], server, state) for c in ("deviation", "deviation-prior"))
    assert weights.tau == prior.tau and not torch.equal(weights.mu, prior.mu)


def test_the_server_weighs_heads_by_confidence_and_bases_by_examples() -> None:
    uploads = Upload(base=numbers(0, 4)[:, None], mu=numbers(0, 4)[:, None], tau=numbers(1, 3))
    close(PFedVEM().server(numbers(9, 9), uploads, numbers(100, 300) / 400, NOW), numbers(3, 3))
    uploads = Upload(base=numbers(0, 4)[:, None], mu=numbers(0, 4)[:, None], tau=numbers(3, 1))
    close(PFedVEM().server(numbers(9, 9), uploads, numbers(100, 300) / 400, NOW), numbers(3, 1))


def test_the_head_starts_from_normal_numbers_and_the_base_from_the_common_model() -> None:
    network = perceptron(SHAPE, 10, hidden=(300,))
    spec = tiny_spec(rounds=1).model_copy(update={"batches": "reshuffled"})
    idle = PFedVEM(head_lr=0.0, base_lr=0.0, **{k: v for k, v in SMALL.items() if k != "base_lr"})
    (outcome,) = Simulation([spec], [FEDERATION], idle, network).run()
    base, head = (network.layout.part(name) for name in ("base", "head"))
    close(outcome.server[base], network.init(0).double()[base])
    assert abs(outcome.server[head].mean()) < 0.1 and outcome.server[head].std() == pytest.approx(1, abs=0.05)


# One participation, written once more with autograd and `torch.optim`.


def features(theta: Tensor, rows: Tensor) -> Tensor:
    x = FEDERATION.x[rows].double().flatten(1) / 255
    return F.linear(x, theta[: 64 * WIDTH].view(WIDTH, 64), theta[64 * WIDTH :]).relu()


def cross_entropy(h: Tensor, z: Tensor, labels: Tensor, reduction: str) -> Tensor:
    return F.cross_entropy(
        F.linear(z, h[: CLASSES * WIDTH].view(CLASSES, WIDTH), h[CLASSES * WIDTH :]), labels, reduction=reduction
    )


def slow(method: PFedVEM, server: Tensor, state: Client) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """tau, the posterior's mean and prescale, and the base, after one participation."""
    w = server[HEAD]
    mu, pi = (x.clone().requires_grad_() for x in state.q)
    variance = (F.softplus(pi).square().sum() + (mu - w).square().sum()).detach() / D
    rho = variance.sqrt()
    optimizer = torch.optim.SGD([mu, pi], lr=method.head_lr, momentum=0.9)
    z = features(server[BASE], WHOLE.rows)
    for i in range(method.head_steps):
        eps = NOW.noise("head", i, shape=(method.samples, D), dtype=torch.float64)
        heads = mu + F.softplus(pi) * eps
        loss = sum(cross_entropy(h, z, WHOLE.labels, "sum") for h in heads) / method.samples
        loss = loss + kl_divergence(Normal(mu, F.softplus(pi)), Normal(w, rho)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mu, pi = mu.detach(), pi.detach()
    theta = server[BASE].clone().requires_grad_()
    optimizer = torch.optim.SGD([theta], lr=method.base_lr, momentum=0.9)
    for i, b in enumerate(BATCHES):
        eps = NOW.noise("base", i, shape=(method.samples, D), dtype=torch.float64)
        losses = [cross_entropy(h, features(theta, b.rows), b.labels, "mean") for h in mu + F.softplus(pi) * eps]
        optimizer.zero_grad()
        (sum(losses) / method.samples).backward()
        optimizer.step()
    return 1 / variance, mu, pi, theta.detach()


def test_a_participation_is_that_of_a_plain_implementation() -> None:
    method = PFedVEM(head_lr=0.01, **SMALL)
    server, fresh = start(method)
    _, state = take_part(method, server, fresh)
    other = server + 0.1 * noise.normal(torch.tensor(1), ("moved",), (len(server),), torch.float64)
    for w, own in ((server, fresh), (other, state)):
        tau, mu, pi, theta = slow(method, w, own)
        sent, after = take_part(method, w, own)
        assert (theta - w[BASE]).norm() > 1e-3 and (mu - own.q.mean).norm() > 1e-2
        for ours, theirs in zip((sent.tau, sent.mu, sent.base), (tau, mu, theta), strict=True):
            close(ours, theirs)
        close(after.q.mean, mu)
        close(after.q.prescale, pi)
        assert after.guards == 0


# Whole runs.


def spec(rounds: int = 3, seed: int = 0) -> RunSpec:
    scoring = Scoring(
        clients="training", stages=("personalized", "global"), average="examples", moment="before-aggregation"
    )
    changes = {"batches": "reshuffled", "weights": "examples", "arrival": 0.5, "scoring": scoring}
    return tiny_spec(seed, cohort=len(SIZES) - 2, rounds=rounds).model_copy(update=changes)


def run(method: PFedVEM, execution: Any = "loop", rounds: int = 3) -> RunOutcome:
    (outcome,) = Simulation([spec(rounds)], [FEDERATION], method, NETWORK, Setup(execution=execution)).run()
    assert outcome.failure is None, outcome.failure
    return outcome


def recorded(outcome: RunOutcome, name: str) -> list[float]:
    return [m.value for m in outcome.metrics if m.name == name]


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_loop_and_stacks_agree(confidence: Any) -> None:
    method = made(confidence, head_lr=1e-3, batch=4, **SMALL)
    looped, stacked = (run(method, execution) for execution in EXECUTIONS)
    close(looped.server, stacked.server, 1e-9)
    for a, b in zip(sorted(looped.scores), sorted(stacked.scores), strict=True):
        assert a[:4] == b[:4] and a.count == b.count and a.loss_sum == pytest.approx(b.loss_sum, rel=1e-9)
    assert {s.stage for s in looped.scores} == {"personalized", "global"}
    for a, b in zip(looped.metrics, stacked.metrics, strict=True):
        assert a[:3] == b[:3] and a.value == pytest.approx(b.value, rel=1e-9)


def test_the_ablations_are_other_methods() -> None:
    found = [run(made(c, **SMALL)).server for c in CONFIDENCES]
    assert all((a - b).norm() > 1e-6 for a, b in combinations(found, 2))


@dataclass(frozen=True)
class Full(PFedVEM):
    """Every base is trained, read or not."""

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return tuple(replace(draw, for_upload=False) for draw in super().draws(round))


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_bases_that_nobody_reads_need_not_be_trained(execution: Any) -> None:
    short, full = (run(kind(head_lr=1e-3, **SMALL), execution) for kind in (PFedVEM, Full))
    close(short.server, full.server, 1e-12)
    for a, b in zip(sorted(short.scores), sorted(full.scores), strict=True):
        assert a[:4] == b[:4] and a.loss_sum == pytest.approx(b.loss_sum, rel=1e-12)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_learning_rates_of_0_change_nothing(execution: Any) -> None:
    method = PFedVEM(head_lr=0.0, **SMALL | {"base_lr": 0.0})
    close(run(method, execution, rounds=1).server, start(method)[0], 1e-12)


def test_it_learns() -> None:
    def loss(rounds: int) -> dict[str, float]:
        scores = run(PFedVEM(head_lr=0.01, **SMALL), rounds=rounds).scores
        stages = {s.stage for s in scores}
        return {x: sum(s.loss_sum for s in scores if s.stage == x) for x in stages}

    before, after = loss(1), loss(6)
    assert all(after[stage] < 0.9 * before[stage] for stage in after)


def test_personal_models_are_the_trained_base_with_the_posteriors_mean() -> None:
    method = PFedVEM(**SMALL)
    server, fresh = start(method)
    sent, state = take_part(method, server, fresh)
    now = method.personal_model(None, None, state, round=Round(0), upload=sent)
    close(now, torch.cat([sent.base, state.q.mean]), 0)
    assert not torch.equal(sent.base, server[BASE]) and method.personal_draws() == ()
    later = method.personal_model(F_, server, state, round=NOW)
    close(later, torch.cat([server[BASE], state.q.mean]), 0)
    assert method.deploy(F_, server, ()) is server


def test_a_record_tells_what_the_confidence_was_made_of() -> None:
    outcome = run(PFedVEM(**SMALL))
    tau, trace, deviation = (recorded(outcome, name) for name in ("tau", "trace", "deviation"))
    assert len(tau) == len(SIZES) - 2
    assert tau == pytest.approx([D / (t + x) for t, x in zip(trace, deviation, strict=True)])
    assert min(deviation) > 0 and recorded(outcome, "guards") == [0] * len(tau)


# The guard.


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_head_that_overflows_is_restored_and_counted(execution: Any) -> None:
    method = PFedVEM(head_lr=1e300, **SMALL)
    server, fresh = start(method)
    outcome = run(method, execution)
    close(outcome.server, server, 1e-12)  # without a head no base is trained either
    assert recorded(outcome, "guards") == [3] * (len(SIZES) - 2)
    assert all(math.isfinite(s.loss_sum) for s in outcome.scores)
    sent, state = take_part(method, server, fresh)
    assert torch.equal(sent.base, server[BASE]) and torch.equal(sent.mu, fresh.q.mean)
    assert torch.equal(state.q.prescale, fresh.q.prescale) and state.guards == 1


def test_a_base_that_overflows_is_restored_and_counted_and_the_head_stays() -> None:
    method = PFedVEM(**SMALL | {"base_lr": 1e308})
    server, fresh = start(method)
    sent, state = take_part(method, server, fresh)
    assert torch.equal(sent.base, server[BASE]) and state.guards == 1
    assert torch.isfinite(sent.mu).all() and not torch.equal(sent.mu, fresh.q.mean)
    assert take_part(method, server, state)[1].guards == 2


def test_a_loss_that_overflows_with_finite_parameters_restores_the_head() -> None:
    server, fresh = start(PFedVEM())
    method = PFedVEM(head_lr=0.0, head_steps=2)
    far = g.Gaussian(fresh.q.mean + 1e160, fresh.q.prescale)
    for posterior, expected in ((fresh.q, True), (far, False)):
        z = F_.features(server, WHOLE)
        _, sound = method.fit_posterior(posterior, server[HEAD], numbers(1)[0], z, WHOLE, NOW)
        assert bool(sound) is expected


def test_a_head_of_several_layers_is_refused() -> None:
    with pytest.raises(UsageError, match="one linear layer"):
        PFedVEM().network(tiny_network())
