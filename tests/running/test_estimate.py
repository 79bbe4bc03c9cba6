"""What a run computes, counted without computing: against counts by hand, and against the engine's own calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pflbench import names
from pflbench.running import build
from pflbench.running.estimate import gradient_rows, relative_work, seconds, timed_as
from pflbench.running.machine import RunSeconds, trial_key
from pflbench.running.planning import Times, _history
from pflbench.spec import Finetune, Named, RunSpec, Scoring
from pflbench.store import Stored
from pflbench.testing import tiny_spec


def spec(method: str, model: str = "cnn2", **hyper: Any) -> RunSpec:
    return tiny_spec(
        method=method,
        hyper=hyper,
        dataset=Named(name="digits", options={"size": 28}),
        partition=Named(name="shards", options={"shards": 40}),
        model=model,
        clients=20,
        training_clients=15,
        query=0.2,
        batch=10,
        tail="drop",
        rounds=4,
        scoring=Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=6, lr=0.1)),
        precision="fp32",
    )


def rows(method: str, **hyper: Any) -> float:
    found = gradient_rows(spec(method, **hyper), names.locate("methods", method))
    assert found is not None
    return found


SUPPORT, QUERY = round(1797 / 20 * 0.8), round(1797 / 20 * 0.2)  # of the mean client: 72, 18
SCORING = 5 * (6 * 10 + 7 * QUERY / 3)


@pytest.mark.parametrize(
    ("method", "hyper", "per_participation"),
    [
        ("fedavg", {"epochs": 2}, 2 * 70),  # tails are dropped: seven batches of ten
        ("ifca", {"epochs": 1, "clusters": 3}, 70 + 3 * 70 / 3),
        ("ditto", {"steps": 5}, 10 * 10),
        ("fedrep-averaged", {"head_steps": 4, "base_steps": 2}, 6 * 10),
        ("per-fedavg", {"steps": 2, "order": "hf"}, 2 * 4 * 10),
        ("per-fedavg", {"steps": 2, "order": "first"}, 2 * 2 * 10),
    ],
)
def test_rows_by_hand(method: str, hyper: dict[str, Any], per_participation: float) -> None:
    assert rows(method, **hyper) == pytest.approx(4 * 3 * per_participation + SCORING)


def test_limited_data_counts_by_the_rows_that_are_divided() -> None:
    whole = spec("fedavg", epochs=2).model_copy(
        update={
            "dataset": Named(name="digits", options={"size": 28, "test": 100}),
            "partition": Named(name="random-slicing", options={"skew": "labels"}),
            "scoring": Scoring(stages=("global",), global_on="test-set"),
            "query": "test-split",
        }
    )
    options = whole.partition.options | {"rows": 1000}
    limited = whole.model_copy(update={"partition": Named(name="random-slicing", options=options)})
    where = names.locate("methods", "fedavg")
    scored = 5 * (1797 - 100) / 10 / 3  # each held-out client, on about half of the test split
    found = [gradient_rows(run, where) for run in (whole, limited)]
    assert found[0] is not None and found[1] is not None
    assert [rows - scored for rows in found] == pytest.approx([4 * 3 * 2 * 80, 4 * 3 * 2 * 50], rel=0.01)


def test_first_rows_of_a_published_split_count_alone() -> None:
    update = {"partition": Named(name="pfllib", options={"first": 20}), "query": "partition"}
    limited = spec("fedavg", epochs=2).model_copy(update=update)
    query = round(20 / 6)
    scoring = 5 * (6 * 10 + 7 * query / 3)
    assert gradient_rows(limited, names.locate("methods", "fedavg")) == pytest.approx(4 * 3 * 2 * 20 + scoring)


def test_a_larger_network_counts_by_its_size() -> None:
    plain = build.network(spec("cafeme"))
    modulated = build.construct(names.locate("methods", "cafeme"), {}).network(plain)
    share = modulated.layout.size / plain.layout.size
    assert share > 1
    assert rows("cafeme", steps=5, outer_batches=6) == pytest.approx((4 * 3 * 110 + SCORING) * share)


def test_seconds_are_rows_at_the_speed_measured() -> None:
    where = names.locate("methods", "fedavg")
    assert seconds(spec("fedavg"), where, {timed_as(spec("fedavg")): 0.002}) == pytest.approx(rows("fedavg") * 0.002)
    assert seconds(spec("fedavg"), where, {"lenet": 0.002}) is None
    in_double = spec("fedavg").model_copy(update={"precision": "fp64"})
    assert seconds(in_double, where, {timed_as(spec("fedavg")): 0.002}) is None


def test_the_pools_sizes_are_true() -> None:
    for name in ("digits", "rotated-digits"):
        dataset = build.dataset(Named(name=name))
        assert dataset.examples == len(dataset.load(None, 0).labels)  # type: ignore[arg-type]


def test_work_is_relative_to_the_other_runs() -> None:
    fast, slow = spec("fedavg", epochs=1), spec("fedavg", epochs=5)
    where = names.locate("methods", "fedavg")
    work = relative_work({fast: where, slow: where})
    assert work is not None
    training = 4 * 3 * 70
    assert work[slow.id] / work[fast.id] == pytest.approx((5 * training + SCORING) / (training + SCORING))


def test_each_scoring_costs() -> None:
    fedavg, where = spec("fedavg", epochs=1), names.locate("methods", "fedavg")
    training = 4 * 3 * 70
    assert gradient_rows(fedavg, where, every=2) == pytest.approx(training + 2 * SCORING)
    assert gradient_rows(fedavg, where, every=1) == pytest.approx(training + 4 * SCORING)
    work = relative_work({fedavg: where}, {fedavg.id: 1})
    once = relative_work({fedavg: where})
    assert work and once
    assert work[fedavg.id] / once[fedavg.id] == pytest.approx((training + 4 * SCORING) / (training + SCORING))


def test_a_plan_counts_each_scoring() -> None:
    fedavg, times = spec("fedavg", epochs=1), Times({})
    times.speeds, times.trials = {timed_as(fedavg): 0.002}, {}
    often, once = times.of(fedavg, {}, 1), times.of(fedavg, {})
    assert often and once and often.seconds - once.seconds == pytest.approx(3 * SCORING * 0.002)
    tried = Times({})
    tried.speeds, tried.trials = {}, {trial_key(fedavg): RunSeconds(loading=1, round=10, scoring=100)}
    assert [found and found.seconds for found in (tried.of(fedavg, {}, 2), tried.of(fedavg, {}))] == [241, 141]
    stored = Times(_history([_finished(fedavg, 1, 8.0)]))
    stored.speeds, stored.trials = {}, {}
    often = stored.of(fedavg, {}, 1)
    assert often and often.seconds == 8 and stored.of(fedavg, {}) is None, "runs scored less take less"
    on_gpu = _finished(fedavg, 1, 0.1)
    on_gpu.provenance["peak_device_memory"] = 2**30
    assert not _history([on_gpu]), "which says nothing of a core"


def _finished(spec: RunSpec, every: int, seconds: float) -> Stored:
    return Stored(spec, {"evaluate_every": every, "wall_seconds": seconds}, None, Path("run"), 0)


def test_networks_cost_what_their_products_and_convolutions_do() -> None:
    where = names.locate("methods", "fedavg")
    cnn, mlp = spec("fedavg", epochs=1), spec("fedavg", model="mlp", epochs=1)
    work = relative_work({cnn: where, mlp: where})
    assert work is not None
    # Of a 28x28 image: 5x5 convolutions to 32 channels of 24x24 and, pooled, to 64 of 8x8; then two products. The MLP has two, too.
    convolutions = 24 * 24 * 32 * 25 + 8 * 8 * 64 * 32 * 25
    products = 1024 * 512 + 512 * 10
    assert work[cnn.id] / work[mlp.id] == pytest.approx((convolutions + products) / (784 * 100 + 100 * 10))


def test_somebodys_own_code_is_not_run_to_learn_its_work() -> None:
    mine, theirs = spec("fedavg"), spec("fedprox")
    assert relative_work({mine: names.locate("methods", "fedavg"), theirs: "no/such/file.py:Foo"}) is None
