from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pflbench.engine import host
from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import Diverged, UsageError
from pflbench.methods.base import Batch, Batches, Draw, Method, Objective, Round, steps
from pflbench.methods.ditto import Ditto
from pflbench.methods.fedavg import FedAvg
from pflbench.result import Score
from pflbench.spec import Finetune, Scoring
from pflbench.testing import assert_same, nudged, tiny_federation, tiny_network, tiny_spec

EXECUTIONS = ("loop", "vectorized")


def close(a: Tensor, b: Tensor, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_cohorts_are_distinct_training_clients_that_change() -> None:
    training = tiny_federation(0).training
    spec = tiny_spec(cohort=4)
    cohorts = [sample_cohort(spec, training, index) for index in range(200)]
    for cohort in cohorts:
        assert len(set(cohort.tolist())) == 4 and training[cohort].all()
    often = np.bincount(np.concatenate(cohorts), minlength=8) / 200
    assert (often[~training] == 0).all() and (np.abs(often[training] - 4 / 6) < 0.15).all()
    other = [sample_cohort(tiny_spec(1, cohort=4), training, index).tolist() for index in range(200)]
    assert other != [c.tolist() for c in cohorts]


def test_a_cohort_depends_on_seed_and_round_alone() -> None:
    training = tiny_federation(0).training
    spec = tiny_spec()
    forward = [sample_cohort(spec, training, i).tolist() for i in range(5)]
    assert forward == [sample_cohort(spec, training, i).tolist() for i in reversed(range(5))][::-1]
    longer = tiny_spec(rounds=50).model_copy(update={"batch": 7, "model": "other"})
    assert forward == [sample_cohort(longer, training, i).tolist() for i in range(5)]


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_rounds_are_a_slow_loops(weights: Any) -> None:
    """FedAvg by steps, written out: cohorts, cursors that go on, and the server's weights."""

    @dataclass(frozen=True)
    class BySteps(FedAvg):
        def draws(self, round: Round) -> tuple[Draw, ...]:
            return (Draw(steps=3),)

    spec, federation = tiny_spec(rounds=6).model_copy(update={"weights": weights}), tiny_federation(0)
    (outcome,) = Simulation([spec], [federation], BySteps(lr=0.05), tiny_network()).run()
    f, w = LoopObjective(Task(tiny_network(), federation.x)), tiny_network().init(0).double()
    streams, cursors = support_streams(federation, spec), dict.fromkeys(range(8), 0)
    for index in range(6):
        models, sizes = [], []
        for client in sample_cohort(spec, federation.training, index).tolist():
            local, batches = w, streams[client].batches
            for _ in range(3):
                rows = batches[cursors[client] % len(batches)]
                cursors[client] += 1
                batch = Batch(torch.from_numpy(rows), torch.from_numpy(federation.labels[rows]))
                local = local - 0.05 * f.grad(local, batch)
            models.append(local)
            sizes.append(len(federation.support[client]) if weights == "examples" else 1)
        w = sum(m * n / sum(sizes) for m, n in zip(models, sizes, strict=True))
    assert max(cursors.values()) > 6
    close(outcome.server, w, 1e-8)  # batch norm on small batches multiplies rounding


def test_client_states_are_kept_between_participations() -> None:
    class Counts(Method):
        """Uploads how often this client has taken part."""

        def draws(self, round: Round) -> tuple[Draw, ...]:
            return ()

        def init_client(self, server: Tensor, new: Any) -> Tensor:
            return torch.zeros((), dtype=torch.float64)

        def client(self, f: Objective, server: Tensor, state: Tensor, *taken: Batches, round: Round) -> Any:
            return state + 1, state + 1

        def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
            seen.append(sorted(uploads.tolist()))
            return server

    spec, federation = tiny_spec(rounds=5), tiny_federation(0)
    times = dict.fromkeys(range(8), 0)
    expected = []
    for index in range(5):
        cohort = sample_cohort(spec, federation.training, index).tolist()
        for client in cohort:
            times[client] += 1
        expected.append(sorted(float(times[c]) for c in cohort))
    for execution in EXECUTIONS:
        seen: list[list[float]] = []
        Simulation([spec], [federation], Counts(), tiny_network(), Setup(execution=execution)).run()
        assert seen == expected


def test_every_finished_round_is_announced_and_numbered() -> None:
    done: list[int] = []
    rounds: list[int] = []

    class Idle(FedAvg):
        def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
            if not server.is_meta:  # there its costs are counted
                rounds.append(round.index)
            return server

    Simulation(
        [tiny_spec(rounds=4)],
        [tiny_federation(0)],
        Idle(epochs=0),
        tiny_network(),
        Setup(after_round=lambda made: done.append(made.rounds)),
    ).run()
    assert done == [1, 2, 3, 4] and rounds == [0, 1, 2, 3]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("method", [FedAvg(epochs=2, lr=0.05), Ditto(steps=2)], ids=["fedavg", "ditto"])
def test_seeds_with_pools_of_different_sizes_run_as_if_alone(execution: Any, method: Any) -> None:
    specs = [tiny_spec(seed, rounds=3) for seed in (0, 1, 2)]
    federations = [
        tiny_federation(0, sizes=(13, 26, 9, 31, 18, 22, 5, 15)),
        tiny_federation(1, sizes=(8,) * 8),
        tiny_federation(2, sizes=(40, 5, 5, 12, 7, 9, 30, 6)),
    ]
    together = Simulation(specs, federations, method, tiny_network(), Setup(execution=execution)).run()
    for spec, federation, outcome in zip(specs, federations, together, strict=True):
        (alone,) = Simulation([spec], [federation], method, tiny_network()).run()
        case_close(outcome, alone)


def case_close(a: RunOutcome, b: RunOutcome) -> None:
    """Runs agree in what gradients determine: not in biases in front of a normalization, under Adam."""
    assert a.failure is None and b.failure is None
    assert len(a.scores) == len(b.scores) > 0
    for x, y in zip(a.scores, b.scores, strict=True):
        assert x[:4] == y[:4] and x.count == y.count
        assert x.loss_sum == pytest.approx(y.loss_sum, rel=1e-9)


def test_several_rounds_are_checked_with_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read waits for a GPU; the first round that is not finite is named."""
    reads: list[str] = []
    read = host.read
    monkeypatch.setattr(host, "read", lambda x, reason: (reads.append(reason), read(x, reason))[1])
    (run,) = Simulation([tiny_spec(0, rounds=9)], [tiny_federation(0)], FedAvg(epochs=1, lr=0.05), tiny_network()).runs
    run.check()
    assert not reads
    run.unchecked = [(index, torch.tensor(index not in (5, 7))) for index in range(3, 9)]
    run.check()
    assert reads == ["finite"] and not run.unchecked
    assert isinstance(run.failure, Diverged) and "diverged in round 6 of 9" in str(run.failure)


class Fragile(FedAvg):
    """FedAvg that overflows on label 2."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        def step(w: Tensor, b: Batch) -> Tensor:
            return (w - self.lr * f.grad(w, b)) * torch.where((b.labels == 2).any(), torch.inf, 1.0)

        return steps(step, server, taken[0]), state


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("bad", [0, 1])
def test_a_diverging_seed_ends_alone(execution: Any, bad: int) -> None:
    specs = [tiny_spec(seed, rounds=3) for seed in (0, 1)]
    federations = [tiny_federation(0), tiny_federation(1, sizes=(9,) * 8)]
    good = 1 - bad
    federations[good] = replace(federations[good], labels=np.minimum(federations[good].labels, 1))
    method, done = Fragile(epochs=1, lr=0.05), []
    setup = Setup(execution=execution, after_round=lambda made: done.append(made.rounds))
    outcomes = Simulation(specs, federations, method, tiny_network(), setup).run()
    failed, finished = outcomes[bad], outcomes[good]
    assert isinstance(failed.failure, Diverged) and failed.scores == ()
    assert "diverged in round 1 of 3" in str(failed.failure)
    assert done == [1, 2, 3]
    alone = Setup(execution=execution)
    (expected,) = Simulation([specs[good]], [federations[good]], method, tiny_network(), alone).run()
    case_close(finished, expected)
    close(finished.server, expected.server)


def test_a_group_whose_seeds_all_diverge_stops() -> None:
    done: list[int] = []
    method = FedAvg(epochs=1, lr=1e308)
    specs, federations = [tiny_spec(s, rounds=5) for s in (0, 1)], [tiny_federation(s) for s in (0, 1)]
    outcomes = Simulation(
        specs, federations, method, tiny_network(), Setup(after_round=lambda made: done.append(made.rounds))
    ).run()
    assert all(isinstance(o.failure, Diverged) and not o.scores for o in outcomes)
    assert len(done) < 5


def test_divergence_while_fine_tuning_is_a_failure_without_scores() -> None:
    spec = tiny_spec().model_copy(
        update={"scoring": Scoring(stages=("finetuned",), finetune=Finetune(steps=4, lr=1e308))}
    )
    (outcome,) = Simulation([spec], [tiny_federation(0)], FedAvg(epochs=1), tiny_network()).run()
    assert isinstance(outcome.failure, Diverged) and "while scoring" in str(outcome.failure)
    assert outcome.scores == () and torch.isfinite(outcome.server).all()


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_precision_is_the_specs(precision: Any) -> None:
    spec = tiny_spec(rounds=1).model_copy(update={"precision": precision})
    (outcome,) = Simulation([spec], [tiny_federation(0)], FedAvg(epochs=1), tiny_network()).run()
    assert outcome.server.dtype == {"fp32": torch.float32, "fp64": torch.float64}[precision]


def test_float32_runs_agree_with_float64_and_between_executions() -> None:
    method, federation = FedAvg(epochs=1, lr=0.05), tiny_federation(0)

    def server(precision: str, execution: Any, seed: int | None = None) -> Tensor:
        spec = tiny_spec().model_copy(update={"precision": precision})
        sim = Simulation([spec], [federation], method, tiny_network(), Setup(execution=execution))
        if seed is not None:
            sim.runs[0].server = nudged(sim.runs[0].server, seed)
        return sim.run()[0].server

    narrow = server("fp32", "loop")
    controls = [server("fp32", "loop", seed) for seed in range(2)]
    assert_same(server("fp64", "loop"), narrow, *controls)
    assert_same(server("fp32", "vectorized"), narrow, *controls)


def test_a_server_that_changes_its_states_shape_is_named():
    class Growing(FedAvg):
        def server(self, server, uploads, n, round):
            return torch.cat([server, server])

    with pytest.raises(UsageError, match=r"server\(\)"):
        Simulation([tiny_spec(rounds=1)], [tiny_federation(0)], Growing(epochs=1), tiny_network()).run()


def rows_at(outcome: RunOutcome, round: int) -> list[Score]:
    return [score for score in outcome.scores if score.round == round]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("method", [FedAvg(epochs=1, lr=0.05), Ditto(steps=2)], ids=["fedavg", "ditto"])
def test_scoring_on_the_way_changes_nothing(execution: Any, method: Any) -> None:
    federations = [tiny_federation(seed) for seed in (0, 1)]

    def run(rounds: int, every: int | None = None) -> list[RunOutcome]:
        specs = [tiny_spec(seed, rounds=rounds) for seed in (0, 1)]
        setup = Setup(execution=execution, evaluate_every=every)
        return Simulation(specs, federations, method, tiny_network(), setup).run()

    for often, once, short in zip(run(5, 2), run(5), run(2), strict=True):
        assert sorted({score.round for score in often.scores}) == [2, 4, 5]
        assert rows_at(often, 5) == list(once.scores) == rows_at(once, 5)
        assert rows_at(often, 2) == list(short.scores)
        assert torch.equal(often.server, once.server)
        assert len(rows_at(often, 4)) == len(once.scores) > 0


@pytest.mark.parametrize(
    ("every", "rounds"), [(1, [1, 2, 3]), (3, [3]), (5, [3]), (None, [3])], ids=["all", "last", "never", "off"]
)
def test_the_last_round_is_scored_once(every: int | None, rounds: list[int]) -> None:
    setup = Setup(evaluate_every=every)
    (outcome,) = Simulation([tiny_spec(rounds=3)], [tiny_federation(0)], FedAvg(epochs=1), tiny_network(), setup).run()
    moments = [(s.stage, s.round, s.step, s.client) for s in outcome.scores]
    assert len(set(moments)) == len(moments) and sorted({s.round for s in outcome.scores}) == rounds


def test_a_simulation_can_be_stepped_and_scored_by_hand() -> None:
    (expected,) = Simulation([tiny_spec(rounds=3)], [tiny_federation(0)], FedAvg(epochs=1), tiny_network()).run()
    simulation = Simulation([tiny_spec(rounds=3)], [tiny_federation(0)], FedAvg(epochs=1), tiny_network())
    for _ in range(3):
        simulation.step()
    simulation.score()
    assert simulation.rounds == 3 and tuple(simulation.runs[0].scores) == expected.scores
