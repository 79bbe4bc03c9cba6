from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pflbench.errors import PflbenchError
from pflbench.report.reading import average, by_client, scored
from pflbench.result import Metric, RunResult, Score
from pflbench.spec import Scoring
from pflbench.suite.cells import ReadAs, Reading
from pflbench.testing import tiny_spec

SPEC = tiny_spec(clients=9, training_clients=9, scoring=Scoring())


def score(stage: str, round: int, step: int, client: int, accuracy: float, count: int = 10) -> Score:
    return Score(stage, round, step, client, 0, count, 0.0, accuracy)


def result(scores: Sequence[Score], sizes: dict[int, float] | None = None, last: int = 1) -> RunResult:
    metrics = [Metric(0, client, "support", size) for client, size in (sizes or {}).items()]
    spec = SPEC.model_copy(update={"scoring": SPEC.scoring.model_copy(update={"last": last})})
    return RunResult(
        spec, tuple(scores), metrics=(*metrics, Metric(0, 0, "other", 99.0), Metric(2, 0, "support", 99.0))
    )


def read(
    scores: Sequence[Score], reading: Reading, sizes: dict[int, float] | None = None, last: int = 1
) -> list[float]:
    run = result(scores, sizes, last)
    return average(scored(run, reading), reading, run).tolist()


SCORES = [
    score("global", 1, 0, 0, 0.9),
    score("global", 2, 0, 0, 0.25),
    score("global", 2, 0, 1, 0.75, count=1000),
    score("finetuned", 2, 0, 0, 0.0),
    score("finetuned", 2, 0, 1, 0.25),
    score("finetuned", 2, 1, 0, 0.5),
    score("finetuned", 2, 1, 1, 1.0),
    score("finetuned", 2, 2, 0, 1.0),
    score("finetuned", 2, 2, 1, 0.5),
]


def test_clients_count_the_same_and_only_the_last_round_does() -> None:
    assert read(SCORES, Reading("global")) == [50.0]


def test_steps_are_read_in_order_and_default_to_the_last() -> None:
    assert read(SCORES, Reading("finetuned", (0, 2, 1))) == [12.5, 75.0, 75.0]
    assert read(SCORES, Reading("finetuned")) == [75.0]


@pytest.mark.parametrize("reading", [Reading("personalized"), Reading("finetuned", (2, 3)), Reading("global", (1,))])
def test_missing_scores_are_an_error(reading: Reading) -> None:
    with pytest.raises(PflbenchError, match=f"Run {SPEC.id} has no scores at stage '{reading.stage}'"):
        read(SCORES, reading)


@pytest.mark.parametrize("read_as", ["last-10", "best"])
def test_a_run_without_any_scores_is_an_error_in_whichever_rounds_it_is_read(read_as: ReadAs) -> None:
    with pytest.raises(PflbenchError, match=f"Run {SPEC.id} has no scores at stage 'global', step 0, after round 2"):
        read([], Reading("global", read_as=read_as))


def test_a_client_without_a_step_is_an_error() -> None:
    with pytest.raises(PflbenchError, match="step 2"):
        read(SCORES[:-1], Reading("finetuned", (2,)))


def test_the_server_on_the_test_set_is_one_row() -> None:
    scores = [score("global", 2, 0, -1, 0.625), *(score("personalized", 2, 0, c, 0.5) for c in (0, 1))]
    assert read(scores, Reading("global")) == [62.5]
    assert read(scores, Reading("global", smallest=1)) == [62.5]  # it has no clients to leave out
    assert read(scores, Reading("personalized")) == [50.0]


# Each round's cohort alone: clients 0 and 1 after the first, client 1 after the second.
COHORTS = [
    score("sampled", 1, 0, 0, 0.2, count=30),
    score("sampled", 1, 0, 1, 0.6, count=10),
    score("sampled", 2, 0, 1, 0.9, count=10),
]


def test_rounds_count_the_same_whoever_is_scored_in_them() -> None:
    assert read(COHORTS, Reading("sampled"), last=2) == pytest.approx([(40 + 90) / 2])
    assert read(COHORTS, Reading("sampled")) == [90.0]


def test_clients_weigh_as_their_test_examples() -> None:
    weighted = Reading("sampled", mean="examples")
    assert read(COHORTS, weighted, last=2) == pytest.approx([((30 * 20 + 10 * 60) / 40 + 90) / 2])
    smallest = Reading("sampled", smallest=1, mean="examples")
    both = [*COHORTS[:2], score("sampled", 2, 0, 0, 0.4)]
    assert read(both, smallest, {0: 9, 1: 3}, last=2) == pytest.approx([(60 + 40) / 2])


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=6))
def test_weighted_accuracies_are_those_of_all_examples_together(clients: list[tuple[int, int]]) -> None:
    # Accuracies that are hits / count: the weighted mean is all hits over all examples.
    scores = [score("global", 2, 0, c, hits / n, n) for c, (hits, n) in enumerate(clients)]
    together = 100 * sum(hits for hits, _ in clients) / sum(n for _, n in clients)
    assert read(scores, Reading("global", mean="examples")) == pytest.approx([together])
    even = [s._replace(count=7) for s in scores]
    assert read(even, Reading("global", mean="examples")) == pytest.approx(read(even, Reading("global")))


def test_equal_rounds_are_equal_to_the_last_bit() -> None:
    # As a matrix product they would not be on every processor, and the best round would not be the first of them.
    generator = np.random.default_rng(0)
    for _ in range(50):
        counts = generator.integers(20, 900, 20)
        hits = generator.integers(0, counts)
        scores = [score("global", 2, 0, c, h / n, n) for c, (h, n) in enumerate(zip(hits, counts, strict=True))]
        assert read(scores, Reading("global", mean="examples")) == [100 * hits.sum() / counts.sum()]


def test_a_round_without_scores_is_an_error() -> None:
    with pytest.raises(PflbenchError, match=r"has no scores at stage 'sampled', step 0, after round 1, that a table"):
        read(COHORTS[2:], Reading("sampled"), last=2)


def test_a_clients_mean_is_over_the_rounds_it_was_scored_in() -> None:
    one = by_client(scored(result(COHORTS, last=2), Reading("sampled")))
    assert one.clients == (0, 1) and one.values.tolist() == [pytest.approx([0.2, 0.75])]
    assert one.counts.tolist() == [30, 10]


PERSONAL = [score("personalized", 2, 0, client, accuracy) for client, accuracy in ((2, 1.0), (0, 0.5), (5, 0.0))]


@pytest.mark.parametrize(
    ("sizes", "smallest", "mean"),
    [
        ({0: 30, 2: 10, 5: 20}, 1, 100.0),
        ({0: 30, 2: 10, 5: 20}, 2, 50.0),
        ({0: 7, 2: 7, 5: 7}, 1, 50.0),  # client 0
        ({0: 7, 2: 7, 5: 7}, 2, 75.0),  # clients 0 and 2
        ({0: 7, 2: 7, 5: 6}, 2, 25.0),  # clients 5 and 0
        ({0: 1, 2: 1, 5: 1, 7: 0}, 9, 50.0),
    ],
)
def test_the_smallest_clients(sizes: dict[int, float], smallest: int, mean: float) -> None:
    assert read(PERSONAL, Reading("personalized", None, smallest), sizes) == [mean]


def test_sizes_must_be_known() -> None:
    with pytest.raises(PflbenchError, match=r"how many support images client 5 has.*--redo always"):
        read(PERSONAL, Reading("personalized", None, 1), {0: 1, 2: 1})
    assert read(PERSONAL, Reading("personalized"), {}) == [50.0]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=8), st.integers(1, 9), st.data())
def test_the_order_of_rows_is_nothing(clients: list[tuple[int, int]], smallest: int, data: st.DataObject) -> None:
    scores = [score("personalized", 2, 0, c, hits / 10) for c, (hits, _) in enumerate(clients)]
    sizes = {c: float(size) for c, (_, size) in enumerate(clients)}
    few = sorted(range(len(clients)), key=lambda c: clients[c][1])[:smallest]
    found = read(data.draw(st.permutations(scores)), Reading("personalized", None, smallest), sizes)
    assert found == pytest.approx([10 * sum(clients[c][0] for c in few) / len(few)])
