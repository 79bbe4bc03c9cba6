"""What kind of round it is, who is asked, and which moments and models are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from pflbench.engine.batches import Reshuffled
from pflbench.engine.run import coin, sample_cohort
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Draw, Method, Objective, Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.scaffold import Scaffold
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import SIZES, tiny_features, tiny_federation, tiny_spec

EXECUTIONS = ("loop", "vectorized")
TRAINING = len(SIZES) - 2


def run(method: Method, *specs: RunSpec, execution: str = "loop", **setup: Any) -> list[RunOutcome]:
    federations = [tiny_federation(spec.seed) for spec in specs]
    outcomes = Simulation(specs, federations, method, tiny_features(), Setup(execution=execution, **setup)).run()
    for outcome in outcomes:
        assert outcome.failure is None, outcome.failure
    return outcomes


def spec(seed: int = 0, *, rounds: int = 4, **scoring: Any) -> RunSpec:
    how = Scoring(**{"clients": "all", "stages": ("global",), **scoring})
    return tiny_spec(seed, rounds=rounds).model_copy(update={"scoring": how, "batches": "reshuffled"})


@dataclass(frozen=True)
class Coined(Method):
    """One minibatch in heads rounds, two in tails; client state: rounds of each kind."""

    version: ClassVar[int] = 1
    joins = "everyone"

    def draws(self, round: Round) -> tuple[Draw, ...]:
        assert round.coin is not None
        return (Draw(steps=1),) if round.coin < 0.5 else (Draw(steps=1), Draw(steps=1))

    def init_client(self, server: Any, new: Any) -> Tensor:
        return server.new_zeros(3)

    def client(self, f: Objective, server: Tensor, state: Tensor, *taken: Batches, round: Round) -> Any:
        assert round.coin is None and all(len(drawn) == 1 for drawn in taken)
        return server, state + server.new_tensor([len(taken) == 1, len(taken) == 2, 1])

    def server(self, server: Tensor, uploads: Tensor, n: Any, round: Round) -> Tensor:
        assert round.coin is None and len(uploads) == TRAINING
        return server

    def diagnose(self, state: Tensor) -> dict[str, Tensor]:
        return dict(zip(("heads", "tails", "rounds"), state, strict=True))


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_round_is_of_one_kind_for_all_clients_of_a_seed(execution: str) -> None:
    specs = [spec(seed, rounds=6) for seed in (0, 1)]
    sides = [[coin(s, i) < 0.5 for i in range(6)] for s in specs]
    assert sides[0] != sides[1]  # so that a stack of both seeds has to be taken apart
    for one, mine in zip(run(Coined(), *specs, execution=execution), sides, strict=True):
        counts = {(m.client, m.name): m.value for m in one.metrics if m.round == 6}
        for client in {client for client, _ in counts}:
            expected = {"heads": sum(mine), "tails": 6 - sum(mine), "rounds": 6}
            assert {name: counts[client, name] for name in expected} == expected
        assert sum(name == "rounds" for _, name in counts) == TRAINING


def test_a_method_that_reports_too_much_of_a_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coined, "diagnose", lambda self, state: {str(i): state[0] for i in range(65)})
    with pytest.raises(UsageError, match=r"diagnose\(\) returned 65 numbers"):
        run(Coined(), spec(0, rounds=1))
    monkeypatch.setattr(Coined, "diagnose", lambda self, state: {str(i): state[0] for i in range(64)})
    (one,) = run(Coined(), spec(0, rounds=1))
    assert len({m.name for m in one.metrics if m.round == 1}) == 64


def test_coins_are_uniform_and_a_seeds_own() -> None:
    coins = np.array([[coin(spec(seed), i) for i in range(400)] for seed in (0, 1)])
    assert coins.min() >= 0 and coins.max() < 1
    assert abs(coins.mean() - 0.5) < 5 / np.sqrt(12 * coins.size)
    assert abs(np.corrcoef(coins)[0, 1]) < 0.25


def test_steps_that_walk_through_passes_see_every_row_once_a_pass() -> None:
    rows = np.arange(100, 123)
    (drawn,), _ = Reshuffled(rows, 10, 0, 7).draw((Draw(steps=7, in_passes=True),), 0, "round", 2)
    assert [len(b) for b in drawn] == [10, 10, 3, 10, 10, 3, 10]
    first, second = np.concatenate(drawn[:3]), np.concatenate(drawn[3:6])
    assert sorted(first) == sorted(second) == rows.tolist() and first.tolist() != second.tolist()
    (again,), _ = Reshuffled(rows, 10, 0, 7).draw((Draw(steps=7, in_passes=True),), 0, "round", 3)
    assert again[0].tolist() != drawn[0].tolist()


def test_the_last_rounds_are_scored_and_nothing_else_changes() -> None:
    (short,), (long,) = run(FedAvg(epochs=1), spec()), run(FedAvg(epochs=1), spec(last=3))
    assert torch.equal(short.server, long.server)
    assert {s.round for s in short.scores} == {4} and {s.round for s in long.scores} == {2, 3, 4}
    assert sorted(short.scores) == sorted(s for s in long.scores if s.round == 4)
    for rounds in (2, 3):
        earlier = run(FedAvg(epochs=1), spec(rounds=rounds))[0].scores
        assert sorted(earlier) == sorted(s for s in long.scores if s.round == rounds)


def test_more_last_rounds_than_rounds_are_all_rounds() -> None:
    (outcome,) = run(FedAvg(epochs=1), spec(rounds=2, last=5))
    assert {s.round for s in outcome.scores} == {1, 2}


def test_a_loss_that_is_not_finite_in_any_of_the_last_rounds_is_a_failure() -> None:
    @dataclass(frozen=True)
    class Stumbles(FedAvg):
        """Deploys nonsense at the first of its looks."""

        def deploy(self, f: Objective, server: Tensor, support: Batches) -> Tensor:
            looks.append(1)
            return server * float("nan") if len(looks) == 1 else server

    looks: list[int] = []
    one = spec(last=2)
    (outcome,) = Simulation([one], [tiny_federation(0)], Stumbles(epochs=1), tiny_features()).run()
    assert outcome.failure is not None and "scoring" in str(outcome.failure)


@dataclass(frozen=True)
class Deploys(FedAvg):
    """FedAvg whose clients use the global model as their own."""

    def personal_model(self, f, server, state, *batches, round):
        return server


@dataclass(frozen=True)
class Keeps(Deploys):
    """Whose clients are said to keep what they sent, too."""

    def personal_model(self, f, server, state, *batches, round, upload=None):
        return server if upload is None else upload


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_models_of_the_last_participation_are_scored(execution: str) -> None:
    one = spec(stages=("global", "stored", "sampled"), last=2)
    (outcome,) = run(Keeps(epochs=1), one, execution=execution)
    (plain,) = run(FedAvg(epochs=1), spec(), execution=execution)
    assert torch.equal(outcome.server, plain.server)
    training = tiny_federation(0).training
    cohorts = [sorted(sample_cohort(one, training, i).tolist()) for i in range(4)]
    for done in (3, 4):
        found = {
            stage: {s.client: s for s in outcome.scores if (s.stage, s.round) == (stage, done)}
            for stage in ("stored", "sampled")
        }
        assert sorted(found["sampled"]) == cohorts[done - 1]
        assert sorted(found["stored"]) == sorted({c for cohort in cohorts[:done] for c in cohort})
        for client, score in found["sampled"].items():
            other = found["stored"][client]
            assert score.correct == other.correct and score.loss_sum == pytest.approx(other.loss_sum, rel=1e-12)
    # A client that sat the last round out is scored as it was left before.
    absent = sorted(set(cohorts[0] + cohorts[1] + cohorts[2]) - set(cohorts[3]))
    assert absent
    by = {(s.client, s.round): s.loss_sum for s in outcome.scores if s.stage == "stored"}
    assert all(by[client, 3] == pytest.approx(by[client, 4], rel=1e-12) for client in absent)


def test_stored_models_are_of_the_clients_scored_and_sampled_ones_of_the_whole_cohort() -> None:
    (outcome,) = run(Keeps(epochs=1), spec(stages=("personalized", "stored", "sampled"), first=4))
    cohorts = [sample_cohort(spec(), tiny_federation(0).training, i).tolist() for i in range(4)]
    met = {
        stage: {s.client for s in outcome.scores if s.stage == stage} for stage in ("personalized", "stored", "sampled")
    }
    assert met["personalized"] == {0, 1, 2, 3}
    assert met["stored"] == {0, 1, 2, 3} & {client for cohort in cohorts for client in cohort}
    assert met["sampled"] == set(cohorts[3]) and not met["sampled"] <= met["personalized"]


def test_a_method_that_keeps_no_model_has_no_such_stage() -> None:
    with pytest.raises(UsageError, match=r"Scaffold .* personal_model"):
        run(Scaffold(epochs=1), spec(stages=("stored",)))


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_mean_features_are_those_of_the_personal_model_on_the_support(execution: str) -> None:
    one = spec(stages=("personalized",), features=True, first=3, last=2).model_copy(update={"augment": "crop-flip"})
    (outcome,) = run(Deploys(epochs=1), one, execution=execution)
    network, federation = tiny_features(), tiny_federation(0)
    x = federation.x.double() / 255
    for client in range(3):
        stored = [
            m.value for m in outcome.metrics if m.client == client and m.round == 4 and m.name.startswith("feature/")
        ]
        expected = network.represent([outcome.server], x[torch.from_numpy(federation.support[client])]).mean(0)
        torch.testing.assert_close(torch.tensor(stored, dtype=torch.float64), expected, rtol=1e-12, atol=1e-14)
    assert {m.round for m in outcome.metrics if m.name == "feature/0"} == {3, 4}
    assert {m.client for m in outcome.metrics if m.name == "feature/0"} == {0, 1, 2}
