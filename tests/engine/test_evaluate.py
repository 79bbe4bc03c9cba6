"""Scores against a slow loop over clients, updates and batches on a torch module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pflbench.engine.run import scored_clients
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Batches, Draw, Method, Objective, Round
from pflbench.result import Score
from pflbench.spec import Finetune, RunSpec, Scoring
from pflbench.testing import tiny_federation, tiny_network, tiny_spec

ModuleOf = Callable[[Tensor], nn.Module]
FEDERATION = tiny_federation(0, sizes=(13, 66, 9, 47, 18, 22, 5, 30))
TUNING = Finetune(steps=12, lr=0.1, decay=0.8, every=5)


class Frozen(Method):
    """Never trains: the initial model is what is scored."""

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (Draw(steps=1),)

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server, state


def spec(**scoring: Any) -> RunSpec:
    fields = {"stages": ("global", "finetuned"), "finetune": TUNING, "clients": "all"} | scoring
    return tiny_spec(rounds=1).model_copy(update={"scoring": Scoring(**fields), "tail": "drop"})


def scores(execution: Any = "loop", **scoring: Any) -> tuple[Score, ...]:
    (outcome,) = Simulation([spec(**scoring)], [FEDERATION], Frozen(), tiny_network(), Setup(execution=execution)).run()
    assert outcome.failure is None
    return outcome.scores


def slow_curve(module: nn.Module, client: int) -> list[tuple[int, int, float, list[float]]]:
    """Per entry: correct, count, summed loss, accuracy of each query batch."""

    def xy(rows: np.ndarray) -> tuple[Tensor, Tensor]:
        return FEDERATION.x[rows].double() / 255, torch.from_numpy(FEDERATION.labels[rows])

    query, support = FEDERATION.query[client], FEDERATION.support[client]
    tested = [query[i : i + 5] for i in range(0, len(query), 5)]
    if len(tested) > 1 and len(tested[-1]) == 1:
        tested = tested[:-1]
    full = [support[i : i + 5] for i in range(0, len(support) - 4, 5)] or [support]
    entries = []
    for t in range(13):
        correct, count, loss, accuracies = 0, 0, 0.0, []
        for rows in tested:
            x, y = xy(rows)
            # One lone query row: torch's normalization refuses it, and what remains is the shift.
            logits = module(x) if len(x) > 1 else lone(module, x)
            hits = int((logits.argmax(1) == y).sum())
            correct, count = correct + hits, count + len(rows)
            loss += F.cross_entropy(logits, y, reduction="sum").item()
            accuracies.append(hits / len(rows))
        entries.append((correct, count, loss, accuracies))
        module.zero_grad()
        x, y = xy(full[t % len(full)])
        F.cross_entropy(module(x), y).backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * 0.8 ** (t // 5) * p.grad
    return entries


def lone(module: nn.Module, x: Tensor) -> Tensor:
    for layer in module:
        x = layer.bias.expand_as(x) if isinstance(layer, nn.BatchNorm1d) else layer(x)
    return x


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_the_curve_is_a_slow_loops(execution: str, tiny_module: ModuleOf) -> None:
    found = scores(execution)
    assert [len(FEDERATION.query[c]) for c in (6, 1, 3)] == [1, 16, 11]  # lone, tail of one twice
    for client in range(8):
        mine = [s for s in found if s.client == client]
        expected = slow_curve(tiny_module(tiny_network().init(0).double()), client)
        assert [(s.stage, s.step) for s in mine] == [("global", 0), *(("finetuned", t) for t in range(13))]
        for s in mine:
            correct, count, loss, accuracies = expected[s.step]
            assert (s.correct, s.count, s.round) == (correct, count, 1)
            assert s.loss_sum == pytest.approx(loss, rel=1e-8)
            assert s.accuracy == pytest.approx(np.mean(accuracies), abs=1e-12)


def test_the_rate_decays_every_fifth_update(tiny_module: ModuleOf) -> None:
    """Without decay the entries are equal up to entry 5 and differ from entry 6 on."""
    decayed, steady = scores(), scores(finetune=TUNING.model_copy(update={"decay": 1.0}))
    for a, b in zip(decayed, steady, strict=True):
        assert (a.loss_sum == b.loss_sum) == (a.step <= 5)


def test_the_global_stage_is_entry_zero() -> None:
    found = scores()
    start = {s.client: s for s in found if s.stage == "finetuned" and s.step == 0}
    for s in found:
        if s.stage == "global":
            assert s[3:] == start[s.client][3:]


def test_accuracy_averages_batches_or_examples() -> None:
    """Unequal batches: the mean of batch accuracies is not correct / count."""
    by_batch, by_example = scores(average="batches"), scores(average="examples")
    assert [s[:7] for s in by_batch] == [s[:7] for s in by_example]
    assert all(s.accuracy == pytest.approx(s.correct / s.count) for s in by_example)
    ragged = {c for c in range(8) if len(FEDERATION.query[c]) % 5 > 1 and len(FEDERATION.query[c]) > 5}
    different = {a.client for a, b in zip(by_batch, by_example, strict=True) if abs(a.accuracy - b.accuracy) > 1e-9}
    assert different and different <= ragged


def test_stages_are_scored_as_asked() -> None:
    only_global = scores(stages=("global",), finetune=None)
    assert {(s.stage, s.step) for s in only_global} == {("global", 0)} and len(only_global) == 8
    assert only_global == tuple(s for s in scores() if s.stage == "global")
    assert {s.stage for s in scores(stages=("finetuned",))} == {"finetuned"}


def test_which_clients_are_scored() -> None:
    training = np.array([True, False, True, False, False])
    for clients, expected in (("held-out", [1, 3, 4]), ("training", [0, 2]), ("all", [0, 1, 2, 3, 4])):
        for first in (None, 1, 2, 10):
            assert scored_clients(Scoring(clients=clients, first=first), training).tolist() == expected[:first]


def test_scoring_fewer_clients_changes_no_score() -> None:
    held_out = np.flatnonzero(~FEDERATION.training).tolist()
    everyone = scores()
    assert scores(clients="held-out") == tuple(s for s in everyone if s.client in held_out)
    assert scores(clients="held-out", first=1) == tuple(s for s in everyone if s.client == held_out[0])


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_a_client_without_support_is_scored_as_the_others_are(execution: Any) -> None:
    """It has no minibatch that a model could have been tuned on last."""
    support = list(FEDERATION.support)
    held_out = int(np.flatnonzero(~FEDERATION.training)[0])
    support[held_out] = support[held_out][:0]
    emptied = replace(FEDERATION, support=tuple(support))
    untuned = spec(stages=("global",), finetune=None).model_copy(update={"batches": "reshuffled"})
    (with_none, as_before) = (
        Simulation([untuned], [federation], Frozen(), tiny_network(), Setup(execution=execution)).run()[0].scores
        for federation in (emptied, FEDERATION)
    )
    assert [(s.client, s.correct) for s in with_none] == [(s.client, s.correct) for s in as_before]
