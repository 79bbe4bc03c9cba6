"""Rounds in which everyone trains, some uploads arrive, and personal models are scored before aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from pflbench.engine.run import arrived, sample_cohort
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.methods.base import Batches, Draw, Method, Objective, Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.pfedme import PFedMe
from pflbench.result import Score
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import SIZES, tiny_features, tiny_federation, tiny_spec

FEDERATION = tiny_federation(0)
TRAINING = int(FEDERATION.training.sum())


def spec(**changes: Any) -> RunSpec:
    scoring = Scoring(
        clients="training", stages=("global", "personalized"), average="examples", moment="before-aggregation"
    )
    fields = {"cohort": TRAINING, "arrival": 0.4, "batches": "reshuffled", "scoring": scoring, "rounds": 3}
    return tiny_spec().model_copy(update=fields | changes)


def run(method: Method, setup: Setup | None = None, **changes: Any) -> RunOutcome:
    (outcome,) = Simulation([spec(**changes)], [FEDERATION], method, tiny_features(), setup).run()
    assert outcome.failure is None
    return outcome


def test_at_least_two_uploads_arrive_and_a_tenth_on_average() -> None:
    everyone = tiny_spec(clients=102, cohort=100).model_copy(update={"arrival": 0.1})
    training = np.arange(102) < 100
    counts = []
    for index in range(3000):
        cohort = sample_cohort(everyone, training, index)
        there = arrived(everyone, cohort, index)
        assert set(there) <= set(cohort) and len(set(there)) == len(there) >= 2
        counts.append(len(there))
    # Binomial(100, 0.1), hardly changed by the redraws of 0.03 %: standard error 3 / sqrt(3000).
    assert np.mean(counts) == pytest.approx(10, abs=0.2) and np.std(counts) == pytest.approx(3, abs=0.2)
    few = tiny_spec(clients=7, cohort=5).model_copy(update={"arrival": 0.01})
    assert all(len(arrived(few, np.arange(5), index)) == 2 for index in range(20))
    assert np.array_equal(arrived(everyone, cohort, 2999), there)


@dataclass(frozen=True)
class Counting(Method):
    """The state counts participations, the server the uploads; only used clients draw."""

    commits: ClassVar[Literal["arrived", "trained"]] = "trained"

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return Draw(whole=True), Draw(epochs=1, for_upload=True)

    def init(self, new: Any, clients: int) -> Tensor:
        return new() * 0

    def init_client(self, server: Tensor, new: Any) -> Tensor:
        return torch.zeros(2, dtype=torch.float64)

    def client(self, f: Objective, server: Tensor, state: Tensor, *taken: Batches, round: Round) -> Any:
        whole, used = taken
        assert len(whole) == 1
        return server + 1, state + torch.tensor([1.0, float(len(used) > 0)], dtype=torch.float64)

    def diagnose(self, state: Tensor) -> dict[str, Tensor]:
        return {"trained": state[0], "used": state[1]}


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_everyone_trains_and_who_sends_is_used(execution: Any) -> None:
    asked = spec(rounds=5, scoring=Scoring(clients="training"))
    (outcome,) = Simulation([asked], [FEDERATION], Counting(), tiny_features(), Setup(execution=execution)).run()
    assert outcome.failure is None and torch.equal(outcome.server, torch.full_like(outcome.server, 5.0))
    sent = np.zeros(len(SIZES))
    for index in range(5):
        sent[arrived(asked, sample_cohort(asked, FEDERATION.training, index), index)] += 1
    named = {(m.client, m.name): m.value for m in outcome.metrics if m.round == 5}
    for client in np.flatnonzero(FEDERATION.training).tolist():
        assert named[client, "trained"] == 5 and named[client, "used"] == sent[client]
    assert 0 < sent.sum() < 5 * TRAINING


@dataclass(frozen=True)
class Leaves(FedAvg):
    """FedAvg whose personal model is what its own training left."""

    epochs: int = 1
    lr: float = 0.05
    personal_of = "training"

    def personal_model(self, f, server, state, *batches, round, upload=None):
        w = server if upload is None else upload
        return {"personalized": w, "twice": w}


class Keeps(Counting):
    """Uploads how often it trained."""

    personal_of = "training"

    def client(self, f: Objective, server: Tensor, state: Tensor, *taken: Batches, round: Round) -> Any:
        return server + state[0], state + 1

    def personal_model(self, f, server, state, *, round, upload=None):
        return upload - state[0] + 1  # the server's


def personal(outcome: RunOutcome, stage: str = "personalized") -> list[Score]:
    return sorted(s for s in outcome.scores if s.stage == stage)


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_personal_models_are_scored_before_aggregation(execution: Any) -> None:
    outcome = run(Leaves(), Setup(execution=execution), arrival=1.0)
    assert [s.client for s in personal(outcome)] == np.flatnonzero(FEDERATION.training).tolist()
    recorded = {s.client: s.loss_sum for s in personal(outcome, "twice")}
    assert recorded == {s.client: s.loss_sum for s in personal(outcome)}
    after = {s.client: s.loss_sum for s in outcome.scores if s.stage == "global"}
    assert all(abs(s.loss_sum - after[s.client]) > 1e-6 for s in personal(outcome))


def test_where_nobody_of_a_portion_is_scored_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """pFedMe's personal models are those of the round's training: nothing has to make them, for nobody."""
    monkeypatch.setattr("pflbench.engine.client_map.PORTION", 1)
    scoring = spec().scoring.model_copy(update={"first": 1, "stages": ("personalized",)})
    outcome = run(PFedMe(), scoring=scoring)
    assert {s.client for s in personal(outcome)} == {int(np.flatnonzero(FEDERATION.training)[0])}


def test_after_aggregation_personal_models_come_from_the_new_server_state() -> None:
    scoring = spec().scoring.model_copy(update={"moment": "after-aggregation"})
    outcome = run(Leaves(), scoring=scoring)
    after = {s.client: s.loss_sum for s in outcome.scores if s.stage == "global"}
    assert {s.client: s.loss_sum for s in personal(outcome)} == after


@pytest.mark.parametrize("cohort", [2, TRAINING])
@pytest.mark.parametrize("method", [Leaves(), Keeps(), FedAvg(epochs=1, lr=0.05, personal_epochs=1)])
def test_scoring_moves_nothing(method: Method, cohort: int) -> None:
    """Scored after every round, with everyone training for it, also those who were not asked, the run is the same."""
    often, once = run(method, Setup(evaluate_every=1), cohort=cohort), run(method, cohort=cohort)
    assert torch.equal(often.server, once.server)
    assert [s for s in often.scores if s.round == 3] == list(once.scores)
    assert {s.round for s in often.scores} == {1, 2, 3}


def test_the_global_model_on_test_rows_is_scored_once() -> None:
    from dataclasses import replace

    federation = replace(FEDERATION, test=np.arange(30))
    scoring = Scoring(clients="training", global_on="test-set", average="examples")
    asked = spec(scoring=scoring)
    (outcome,) = Simulation([asked], [federation], FedAvg(epochs=1, lr=0.05), tiny_features()).run()
    (score,) = outcome.scores
    net = tiny_features()
    logits = net.logits([outcome.server], federation.x[:30].double() / 255)
    hits = (logits.argmax(1) == torch.from_numpy(federation.labels[:30])).sum().item()
    assert score.stage == "global" and score.client == -1
    assert (score.correct, score.count, score.accuracy) == (hits, 30, hits / 30)


@pytest.mark.parametrize("lanes", [1, 2])
def test_portions_change_nothing(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(Leaves())
    for module in ("simulate", "client_map"):
        monkeypatch.setattr(f"pflbench.engine.{module}.PORTION", 1)
    portions = run(Leaves(), Setup(lanes=lambda: lanes))
    assert torch.equal(whole.server, portions.server) and sorted(whole.scores) == sorted(portions.scores)


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_states_are_scored_in_portions_too(execution: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients' states may be far more than fits into memory."""
    from pflbench.engine.evaluate import Scorer

    scoring = spec().scoring.model_copy(update={"moment": "after-aggregation"})
    whole, sizes, personal = run(Leaves(), Setup(execution=execution), scoring=scoring), [], Scorer.personal
    monkeypatch.setattr("pflbench.engine.client_map.PORTION", 2)
    monkeypatch.setattr(Scorer, "personal", lambda *args: sizes.append(len(args[1])) or personal(*args))
    portions = run(Leaves(), Setup(execution=execution), scoring=scoring)
    assert (whole.scores, whole.metrics) == (portions.scores, portions.metrics)
    assert sizes == ([2] * (TRAINING // 2) + [1] * (TRAINING % 2) if execution == "loop" else [TRAINING])


def test_client_sizes_are_logged_with_personal_scores() -> None:
    sizes = {m.client: m.value for m in run(Leaves()).metrics if m.name == "support"}
    assert sizes == {c: len(FEDERATION.support[c]) for c in np.flatnonzero(FEDERATION.training).tolist()}
