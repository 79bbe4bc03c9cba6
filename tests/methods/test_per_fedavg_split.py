"""Per-FedAvg on halves of minibatches: how minibatches are taken apart, and rounds against a slow version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pflbench import noise
from pflbench.engine.augment import crop_flip
from pflbench.engine.batches import support_streams
from pflbench.engine.client_map import ClientMap, Data, Item, keyed
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.per_fedavg_split import PerFedAvgSplit, split
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import tiny_features, tiny_federation, tiny_spec

SIZES = (8, 21, 15, 31, 22, 13, 8, 15)
"""Support rows 6, 16, 12, 24, 17, 10, 6, 12: in batches of 5 there are last ones of 1, 2 and 4 rows, and full ones."""
FEDERATION = tiny_federation(0, sizes=SIZES)
KEY = torch.tensor(noise.key(0, "here"))
EXECUTIONS = ("loop", "vectorized")
NET, DROPPING = tiny_features(), tiny_features(dropout=0.4)
OPTIONS = {"epochs": 2, "inner_lr": 0.1, "outer_lr": 0.05, "momentum": 0.5, "weight_decay": 0.01}


def spec(**changes: Any) -> RunSpec:
    return tiny_spec(rounds=3, cohort=4).model_copy(update={"batches": "reshuffled"} | changes)


def start() -> Tensor:
    return NET.init(0).double()


def batch(rows: np.ndarray) -> Batch:
    return Batch(torch.from_numpy(rows), torch.from_numpy(FEDERATION.labels[rows]))


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


# Taking apart.


@pytest.mark.parametrize(("n", "first"), [(10, 8), (9, 7), (5, 4), (3, 2), (2, 1)])
def test_support_are_the_first_four_fifths_rounded_down_and_query_the_rest(n: int, first: int) -> None:
    b = Batch(torch.arange(100, 100 + n), torch.arange(n), key=KEY)
    parts = split(b, 0.8)
    assert parts is not None
    for part, (low, high) in zip(parts, ((0, first), (first, n)), strict=True):
        assert part.labels.tolist() == list(range(low, high)) and part.mask is None and part.real is None
        assert part.rows.tolist() == list(range(100 + low, 100 + high))
    keys = {int(part.key) for part in parts if part.key is not None}
    assert len(keys | {int(KEY)}) == 3


@given(
    n=st.integers(0, 12), padding=st.integers(0, 5), share=st.sampled_from([0.1, 0.5, 0.75, 0.8]), real=st.booleans()
)
def test_a_padded_minibatchs_halves_are_the_trimmed_ones_real_rows_first(
    n: int, padding: int, share: float, real: bool
) -> None:
    width = max(1, n + padding)
    whole = Batch(torch.arange(width) + 7, torch.arange(width), key=KEY)
    there = None if real else torch.tensor(False)
    padded = split(whole._replace(mask=torch.arange(width) < n, real=there), share)
    trimmed = split(Batch(*(None if x is None else x[:n] for x in whole[:2]), None, None, None, KEY), share)
    if padded is None:
        assert trimmed is None
        return
    for i, part in enumerate(padded):
        assert part.real is not None and bool(part.real) == (real and trimmed is not None)
        if trimmed is None:
            continue
        own, size = trimmed[i], len(trimmed[i].rows)
        assert part.mask is not None and part.mask.tolist() == [j < size for j in range(len(part.rows))]
        for mine, other in zip((part.rows, part.labels), (own.rows, own.labels), strict=True):
            assert torch.equal(mine[:size], other)
        assert part.key is not None and own.key is not None and torch.equal(part.key, own.key)


def test_no_row_for_support_is_no_step() -> None:
    assert split(batch(np.array([3])), 0.8) is None and split(batch(np.arange(2)), 0.4) is None


# Clients.


def test_a_batch_of_one_leaves_model_and_momentum_alone() -> None:
    method, f = PerFedAvgSplit(**OPTIONS), LoopObjective(Task(NET, FEDERATION.x))
    five, one, six = (batch(FEDERATION.support[3][rows]) for rows in (slice(5), slice(5, 6), slice(6, 12)))
    with_it, without = (
        method.client(f, start(), (), taken, round=Round(0))[0] for taken in ((five, one, six, one), (five, six))
    )
    assert torch.equal(with_it, without)
    nothing, _ = method.client(f, start(), (), (one,), round=Round(0))
    assert torch.equal(nothing, start())


@pytest.mark.parametrize("size", [5, 1])
def test_padded_steps_and_batches_of_one_are_no_steps_in_a_stack(size: int) -> None:
    """Clients of 12, 6 and 1 rows: minibatches of 5, 5, 2; of 5, 1; of 1. And of 1 all over."""
    cuts = [[FEDERATION.support[3][i : min(i + size, n)] for i in range(0, n, size)] for n in (12, 6, 1)]
    method, task = PerFedAvgSplit(**OPTIONS), Task(DROPPING, FEDERATION.x, augment=True)
    data = Data(task, FEDERATION.labels, (0,))
    items = [Item(0, KEY + i, (cut,)) for i, cut in enumerate(cuts)]

    def client(f: Any, w: Tensor, key: Tensor, *taken: Any) -> Tensor:
        return method.client(f, w, (), *keyed(taken, key, task), round=Round(0))[0]

    looped, stacked = (
        ClientMap(data, execution, most_padding=100.0)(client, [start()], items) for execution in EXECUTIONS
    )
    for one, other in zip(looped, stacked, strict=True):
        close(one, other)
    moved = [not torch.equal(w, start()) for w in looped]
    assert moved == ([True, True, False] if size == 5 else [False] * 3)


def test_each_half_sees_augmented_images_of_its_own() -> None:
    method = PerFedAvgSplit(inner_lr=0.1, outer_lr=0.05)
    f, b = LoopObjective(Task(DROPPING, FEDERATION.x, augment=True)), batch(FEDERATION.support[3][:5])._replace(key=KEY)
    (found, _), parts, w = method.client(f, start(), (), (b,), round=Round(0)), split(b, 0.8), start()
    assert parts is not None
    for part, lr in zip(parts, (0.1, 0.05), strict=True):
        leaf = w.clone().requires_grad_()
        x = crop_flip(FEDERATION.x[part.rows], part.key).double() / 255
        g = torch.autograd.grad(F.cross_entropy(DROPPING.logits([leaf], x, part.key), part.labels), leaf)[0]
        w = (w if part is parts[0] else start()) - lr * g
    close(found, w)


@pytest.mark.parametrize("momentum", [None, 0.5])
def test_without_an_inner_step_it_is_fedavg_on_the_second_halves(momentum: float | None) -> None:
    options = {"momentum": momentum, "weight_decay": 0.01}
    method, f = PerFedAvgSplit(inner_lr=0.0, outer_lr=0.05, **options), LoopObjective(Task(NET, FEDERATION.x))
    taken = tuple(batch(FEDERATION.support[3][rows]) for rows in (slice(5), slice(5, 12), slice(12, 22)))
    queries = tuple(batch(FEDERATION.support[3][rows]) for rows in (slice(4, 5), slice(10, 12), slice(20, 22)))
    ours, _ = method.client(f, start(), (), taken, round=Round(0))
    fedavg, _ = FedAvg(lr=0.05, **options).client(f, start(), (), queries, round=Round(0))
    close(ours, fedavg)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, 1.5])
def test_a_share_that_leaves_a_half_empty_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="share must be greater than 0 and less than 1"):
        PerFedAvgSplit(share=share)


# Rounds.


def autograd(w: Tensor, rows: np.ndarray) -> Tensor:
    leaf = w.clone().requires_grad_()
    logits = NET.logits([leaf], FEDERATION.x[rows].double() / 255)
    return torch.autograd.grad(F.cross_entropy(logits, torch.from_numpy(FEDERATION.labels[rows])), leaf)[0]


def participation(method: PerFedAvgSplit, w: Tensor, batches: list[np.ndarray]) -> Tensor:
    """Meta steps by torch's optimizer, which gets the gradient at u."""
    views = [v.clone().requires_grad_() for v in NET.layout.views([w]).values()]
    decayed, plain = ([v for v in views if (v.dim() > 1) == big] for big in (True, False))
    groups = [{"params": decayed, "weight_decay": method.weight_decay}, {"params": plain}]
    optimizer = torch.optim.SGD(groups, lr=method.outer_lr, momentum=method.momentum or 0.0)
    for rows in batches:
        cut = len(rows) * 4 // 5
        if len(rows) == 1:
            continue
        w = flat(views)
        u = w - method.inner_lr * autograd(w, rows[:cut])
        for view, g in zip(views, NET.layout.views([autograd(u, rows[cut:])]).values(), strict=True):
            view.grad = g.clone()
        optimizer.step()
    return flat(views)


def flat(views: list[Tensor]) -> Tensor:
    return torch.cat([p.flat(v.detach()) for p, v in zip(NET.parameters, views, strict=True)])


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_rounds_and_tests_are_those_of_a_slow_version(weights: Any, execution: Any) -> None:
    method = PerFedAvgSplit(**OPTIONS, personal_epochs=2, personal_lr=0.03)
    stages = ("global", "personalized", "stored", "sampled")
    scored = spec(weights=weights, scoring=Scoring(clients="all", stages=stages, average="examples"))
    (outcome,) = Simulation([scored], [FEDERATION], method, NET, Setup(execution=execution, most_padding=100.0)).run()
    streams, w = support_streams(FEDERATION, scored), start()
    left: dict[int, Tensor] = {}
    for index in range(3):
        cohort = sample_cohort(scored, FEDERATION.training, index).tolist()
        sent = {
            c: participation(method, w, streams[c].draw(method.draws(Round(0)), 0, "round", index)[0][0])
            for c in cohort
        }
        n = {c: float(len(FEDERATION.support[c])) if weights == "examples" else 1.0 for c in cohort}
        w = sum((n[c] * sent[c] for c in cohort), torch.zeros_like(w)) / sum(n.values())
        left |= sent
    torch.testing.assert_close(outcome.server, w, rtol=1e-10, atol=1e-11)

    def adapted(client: int) -> Tensor:
        mine = w
        for rows in streams[client].draw(method.personal_draws(), 0, "personalize", 3)[0][0]:
            mine = mine - 0.03 * autograd(mine, rows)
        return mine

    models = {"global": dict.fromkeys(range(8), w), "personalized": {c: adapted(c) for c in range(8)}, "stored": left}
    models["sampled"] = {c: left[c] for c in cohort}
    for stage in stages:
        scores = {s.client: s.loss_sum for s in outcome.scores if s.stage == stage}
        assert scores.keys() == models[stage].keys()
        for client, loss in scores.items():
            rows = FEDERATION.query[client]
            logits = NET.logits([models[stage][client]], FEDERATION.x[rows].double() / 255)
            expected = F.cross_entropy(logits, torch.from_numpy(FEDERATION.labels[rows]), reduction="sum")
            assert loss == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize("changes", [{}, {"batches": "static"}, {"batch": 3}], ids=str)
def test_loop_and_stack_agree_on_ragged_augmented_minibatches(changes: dict[str, Any]) -> None:
    ragged = spec(**{"augment": "crop-flip", "cohort": 6, **changes})
    looped, stacked = (
        Simulation(
            [ragged], [FEDERATION], PerFedAvgSplit(**OPTIONS), DROPPING, Setup(execution=e, most_padding=100.0)
        ).run()[0]
        for e in EXECUTIONS
    )
    close(looped.server, stacked.server)
    assert (looped.server - start()).norm() > 1e-3
