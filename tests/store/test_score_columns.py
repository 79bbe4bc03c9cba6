"""Scores by column say what rows say."""

import random

import numpy as np
import pytest

from pflbench.report.reading import Scored, by_client
from pflbench.result import Metric, Score
from pflbench.store.columns import metrics_of, scores_of


def some(rounds: int, cohort: int) -> list[Score]:
    """Scores of cohorts that differ from round to round, in no order."""
    chance = random.Random(7)
    rows = [
        Score("stored", round, step, client, 1, chance.randrange(5, 9), 0.5, chance.random())
        for round in range(1, rounds + 1)
        for client in chance.sample(range(12), cohort)
        for step in range(3)
    ]
    chance.shuffle(rows)
    return [*rows, Score("global", rounds, 0, -1, 3, 4, 0.1, 0.75)]


@pytest.mark.parametrize("cohort", [12, 5])
def test_moments_hold_every_score_of_a_stage(cohort: int) -> None:
    rows = some(4, cohort)
    columns = scores_of(rows)
    assert columns == rows and list(columns) == rows and len(columns) == len(rows) and columns[-1] == rows[-1]
    assert scores_of(columns) is columns and not columns.at("personalized")
    assert list(columns.at("stored")) == [1, 2, 3, 4] and list(columns.at("global")) == [4]
    for round, moment in columns.at("stored").items():
        here = {(s.step, s.client): s for s in rows if (s.stage, s.round) == ("stored", round)}
        assert moment.steps == (0, 1, 2) and moment.clients == tuple(sorted({client for _, client in here}))
        for (step, client), score in here.items():
            place = step, moment.clients.index(client)
            assert (moment.accuracies[place], moment.counts[place]) == (score.accuracy, score.count)


def test_a_moment_knows_which_scores_are_missing() -> None:
    rows = [Score("finetuned", 1, step, client, 1, 2, 0.5, 0.5) for step in (0, 1) for client in (0, 1)]
    (whole,), (part,) = (scores_of(some).at("finetuned").values() for some in (rows, rows[:-1]))
    assert whole.scored is None and part.scored is not None and part.scored.tolist() == [[True, True], [True, False]]


def test_metrics_by_column() -> None:
    rows = [Metric(0, 1, "support", 5.0), Metric(0, 0, "support", 7.0), Metric(3, 0, "support", 1.0)]
    assert metrics_of(rows) == rows and metrics_of(rows).named("support", 0) == {1: 5.0, 0: 7.0}
    assert metrics_of(rows).named("tau", 0) == {} == metrics_of(()).named("support", 0)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_clients_mean_is_over_the_rounds_that_it_was_scored_in(steps: int) -> None:
    draw = np.random.default_rng(0)
    rounds = []
    for number in range(20):
        clients = tuple(sorted(draw.choice(30, size=int(draw.integers(1, 30)), replace=False).tolist()))
        values = draw.random((steps, len(clients)))
        rounds.append(Scored(clients, values, np.array(clients) + 1.0, number, tuple(range(steps))))
    found = by_client(rounds)
    assert found.clients == tuple(sorted({client for one in rounds for client in one.clients}))
    for place, client in enumerate(found.clients):
        own = [one.values[:, one.clients.index(client)] for one in rounds if client in one.clients]
        assert np.array_equal(found.values[:, place], np.mean(own, axis=0)) and found.counts[place] == client + 1
