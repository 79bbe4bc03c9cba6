"""PFLlib's methods: plain loops that differentiate each loss by autograd, on three clients, and special cases."""

# ruff: noqa: B023 (losses are called before the loop goes on)

from __future__ import annotations

import math
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
    Rows,
    client_of,
    close,
    data,
    down,
    features,
    logits,
    parts,
    passes,
    spec,
    trained,
    weighted,
)
from torch import Tensor

from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task, check_tensors
from pflbench.engine.run import Initial
from pflbench.engine.simulate import Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.apfl_apart import APFLApart
from pflbench.methods.base import Batch, Draw, Method, Round
from pflbench.methods.class_means import ClassMeans, none, pooled
from pflbench.methods.ditto import Ditto
from pflbench.methods.fedala import FedALA
from pflbench.methods.fedamp import FedAMP
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.feddbe import FedDBE, shifted
from pflbench.methods.feddistill import FedDistill
from pflbench.methods.feddyn import FedDyn
from pflbench.methods.fedfomo import Client, FedFomo, mixture
from pflbench.methods.fedpac import FedPAC, combined, statistics
from pflbench.methods.fedproto import FedProto, nearest
from pflbench.methods.fedrep import FedRep
from pflbench.methods.fedrod import FedRoD, balanced
from pflbench.methods.local import Local
from pflbench.methods.moon import MOON
from pflbench.methods.per_fedavg_split import PerFedAvgSplit
from pflbench.methods.pfedme import PFedMe
from pflbench.methods.stack import Stack
from pflbench.spec import Scoring

# ---- FedRoD


@EXECUTIONS
def test_fedrod_is_its_two_losses(execution: Any) -> None:
    w, own = START, dict.fromkeys(TRAINING, START[HEAD])
    for _ in range(2):
        sent = []
        for client in TRAINING:
            rows = np.concatenate(support_streams(FEDERATION, spec())[client].batches)  # type: ignore[union-attr]
            prior = torch.bincount(torch.from_numpy(FEDERATION.labels[rows]), minlength=C).double().log()
            mine, head = w, own[client]
            for batch in passes(client):
                x, y = data(batch)
                fixed, generic = features(mine, x), logits(mine, x)
                weight_bias = down(lambda h: F.cross_entropy(generic + fixed @ parts(h)[0].mT + parts(h)[1], y), head)
                (mine,) = down(lambda v: F.cross_entropy(logits(v, x) + prior, y), mine)
                (head,) = weight_bias
            sent.append(mine)
            own[client] = head
        w = weighted(sent)
    run = trained(FedRoD(**OPTIONS), execution)
    close(run.server, w)
    for client in TRAINING:
        close(run.states[client], own[client])
    x, _ = data(FEDERATION.query[TRAINING[0]])
    f = LoopObjective(Task(NETWORK, FEDERATION.x))
    mine = FedRoD().personal_model(f, run.server, run.states[TRAINING[0]], round=Round(2))
    weight, bias = parts(own[TRAINING[0]])
    close(logits(mine, x), logits(w, x) + features(w, x) @ weight.mT + bias)


def test_fedrod_with_equal_counts_is_fedavg_and_with_one_class_sends_what_it_received() -> None:
    f, everything, cut = client_of([0, 1, 2, 2, 1, 0])
    head = START[HEAD]
    sent, _ = FedRoD(**OPTIONS).client(f, START, head, everything, cut, round=Round(0))
    plain, _ = FedAvg(**OPTIONS).client(f, START, (), cut, round=Round(0))
    close(sent, plain)
    f, everything, cut = client_of([1] * 6)
    sent, own = FedRoD(**OPTIONS).client(f, START, head, everything, cut, round=Round(0))
    assert torch.equal(sent, START) and not torch.equal(own, head)
    other, _ = FedRoD(**OPTIONS).client(f, START, 3 * head, everything, cut, round=Round(0))
    assert torch.equal(sent, other), "the personal head moves nothing that is sent"


def test_without_a_head_of_its_own_fedrods_personal_model_is_the_generic_one() -> None:
    f = LoopObjective(Task(NETWORK, FEDERATION.x))
    assert torch.equal(FedRoD().personal_model(f, START, torch.zeros_like(START[HEAD]), round=Round(0)), START)


def test_a_label_that_a_client_lacks_has_a_finite_gradient() -> None:
    z = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    prior = torch.tensor([4.0, 0.0, 2.0], dtype=torch.float64).log()
    mask = torch.tensor([True, False])
    (g,) = torch.autograd.grad(balanced(z, torch.tensor([0, 1]), mask, prior), z)
    close(g, torch.tensor([[2 / 3 - 1, 0, 1 / 3], [0, 0, 0]], dtype=torch.float64))


# ---- FedProto, FedDistill


def means(seen: list[tuple[Tensor, Tensor]]) -> dict[int, Tensor]:
    values, labels = torch.cat([v for v, _ in seen]), torch.cat([y for _, y in seen])
    return {c: values[labels == c].mean(0) for c in range(C) if (labels == c).any()}


def pooled_slowly(sent: list[dict[int, Tensor]]) -> dict[int, Tensor]:
    every = {c for one in sent for c in one}
    return {c: torch.stack([one[c] for one in sent if c in one]).mean(0) for c in every}


@EXECUTIONS
@pytest.mark.parametrize("name", ["fedproto", "soft", "mse"])
def test_a_model_of_ones_own_is_pulled_toward_the_classes_means(name: str, execution: Any) -> None:
    lam = 0.7

    def pull(w: Tensor, x: Tensor, y: Tensor, known: dict[int, Tensor]) -> Tensor:
        outputs, total = (features(w, x) if name == "fedproto" else logits(w, x)), torch.zeros((), dtype=torch.float64)
        for row, label in zip(outputs, y.tolist(), strict=True):
            if label not in known:
                continue
            target = known[label]
            if name in ("fedproto", "mse"):
                total = total + ((row - target) ** 2).mean()
            else:
                total = total - (target.softmax(0) * row.log_softmax(0)).sum()
        return total / len(y)

    known: dict[int, Tensor] = {}
    own = dict.fromkeys(TRAINING, START)
    for _ in range(2):
        sent = []
        for client in TRAINING:
            w, seen = own[client], []
            for batch in passes(client):
                x, y = data(batch)
                seen.append(((features(w, x) if name == "fedproto" else logits(w, x)), y))
                (w,) = down(lambda v: F.cross_entropy(logits(v, x), y) + lam * pull(v, x, y, known), w)
            own[client] = w
            sent.append(means(seen))
        known = pooled_slowly(sent)
    method: Any = FedProto(lam=lam, **OPTIONS) if name == "fedproto" else FedDistill(lam=lam, term=name, **OPTIONS)  # type: ignore[arg-type]
    run = trained(method, execution)
    for c in range(C):
        close(run.server.means[c], known[c])
    for client in TRAINING:
        close(run.states[client], own[client])


@EXECUTIONS
@pytest.mark.parametrize(
    "method", [FedProto(lam=0.0, **OPTIONS), FedDistill(lam=0.0, **OPTIONS), FedAMP(lam=0.0, **OPTIONS)]
)
def test_without_a_pull_it_is_local_training(method: Method, execution: Any) -> None:
    run, alone = trained(method, execution), trained(Local(**OPTIONS), execution)
    for client in TRAINING:
        assert torch.equal(run.states[client], alone.states[client])


@pytest.mark.parametrize("arrival", [1.0, 0.5])
def test_a_scored_prototype_is_the_nearest_one(arrival: float) -> None:
    simulation = Simulation([spec(arrival=arrival)], [FEDERATION], FedProto(lam=3.0, **OPTIONS), NETWORK)
    (outcome,), run = simulation.run(), simulation.runs[0]
    there = [c for c in range(C) if run.server.exist[c] > 0]
    for client in TRAINING:
        (score,) = (one for one in outcome.scores if one.client == client)
        x, y = data(FEDERATION.query[client][: score.count])
        nearby = torch.cdist(features(run.states[client], x), run.server.means[there]).argmin(1)
        assert score.correct == (torch.tensor(there)[nearby] == y).sum().item()


def test_one_clients_means_are_its_own_and_zero_logits_smooth_labels() -> None:
    alone = ClassMeans(torch.randn(1, C, C).double(), torch.ones(1, C).double())
    assert torch.equal(pooled(ClassMeans(*none(START, C, C)), alone).means, alone.means[0])
    z, y = torch.randn(5, C).double(), torch.tensor([0, 1, 2, 0, 1])
    loss = FedDistill(lam=0.5).loss(z, y, None, torch.zeros(C, C).double(), torch.ones(C).double())
    uniform = -z.log_softmax(1).mean()
    close(loss, F.cross_entropy(z, y) + 0.5 * uniform)


def test_the_nearest_prototype_is_a_linear_head() -> None:
    generator = torch.Generator().manual_seed(0)
    of, z = (torch.randn(n, D, generator=generator, dtype=torch.float64) for n in (C, 40))
    weight, bias = parts(nearest(ClassMeans(of, torch.ones(C, dtype=torch.float64))))
    assert torch.equal((z @ weight.mT + bias).argmax(1), torch.cdist(z, of).argmin(1))
    weight, bias = parts(nearest(ClassMeans(of, torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64))))
    assert not ((z @ weight.mT + bias).argmax(1) == 1).any(), "a class that nobody has is never predicted"


def test_means_are_of_those_that_have_the_class_in_any_order() -> None:
    before = ClassMeans(torch.full((C, 1), 9.0), torch.tensor([1.0, 1.0, 0.0]))
    sent = ClassMeans(torch.tensor([[[1.0], [0.0], [0.0]], [[4.0], [0.0], [0.0]], [[0.0], [0.0], [0.0]]]),
                      torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))  # fmt: skip
    for order in ([0, 1, 2], [2, 1, 0]):
        found = pooled(before, ClassMeans(sent.means[order], sent.exist[order]))
        assert found.means[:, 0].tolist() == [2.5, 9.0, 9.0] and found.exist.tolist() == [1, 1, 0]


@pytest.mark.parametrize(("method", "width"), [(FedProto(epochs=1), D), (FedDistill(epochs=1), C)])
def test_means_and_which_there_are_is_what_is_sent(method: Method, width: int) -> None:
    (outcome,) = Simulation([spec(rounds=1)], [FEDERATION], method, NETWORK).run()
    assert outcome.costs["floats_up"] == C * (width + 1)


# ---- FedDBE


@EXECUTIONS
@pytest.mark.parametrize(("kappa", "share"), [(3.0, 0.1), (3.0, 1.0), (0.0, 1.0)])
def test_feddbe_is_its_loss_on_shifted_features(kappa: float, share: float, execution: Any) -> None:
    def predicted(w: Tensor, v: Tensor, x: Tensor) -> Tensor:
        weight, bias = parts(w[HEAD])
        return (features(w, x) + v) @ weight.mT + bias

    def local(w: Tensor, v: Tensor, client: int, consensus: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        r = torch.zeros(D, dtype=torch.float64)
        for batch in passes(client):
            x, y = data(batch)

            def loss(w: Tensor, v: Tensor, x: Tensor = x, y: Tensor = y, r: Tensor = r) -> Tensor:
                running = (1 - share) * r + share * features(w, x).mean(0)
                pull = 0.0 if consensus is None else kappa * ((running - consensus) ** 2).mean() / 2
                return F.cross_entropy(predicted(w, v, x), y) + pull

            r = (1 - share) * r + share * features(w, x).mean(0)
            w, moved = down(loss, w, v)
            v = v if consensus is None else moved
        return w, v, r

    zero = torch.zeros(D, dtype=torch.float64)
    consensus = weighted([local(START, zero, client, None)[2] for client in TRAINING])
    w, own = START, dict.fromkeys(TRAINING, zero)
    for _ in range(2):
        made = {client: local(w, own[client], client, consensus) for client in TRAINING}
        w, own = weighted([made[client][0] for client in TRAINING]), {client: made[client][1] for client in TRAINING}
    method = FedDBE(kappa=kappa, running=share, **OPTIONS)
    run = trained(method, execution, rounds=3)
    close(run.server.features, consensus)
    close(run.server.w, w)
    for client in TRAINING:
        close(run.states[client], own[client])
    x, _ = data(FEDERATION.query[TRAINING[0]])
    close(logits(shifted(w, own[TRAINING[0]], C), x), predicted(w, own[TRAINING[0]], x))


def test_feddbes_first_round_leaves_the_model_and_without_shift_and_pull_the_others_are_fedavgs() -> None:
    method = FedDBE(shift_lr=0.0, **OPTIONS)
    assert torch.equal(trained(method, stage="global", rounds=1).server.w, START)
    close(trained(method, stage="global", rounds=3).server.w, trained(FedAvg(**OPTIONS), stage="global").server)


# ---- FedAMP


@EXECUTIONS
def test_fedamp_is_its_loss_with_models_mixed_by_nearness(execution: Any) -> None:
    alpha, lam, sigma = 0.2, 0.3, 0.5
    stack, own = [START] * 3, dict.fromkeys(TRAINING, START)
    for _ in range(2):
        made = {}
        for client in TRAINING:
            w = own[client]
            xi = [alpha / sigma * torch.exp(-((w - other) ** 2).sum() / sigma) for other in stack]
            u = w + sum((k * (other - w) for k, other in zip(xi, stack, strict=True)), torch.zeros_like(w))
            for batch in passes(client):
                x, y = data(batch)
                (w,) = down(lambda v: F.cross_entropy(logits(v, x), y) + lam / (2 * alpha) * ((v - u) ** 2).sum(), w)
            made[client] = w
        own, stack = made, list(made.values())
    run = trained(FedAMP(alpha=alpha, lam=lam, sigma=sigma, **OPTIONS), execution)
    for client in TRAINING:
        close(run.states[client], own[client])
    assert run.server.present.tolist() == [1.0] * 3
    assert sorted(run.server.rows.sum(1).tolist()) == pytest.approx(sorted(w.sum().item() for w in stack), rel=1e-12)


def test_fedamp_without_a_pull_is_local_training_bit_for_bit_and_a_wide_sigma_takes_the_mean() -> None:
    run, alone = trained(FedAMP(lam=0.0, **OPTIONS)), trained(Local(**OPTIONS))
    assert all(torch.equal(run.states[client], alone.states[client]) for client in TRAINING)
    far = run.server.rows
    wide = FedAMP(sigma=1e18, alpha=1e18 / 3)
    close(wide.mixture(far[0], run.server), far.mean(0))
    narrow = FedAMP(sigma=1e-12, alpha=1e-12)
    assert torch.equal(narrow.mixture(far[0], run.server), far[0])


def test_fedamps_stack_has_the_uploads_that_came_and_empty_rows_without_weight() -> None:
    server = FedAMP().init(Initial(NETWORK, 0, torch.device("cpu"), torch.float64), 3)
    found = FedAMP().server(server, torch.stack([START + 1, START]), torch.ones(2) / 2, Round(0))
    assert found.present.tolist() == [1, 1, 0] and torch.equal(found.rows[0], START), "sorted by their sums"
    mixed = FedAMP(sigma=1e18, alpha=5e17).mixture(START, found)
    close(mixed, START + 0.5)


# ---- FedFomo


def divided(client: int) -> tuple[list[Rows], Rows]:
    """The first 80 % of a client's minibatches, for each pass, and the rows of the others."""
    cut = support_streams(FEDERATION, spec())[client].batches  # type: ignore[union-attr]
    first = int(0.8 * len(cut))
    return cut[:first] * OPTIONS["epochs"], np.concatenate(cut[first:])


@EXECUTIONS
def test_fedfomo_starts_from_the_models_that_lower_its_validation_loss(execution: Any) -> None:
    stack, own, starts = list[Tensor](), dict.fromkeys(TRAINING, START), dict.fromkeys(TRAINING, START)
    several = 0
    for _ in range(3):
        made = {}
        for client in TRAINING:
            (training, validation), old, w = divided(client), starts[client], own[client]
            x, y = data(validation)
            gains = [F.cross_entropy(logits(old, x), y) - F.cross_entropy(logits(other, x), y) for other in stack]
            omega = [
                max(0.0, (g / ((other - old).norm() + 1e-5)).item()) for g, other in zip(gains, stack, strict=True)
            ]
            several += sum(one > 0 for one in omega) > 1
            if sum(omega) > 0:
                w = sum((k / sum(omega) * other for k, other in zip(omega, stack, strict=True)), torch.zeros_like(w))
            starts[client] = w
            for batch in training:
                x, y = data(batch)
                (w,) = down(lambda v: F.cross_entropy(logits(v, x), y), w)
            made[client] = w
        own, stack = made, list(made.values())
    assert several
    run = trained(FedFomo(**OPTIONS), execution, rounds=3)
    for client in TRAINING:
        close(run.states[client].w, own[client])
        close(run.states[client].old, starts[client])


def test_fedfomos_weights_are_gains_over_distances() -> None:
    def start(models: list[list[float]], there: list[float], old: list[float], own: list[float]) -> list[float]:
        """Start of a client whose validation loss is a model's first entry."""
        rows, kept = torch.tensor(models, dtype=torch.float64), Client(*torch.tensor([own, old], dtype=torch.float64))
        return mixture(Stack(rows, torch.tensor(there).double()), kept, kept.old[0] - rows[:, 0]).tolist()

    old, own = [3.0, 0.0], [9.0, 9.0]
    assert start([old, old], [1, 1], old, own) == own, "no model is better"
    assert start([[4.0, 0.0], [5.0, 0.0]], [1, 1], old, own) == own, "all are worse"
    assert start([[4.0, 0.0], [2.0, 7.0]], [1, 1], old, own) == [2.0, 7.0], "one is better"
    assert start([[4.0, 0.0], [2.0, 7.0]], [1, 0], old, own) == own, "a row that is not there has no weight"
    near, far = [2.0, 0.0], [2.0, 24**0.5]  # at distances of 1 and 5
    weights = 1 / (1 + 1e-5), 1 / (5 + 1e-5)
    expected = [2.0, 24**0.5 * weights[1] / sum(weights)]
    assert start([near, far], [1, 1], old, own) == pytest.approx(expected, rel=1e-12)


@EXECUTIONS
def test_fedfomo_of_one_client_is_local_training_on_the_first_part(execution: Any) -> None:
    training, validation = divided(2)
    alone = replace(FEDERATION, training=np.array([False, False, True, False, False]))
    first = np.concatenate(training[: len(training) // 2])
    assert len(first) > len(validation) > 0 and not set(first) & set(validation)
    cut = replace(alone, support=(*alone.support[:2], first, *alone.support[3:]))
    runs = []
    for method, federation in ((FedFomo(**OPTIONS), alone), (Local(**OPTIONS), cut)):
        simulation = Simulation([spec(cohort=1, rounds=3)], [federation], method, NETWORK, Setup(execution=execution))
        simulation.run()
        runs.append(simulation.runs[0])
    close(runs[0].states[2].w, runs[1].states[2])


# ---- FedPAC


def on_the_simplex(q: Tensor) -> Tensor:
    """Minimize a^T q a over weights that sum to one: the best of the minima on all subsets."""
    best, least = torch.zeros(len(q), dtype=q.dtype), math.inf
    for mask in range(1, 2 ** len(q)):
        chosen = [i for i in range(len(q)) if mask >> i & 1]
        part = torch.linalg.solve(q[chosen][:, chosen], torch.ones(len(chosen), dtype=q.dtype))
        a = torch.zeros(len(q), dtype=q.dtype)
        a[chosen] = part / part.sum()
        if a.min() >= 0 and (value := (a @ q @ a).item()) < least:
            best, least = a, value
    return best


@EXECUTIONS
@pytest.mark.parametrize("lam", [0.0, 0.8])
def test_fedpac_is_its_losses_and_the_combination_of_heads(lam: float, execution: Any) -> None:
    def combination(client: int) -> Tensor:
        own = kept[client]
        q = torch.diag(torch.stack([v for _, v, _ in sent])) + torch.stack(
            [torch.stack([((own - a) * (own - b)).sum() for _, _, a in sent]) for _, _, b in sent]
        )
        found = on_the_simplex(q)
        used.append(sorted(found.tolist()))
        return sum((k * head for k, (head, _, _) in zip(found, sent, strict=True) if k >= 1e-3), 0 * START[HEAD])

    w, known, used = START, dict[int, Tensor](), list[list[float]]()
    sent: list[tuple[Tensor, Tensor, Tensor]] = []
    kept = dict.fromkeys(TRAINING, torch.zeros(C, D, dtype=torch.float64))
    for _ in range(3):
        heads = {client: combination(client) if sent else START[HEAD] for client in TRAINING}
        bases, prototypes, sent = [], [], []
        for client in TRAINING:
            batches, head, base = support_streams(FEDERATION, spec())[client].batches, heads[client], w[BASE]  # type: ignore[union-attr]
            x, y = data(np.concatenate(batches))
            z, n = features(w, x), len(y)
            shares = {c: (y == c).sum().item() / n for c in range(C)}
            mu = {c: z[y == c].mean(0) if (y == c).any() else torch.zeros_like(z[0]) for c in range(C)}
            spread = sum(shares[c] * ((z[y == c] ** 2).sum(1).mean()) for c in range(C) if (y == c).any())
            v = (spread - sum(shares[c] ** 2 * (mu[c] ** 2).sum() for c in range(C))) / n
            kept[client] = torch.stack([shares[c] * mu[c] for c in range(C)])
            for batch in batches:
                x, y = data(batch)
                (head,) = down(lambda h: F.cross_entropy(logits(torch.cat([base, h]), x), y), head)
            for batch in batches * 2:
                x, y = data(batch)

                def loss(part: Tensor, x: Tensor = x, y: Tensor = y, head: Tensor = head) -> Tensor:
                    whole = torch.cat([part, head])
                    rows = [
                        (f - known[c]).pow(2).mean()
                        for f, c in zip(features(whole, x), y.tolist(), strict=True)
                        if c in known
                    ]
                    return F.cross_entropy(logits(whole, x), y) + lam * sum(rows, torch.zeros(()).double()) / len(y)

                (base,) = down(loss, base)
            x, y = data(np.concatenate(batches))
            prototypes.append(means([(features(torch.cat([base, head]), x), y)]))
            bases.append(base)
            sent.append((head, v, kept[client]))
        known, w = pooled_slowly(prototypes), torch.cat([weighted(bases), START[HEAD]])
    assert all(weights[-1] > weights[0] + 0.02 for weights in used), "no mean of all heads"
    method = FedPAC(lam=lam, base_epochs=2, lr=RATE)
    run = trained(method, execution, rounds=3)
    close(run.server.w, w)
    f = LoopObjective(Task(NETWORK, FEDERATION.x))
    for client in TRAINING:
        close(run.states[client], kept[client].flatten())
        mine = method.personal_model(f, run.server, run.states[client], round=Round(3))
        close(mine[HEAD], combination(client))
    for c in range(C):
        close(run.server.prototypes.means[c], known[c])


@EXECUTIONS
@pytest.mark.parametrize("kind", ["static", "reshuffled"])
def test_fedpac_of_one_client_without_a_pull_is_fedrep(kind: Any, execution: Any) -> None:
    alone = replace(FEDERATION, training=np.array([False, False, True, False, False]))
    options: dict[str, Any] = {"base_epochs": 2, "lr": RATE, "momentum": 0.5, "weight_decay": 0.01}
    runs = []
    for method in (FedPAC(lam=0.0, **options), FedRep(head_epochs=1, **options)):
        one = spec(cohort=1, rounds=3, batches=kind)
        simulation = Simulation([one], [alone], method, NETWORK, Setup(execution=execution))
        simulation.run()
        runs.append(simulation.runs[0])
    close(runs[0].server.w, runs[1].server)
    close(runs[0].server.heads.rows[0, : HEAD.stop - HEAD.start], runs[1].states[2])


def test_fedpacs_heads_are_those_of_clients_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    heads = torch.randn(4, 5, generator=generator, dtype=torch.float64)

    def found(v: list[float], h: list[list[float]], there: list[float], own: list[float]) -> Tensor:
        statistics = torch.tensor([[one, *of] for one, of in zip(v, h, strict=True)], dtype=torch.float64)
        stack = Stack(torch.cat([heads, statistics], 1), torch.tensor(there, dtype=torch.float64))
        return combined(stack, torch.tensor(own, dtype=torch.float64))

    same = [[1.0, 2.0]] * 4
    close(found([0.3] * 4, same, [1.0] * 4, same[0]), heads.mean(0))
    close(found([0.3] * 4, same, [1.0, 1.0, 0.0, 0.0], same[0]), heads[:2].mean(0))
    far = [[1.0, 2.0], [1e4, 0.0], [0.0, 1e4], [1e4, 3e4]]
    torch.testing.assert_close(found([0.3] * 4, far, [1.0] * 4, far[0]), heads[0], rtol=0, atol=1e-6)
    close(found([1.0, 3.0, 1.0, 1.0], same, [1.0, 1.0, 0.0, 0.0], same[0]), 0.75 * heads[0] + 0.25 * heads[1])
    rare = found([1.0, 1999.0, 1.0, 1.0], same, [1.0, 1.0, 0.0, 0.0], same[0])
    close(rare, heads[0] * 1999 / 2000)  # a weight of 1 / 2000 is left out, and the other stays as it is


def test_fedpacs_statistics_are_of_real_rows_and_a_client_of_one_class_has_them() -> None:
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(6, D, generator=generator, dtype=torch.float64)
    mask = torch.tensor([True] * 4 + [False] * 2)
    v, h = statistics(z, Batch(torch.arange(6), torch.tensor([1] * 6), mask), C)
    mu = z[:4].mean(0)
    close(h.view(C, D), torch.stack([torch.zeros_like(mu), mu, torch.zeros_like(mu)]))
    close(v, ((z[:4] - mu) ** 2).sum(1).mean() / 4)


# ---- FedALA's share and start phase


@EXECUTIONS
@pytest.mark.parametrize(("kind", "steady"), [("static", 2.12e-3), ("reshuffled", 0.0256)])
def test_fedalas_weights_pass_over_a_part_until_their_loss_is_steady(
    kind: Any, steady: float, execution: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pflbench.methods.fedala.STEADY", steady)
    method = FedALA(eta=2.0, share=0.6, start_phase=14, **OPTIONS)
    streams = support_streams(FEDERATION, spec(batches=kind))
    last = NETWORK.layout.last(1)
    w, made = START, []
    own = dict.fromkeys(TRAINING, (START, torch.ones_like(START[last])))
    for round in range(3):
        sent = []
        for client in TRAINING:
            (training, *passes), _ = streams[client].draw(method.draws(Round(round)), 0, "round", round)
            assert len(passes) == (14 if round == 1 else 1)
            (model, weights), losses = own[client], []
            for batches in passes:
                for batch in batches:
                    x, y = data(batch)
                    leaf = weights.clone().requires_grad_()
                    theta = torch.cat([w[: last.start], model[last] + (w - model)[last] * leaf])
                    (g,) = torch.autograd.grad(F.cross_entropy(logits(theta, x), y), leaf)
                    weights = (weights - 2.0 * g).clip(0, 1)
                mine = torch.cat([w[: last.start], model[last] + (w - model)[last] * weights])
                seen = [F.cross_entropy(logits(mine, x), y).item() for x, y in map(data, batches)]
                losses.append(float(np.mean(seen)))
                if len(losses) >= 10 and np.std(losses[-10:]) < steady:
                    break
            made.append(len(losses))
            for batch in training:
                x, y = data(batch)
                (mine,) = down(lambda v: F.cross_entropy(logits(v, x), y), mine)
            sent.append(mine)
            own[client] = mine, weights
        w = weighted(sent)
    assert len({*made[3:6]}) == 3, "clients of one stack stop after different passes"
    simulation = Simulation(
        [spec(batches=kind, rounds=3)], [FEDERATION], method, NETWORK, Setup(execution=execution, most_padding=math.inf)
    )
    simulation.run()
    (run,) = simulation.runs
    close(run.server, w)
    for client in TRAINING:
        close(run.states[client][1], own[client][1])


@EXECUTIONS
def test_fedala_with_all_data_and_one_pass_is_the_same_bit_for_bit(execution: Any) -> None:
    plain, same = FedALA(**OPTIONS), FedALA(share=1.0, start_phase=1, **OPTIONS)
    runs = [trained(method, execution, rounds=3) for method in (plain, same)]
    assert torch.equal(runs[0].server, runs[1].server)
    one, other = (trained(method, execution, rounds=3) for method in (FedALA(share=0.6, **OPTIONS), plain))
    assert not torch.equal(one.server, other.server)
    still = FedALA(eta=0.0, share=0.5, start_phase=12, **OPTIONS)
    assert torch.equal(
        trained(still, execution, "personalized", 3).server, trained(FedAvg(**OPTIONS), execution, "global", 3).server
    )


# ---- MOON, FedDyn


@EXECUTIONS
def test_moon_is_its_two_way_softmax(execution: Any) -> None:
    w, last = START, dict.fromkeys(TRAINING, START)
    for _ in range(2):
        made = {}
        for client in TRAINING:
            mine = w
            for batch in passes(client):
                x, y = data(batch)

                def loss(v: Tensor, x: Tensor = x, y: Tensor = y, client: int = client) -> Tensor:
                    cosines = [F.cosine_similarity(features(v, x), features(m, x)) for m in (w, last[client])]
                    told = F.cross_entropy(torch.stack(cosines, 1) / 0.3, torch.zeros(len(y), dtype=torch.long))
                    return F.cross_entropy(logits(v, x), y) + 2.0 * told

                (mine,) = down(loss, mine)
            made[client] = mine
        w, last = weighted(list(made.values())), made
    run = trained(MOON(mu=2.0, tau=0.3, **OPTIONS), execution, stage="global")
    close(run.server, w)
    for client in TRAINING:
        close(run.states[client], last[client])


def test_moon_without_a_contrast_is_fedavg_and_its_first_round_has_none() -> None:
    plain = trained(FedAvg(**OPTIONS), stage="global")
    assert torch.equal(trained(MOON(mu=0.0, **OPTIONS), stage="global").server, plain.server)
    first = trained(FedAvg(**OPTIONS), stage="global", rounds=1).server
    close(trained(MOON(mu=9.0, **OPTIONS), stage="global", rounds=1).server, first)
    z = torch.randn(4, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = trained(MOON(mu=1.0, tau=1e12, **OPTIONS), stage="global").server
    close(w, plain.server)
    assert MOON(tau=0.1).contrast(z, torch.zeros(4), None, z + 1, z + 1).item() == pytest.approx(np.log(2), rel=1e-12)


@EXECUTIONS
def test_feddyn_is_its_regularized_loss(execution: Any) -> None:
    alpha = 0.3
    w, h, own = START, torch.zeros_like(START), {client: torch.zeros_like(START) for client in TRAINING}
    for _ in range(2):
        made = {}
        for client in TRAINING:
            mine = w
            for batch in passes(client):
                x, y = data(batch)

                def loss(v: Tensor, x: Tensor = x, y: Tensor = y, client: int = client) -> Tensor:
                    return F.cross_entropy(logits(v, x), y) - own[client] @ v + alpha / 2 * ((v - w) ** 2).sum()

                (mine,) = down(loss, mine)
            made[client] = mine
        own = {client: own[client] - alpha * (made[client] - w) for client in TRAINING}
        h = h - alpha * sum((mine - w for mine in made.values()), torch.zeros_like(w)) / 3
        close(h, torch.stack(list(own.values())).mean(0))
        w = torch.stack(list(made.values())).mean(0) - h / alpha
    run = trained(FedDyn(alpha=alpha, **OPTIONS), execution, stage="global")
    close(run.server.w, w)
    close(run.server.h, h)
    for client in TRAINING:
        close(run.states[client], own[client])


def test_feddyns_server_moves_twice_as_far_in_the_first_round_whatever_alpha() -> None:
    uploads = START + torch.arange(3, dtype=torch.float64)[:, None]
    for alpha in (0.01, 1.0):
        method = FedDyn(alpha=alpha)
        start = method.init(Initial(NETWORK, 0, torch.device("cpu"), torch.float64), 6)
        found = method.server(start, uploads, torch.ones(3) / 3, Round(0))
        close(found.w, START + 1 + 0.5)


# ---- Options of methods that other tables have in another form


def entropy(w: Tensor, batch: Rows) -> Tensor:
    x, y = data(batch)
    return F.cross_entropy(logits(w, x), y)


@EXECUTIONS
def test_apfl_apart_mixes_two_models_that_train_apart(execution: Any) -> None:
    w, own = START, {client: (START, torch.tensor(0.6, dtype=torch.float64)) for client in TRAINING}
    for _ in range(2):
        sent = []
        for client in TRAINING:
            mine, (v, alpha) = w, own[client]
            for batch in passes(client):
                at_w, at_v = ((one - down(lambda u: entropy(u, batch), one)[0]) / RATE for one in (mine, v))
                mine, v = mine - RATE * at_w, v - RATE * at_v
                slope = (v - mine) @ (alpha * at_v + (1 - alpha) * at_w) + 0.02 * alpha
                alpha = (alpha - RATE * slope).clamp(0, 1)
            own[client] = alpha * v + (1 - alpha) * mine, alpha
            sent.append(mine)
        w = weighted(sent)
    run = trained(APFLApart(alpha=0.6, **OPTIONS), execution)
    close(run.server, w)
    for client in TRAINING:
        close(run.states[client].v, own[client][0])
        close(run.states[client].alpha, own[client][1])
        assert own[client][1] != 0.6


@EXECUTIONS
def test_apfl_aparts_own_model_alone_is_local_training(execution: Any) -> None:
    run = trained(APFLApart(adaptive=False, **OPTIONS), execution)
    local = trained(Local(**OPTIONS), execution, rounds=2)
    for client in TRAINING:
        close(run.states[client].v, local.states[client])
    shared = trained(APFLApart(adaptive=False, alpha=0.0, **OPTIONS), execution, rounds=1)
    close(weighted([shared.states[client].v for client in TRAINING]), shared.server)


@EXECUTIONS
def test_ditto_by_epochs_takes_both_parts_over_the_same_passes(execution: Any) -> None:
    w, own, lam = START, dict.fromkeys(TRAINING, START), 0.7
    for _ in range(2):
        sent = []
        for client in TRAINING:
            mine, v = w, own[client]
            for batch in passes(client):
                (v,) = down(lambda u: entropy(u, batch) + lam / 2 * ((u - w) ** 2).sum(), v)
            for batch in passes(client):
                (mine,) = down(lambda u: entropy(u, batch), mine)
            own[client] = v
            sent.append(mine)
        w = weighted(sent)
    run = trained(Ditto(optimizer="sgd", lam=lam, personal_lr=RATE, steps=1, **OPTIONS), execution)
    close(run.server, w)
    for client in TRAINING:
        close(run.states[client].v, own[client])


@EXECUTIONS
@pytest.mark.parametrize("beta", [None, 0.25, 0.0])
def test_pfedme_by_epochs_moves_the_server_by_beta(beta: float | None, execution: Any) -> None:
    w, lam, inner = START, 2.0, 0.01
    for _ in range(2):
        sent = []
        for client in TRAINING:
            mine = theta = w
            for batch in passes(client):
                for _ in range(3):
                    g = (theta - down(lambda u: entropy(u, batch), theta)[0]) / RATE
                    theta = theta - inner * (g + lam * (theta - mine))
                mine = mine - RATE * lam * (mine - theta)
            sent.append(mine)
        w = w + (1 if beta is None else beta) * (weighted(sent) - w)
    method = PFedMe(lam=lam, inner_lr=inner, inner_steps=3, beta=beta, **OPTIONS)
    scoring = Scoring(clients="training", stages=("personalized",), moment="before-aggregation")
    made = spec(scoring=scoring)
    simulation = Simulation([made], [FEDERATION], method, NETWORK, Setup(execution=execution, most_padding=math.inf))
    simulation.run()
    close(simulation.runs[0].server, w)
    assert beta != 0 or torch.equal(w, START)


def test_an_amount_is_steps_unless_there_are_epochs() -> None:
    assert PFedMe(steps=3, batch=7).draws(Round(0)) == (Draw(steps=3, batch=7),)
    assert PFedMe(steps=3, batch=7, epochs=2, epochwise=True).draws(Round(0)) == (Draw(epochs=2, batch=7),)
    assert Ditto(steps=3).draws(Round(0)) == (Draw(steps=3),) * 2


def test_one_step_on_one_minibatch_of_the_suites_size_makes_a_personal_model() -> None:
    method = PerFedAvgSplit(batch=20, share=0.5, personal_steps=1, personal_lr=None, inner_lr=RATE)
    (drawn,) = method.personal_draws()
    assert drawn == Draw(steps=1, in_passes=True) and method.draws(Round(0)) == (Draw(epochs=5, batch=20),)
    f, _, cut = client_of([0, 1, 2])
    x, y = FEDERATION.x[:3].double() / 255, torch.tensor([0, 1, 2])
    close(
        method.personal_model(f, START, (), cut, round=Round(0)),
        down(lambda u: F.cross_entropy(logits(u, x), y), START)[0],
    )


def test_a_number_among_a_losss_arguments_is_one_sentence() -> None:
    check_tensors((START,))
    with pytest.raises(UsageError, match=r"args are tensors, and 0\.5 is a float: write server\.new_tensor\(0\.5\)"):
        check_tensors((START, 0.5))


def test_a_thousand_clients_alike_share_the_mean_head() -> None:
    n = 1001
    head, h = torch.randn(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.zeros(2)
    rows = torch.cat([head.expand(n, -1), torch.ones(n, 1), h.expand(n, -1)], dim=-1)
    close(combined(Stack(rows, torch.ones(n, dtype=torch.float64)), h.double()), head)
