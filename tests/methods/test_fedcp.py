"""FedCP: two rounds against modules that autograd differentiates, FedPer where shares are 1, the policy, its noise."""

from __future__ import annotations

import math
from typing import Any

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
    D,
    client_of,
    close,
    data,
    features,
    parts,
    passes,
    spec,
    trained,
    weighted,
)
from torch import Tensor, nn

from pflbench import noise
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import Initial, arrived, sample_cohort
from pflbench.engine.simulate import Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Round
from pflbench.methods.fedcp import FedCP
from pflbench.methods.fedcp import mmd as discrepancy
from pflbench.methods.fedper import FedPer
from pflbench.models.ops import Ops, Stacked
from pflbench.models.policy import with_policy
from pflbench.testing import tiny_features

SHARED_OUT = with_policy(NETWORK)
NEW = Initial(SHARED_OUT, 0, torch.device("cpu"), torch.float64)
POLICY = SHARED_OUT.layout.part("policy")
BEGUN = FedCP().init(NEW, 3)
ONE = torch.ones((), dtype=torch.float64)


def policy_of(values: Tensor) -> nn.Sequential:
    """Linear, layer normalization, ReLU, with the parameters that lie so in the vector."""
    found = nn.Sequential(nn.Linear(D, 2 * D), nn.LayerNorm(2 * D), nn.ReLU()).double()
    nn.utils.vector_to_parameters(values, found.parameters())
    return found


def gaussians(a: Tensor, b: Tensor) -> Tensor:
    """The mean kernel over all pairs of rows, pair by pair."""
    total = 0 * ONE
    for one in a:
        for other in b:
            total = total + sum(torch.exp(-((one - other) ** 2).sum() / (2 * width)) for width in (10, 15, 20, 50))
    return total / (len(a) * len(b))


def mmd(a: Tensor, b: Tensor) -> Tensor:
    return gaussians(a, a) + gaussians(b, b) - 2 * gaussians(a, b)


def outputs(policy: nn.Module, f: Tensor, s: Tensor, own: Tensor, received: Tensor, added: Any = None) -> Tensor:
    """Logits of both heads on the features that the policy gives them."""
    z = torch.stack(policy(f * s / s.norm()).chunk(2, 1))
    if added is not None:
        z = z + added
    m = z.softmax(0)
    (a, b), (c, d) = parts(own), parts(received)
    return (m[0] * f) @ a.mT + b + (m[1] * f) @ c.mT + d


def drawn(client: int, index: int, step: int, rows: int) -> Tensor:
    """Two Gumbel numbers for each entry, whose difference is the logistic number that the minibatch's key draws."""
    key = noise.branch(torch.tensor(noise.key(0, client, index)), 0, step)
    u = noise.uniform(key, ("policy",), rows * D, torch.float64).view(rows, D)
    second = gumbels(rows, D)
    return torch.stack([second + u.log() - (1 - u).log(), second])


def gumbels(*shape: int) -> Tensor:
    return -torch.log(-torch.log(torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)))


@EXECUTIONS
@pytest.mark.parametrize(
    ("lam", "momentum", "decay", "arrival"),
    [(0.0, 0.0, 0.0, 1.0), (2.5, 0.0, 0.0, 0.6), (2.5, 0.5, 0.1, 1.0)],
    ids=["no distance", "lost uploads", "momentum and decay"],
)
def test_fedcp_is_its_loss(lam: float, momentum: float, decay: float, arrival: float, execution: Any) -> None:
    base, policy_values, received = START[BASE], BEGUN[POLICY], START[HEAD]
    heads, weights, lost = dict.fromkeys(TRAINING, START[HEAD]), NETWORK.layout.entries("weight"), 0
    for index in range(2):
        sent: dict[int, Tensor] = {}
        for client in TRAINING:
            policy = policy_of(policy_values.clone())
            phi, own = (x.clone().requires_grad_() for x in (base, heads[client]))
            s = parts(heads[client])[0].sum(0)
            by = torch.optim.SGD([phi, own, *policy.parameters()], RATE, momentum)
            for step, batch in enumerate(passes(client)):
                x, y = data(batch)
                f, before = features(phi, x), features(base, x)
                z = outputs(policy, f, s, own, received, drawn(client, index, step, len(y)))
                shrunk = [phi[weights[BASE]], own[weights[HEAD]], policy[0].weight.flatten()]
                loss = F.cross_entropy(z, y) + lam * mmd(f, before) + decay / 2 * (torch.cat(shrunk) ** 2).sum()
                by.zero_grad()
                loss.backward()
                by.step()
            heads[client] = own.detach()
            moved = nn.utils.parameters_to_vector(policy.parameters()).detach()
            sent[client] = torch.cat([phi.detach(), moved, (heads[client] + received) / 2])
        asked = spec(arrival=arrival)
        there = arrived(asked, sample_cohort(asked, FEDERATION.training, index), index).tolist()
        lost += len(TRAINING) - len(there)
        mean = weighted([sent[client] for client in there], there)
        base, policy_values, received = mean[BASE], mean[POLICY], mean[POLICY.stop :]
    assert bool(lost) == (arrival < 1)
    options = {"momentum": momentum or None, "weight_decay": decay or None, **OPTIONS}
    run = trained(FedCP(lam=lam, **options), execution, arrival=arrival)
    close(run.server, mean)
    for client in TRAINING:
        close(run.states[client], heads[client])
    f = LoopObjective(Task(SHARED_OUT, FEDERATION.x))
    scored = FedCP().personal_model(f, run.server, run.states[TRAINING[0]], round=Round(2))
    x, _ = data(FEDERATION.query[TRAINING[0]])
    own, policy = heads[TRAINING[0]], policy_of(policy_values)
    close(
        SHARED_OUT.logits([scored], x),
        outputs(policy, features(base, x), parts(own)[0].sum(0), own, received).detach(),
    )


def fixed(own: float, others: float, received: Tensor) -> Tensor:
    """Base, policy and received head; both halves of the policy are these numbers, whatever the features."""
    shared = torch.cat([BEGUN[: POLICY.stop], received])
    views = SHARED_OUT.layout.views([shared])
    views["policy.scale"].zero_()
    views["policy.shift"][:D] = own
    views["policy.shift"][D:] = others
    return shared


def test_with_all_features_for_ones_own_head_no_distance_and_no_received_bias_fedcp_is_fedper() -> None:
    f, _, cut = client_of([0, 1, 2, 2, 1, 0, 2])
    options = {"momentum": 0.5, "weight_decay": 0.1, **OPTIONS}
    mine = LoopObjective(Task(SHARED_OUT, FEDERATION.x))
    noisy = tuple(b._replace(key=torch.tensor(noise.key(0, i))) for i, b in enumerate(cut))
    received = START[HEAD].clone()
    parts(received)[1].zero_()
    server = fixed(1000.0, 0.0, received)
    sent, head = FedCP(lam=0.0, **options).client(mine, server, START[HEAD], noisy, round=Round(0))
    base, other = FedPer(**options).client(f, START, START[HEAD], cut, round=Round(0))
    close(sent[BASE], base)
    close(head, other)
    close(sent[POLICY.stop :], (other + received) / 2)


def test_with_even_shares_and_equal_heads_the_logits_have_twice_the_bias() -> None:
    f = LoopObjective(Task(SHARED_OUT, FEDERATION.x))
    w = FedCP().personal_model(f, fixed(3.0, 3.0, START[HEAD]), START[HEAD], round=Round(0))
    x, _ = data(FEDERATION.query[TRAINING[0]])
    close(SHARED_OUT.logits([w], x), NETWORK.logits([START], x) + parts(START[HEAD])[1])


def test_the_discrepancy_is_of_real_rows_and_0_from_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (3 * torch.randn(5, D, generator=generator, dtype=torch.float64) for _ in range(2))
    y, mask = torch.zeros(5, dtype=torch.long), torch.arange(5) < 3
    close(discrepancy(a, y, None, b), mmd(a, b))
    close(discrepancy(a, y, mask, b), mmd(a[:3], b[:3]))
    assert discrepancy(a, y, None, b) > 0.01 and abs(discrepancy(a, y, None, a.clone()).item()) < 1e-12
    assert discrepancy(a, y, torch.zeros(5, dtype=torch.bool), b) == 0, "a step that only pads"


def test_the_received_base_and_not_the_moving_one_is_what_features_are_compared_with() -> None:
    _, _, cut = client_of([0, 1, 2, 2, 1, 0])
    f = LoopObjective(Task(SHARED_OUT, FEDERATION.x))
    seen = []

    def watched(w: Tensor, b: Any, **options: Any) -> Tensor:
        if options:
            seen.append((features(w[BASE], FEDERATION.x[b.rows].double() / 255), *options["args"]))
        return LoopObjective.grad(f, w, b, **options)

    f.grad = watched  # type: ignore[method-assign]
    FedCP(**OPTIONS).client(f, BEGUN, START[HEAD], cut, round=Round(0))
    assert len(seen) == len(cut) == 2
    assert torch.equal(*seen[0]) and not torch.equal(*seen[1])


def test_base_policy_and_a_head_are_sent() -> None:
    (outcome,) = Simulation([spec(rounds=1)], [FEDERATION], FedCP(epochs=1), NETWORK).run()
    assert outcome.costs["floats_up"] == len(START) + 2 * D * D + 2 * D + 4 * D


# ---- the network


def test_a_network_with_a_policy_begins_as_it_does_without_and_refuses_dropout() -> None:
    w = SHARED_OUT.init(0).double()
    assert list(SHARED_OUT.layout.parts) == ["base", "policy", "received", "context", "head"]
    assert torch.equal(torch.cat([w[SHARED_OUT.layout.part(name)] for name in ("base", "head")]), START)
    assert torch.equal(BEGUN, torch.cat([w[: POLICY.stop], START[HEAD]]))
    views = SHARED_OUT.layout.views([w])
    assert 0.9 * D**-0.5 < views["policy.linear.weight"].abs().max() <= D**-0.5
    assert (views["policy.scale"] == 1).all() and not views["policy.shift"].any()
    with pytest.raises(UsageError, match="without dropout"):
        FedCP().network(tiny_features(dropout=0.4))


def shares(u: Tensor) -> list[float]:
    """Some moments of numbers in (0, 1)."""
    return [u.mean().item(), u.std().item(), (u < 0.1).double().mean().item(), (u * (1 - u)).mean().item()]


def test_a_share_has_the_distribution_of_a_gumbel_softmax() -> None:
    gap, n = 0.7, 40_000
    u = Ops(torch.tensor(noise.key(0, "here"))).uniform(torch.zeros(1, n, dtype=torch.float64), "policy")
    assert u is not None
    theirs = (torch.tensor([gap, 0.0]) + gumbels(n, 2)).softmax(1)[:, 0]
    assert shares(torch.sigmoid(gap + u.logit())) == pytest.approx(shares(theirs), abs=5 / math.sqrt(n))


@pytest.mark.parametrize("stack", ["grouped", "columns"])
def test_a_stack_of_policies_is_each_of_them_with_noise_and_padded_rows(stack: str) -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(2, SHARED_OUT.layout.size, generator=generator, dtype=torch.float64)
    x = torch.rand(2, 4, *SHARED_OUT.shape, generator=generator, dtype=torch.float64)
    mask, keys = torch.tensor([[True] * 3 + [False], [True] * 4]), torch.tensor([noise.key(0, i) for i in range(2)])
    for key in (None, keys):
        found = SHARED_OUT.logits([w], x, key, mask=mask, stack=stack)
        for i, rows in enumerate((3, 4)):
            close(found[i, :rows], SHARED_OUT.logits([w[i]], x[i, :rows], None if key is None else key[i]))
    assert not torch.allclose(SHARED_OUT.logits([w[0]], x[0], keys[0]), SHARED_OUT.logits([w[0]], x[0]))


def test_the_largest_number_of_float32_gives_the_own_head_all_of_a_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ops, "uniform", lambda ops, x, name: torch.ones_like(x))  # so that noise is infinite
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3, *SHARED_OUT.shape, generator=generator)
    w = torch.randn(SHARED_OUT.layout.size, generator=generator).requires_grad_()
    z = SHARED_OUT.logits([w], x)
    (g,) = torch.autograd.grad(z.square().sum(), w)
    head, received = (w.detach()[SHARED_OUT.layout.part(name)] for name in ("head", "received"))
    weight, bias = parts(head)
    f = SHARED_OUT.represent([w.detach()], x)
    torch.testing.assert_close(z.detach(), f @ weight.mT + bias + parts(received)[1])
    assert g.isfinite().all() and g[BASE].any() and not g[POLICY].any()


def test_uniform_numbers_have_names_and_there_are_none_in_tests() -> None:
    x, key = torch.zeros(3, 4), torch.tensor(noise.key(0, "here"))
    assert Ops().uniform(x, "policy") is None
    one, other = (Ops(key).uniform(x, name) for name in ("policy", "other"))
    assert one is not None and other is not None and not torch.equal(one, other)
    stacked = Stacked(1, None, key[None]).uniform(x[None], "policy")
    assert stacked is not None and torch.equal(stacked[0], one)
