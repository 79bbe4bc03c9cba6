"""Relative work of runs, against counts by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pflbench.running.machine import processor, product_seconds
from pflbench.running.planning import estimate, history
from pflbench.running.work import work_of
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import Stored
from pflbench.testing import tiny_spec


def spec(method: str, model: str = "cnn2", **hyper: Any) -> RunSpec:
    return tiny_spec(
        method=MethodSpec(name=method, version="1", hyper=hyper),
        dataset=Named(name="digits", options={"size": 28}),
        partition=Named(name="shards", options={"shards": 40}),
        model=model,
        clients=20,
        training_clients=15,
        query=0.2,
        batch=10,
        rounds=4,
        scoring=Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=6, lr=0.1)),
        precision="fp32",
    )


def work(method: str, model: str = "cnn2", every: int | None = None, **hyper: Any) -> float:
    return work_of(spec(method, model, **hyper), {}, every)


ROWS = 1797 / 20
SCORING = 5 * (6 * 10 + 7 * ROWS * 0.2 / 3)


def test_work_is_that_of_drawn_minibatches_and_of_each_scoring() -> None:
    epoch, scored = 4 * 3 * ROWS, work("fedavg", epochs=0)
    one = work("fedavg", epochs=1)
    assert one / scored == pytest.approx((epoch + SCORING) / SCORING)
    assert work("fedavg", epochs=5) / scored == pytest.approx((5 * epoch + SCORING) / SCORING)
    assert work("ditto", steps=5) / scored == pytest.approx((4 * 3 * 2 * 5 * 10 + SCORING) / SCORING)
    assert work("fedavg", every=1, epochs=1) / scored == pytest.approx((epoch + 4 * SCORING) / SCORING)


def test_user_supplied_code_is_not_run_to_learn_its_work() -> None:
    assert work_of(spec("fedprox"), {"methods": "no/such/file.py:Foo"}) > 0


def finished(run: RunSpec, every: int, seconds: float, **more: Any) -> Stored:
    told = {"evaluate_every": every, "wall_seconds": seconds, "device": processor(), **more}
    return Stored(run, told, None, Path("run"), 0)


def test_times_are_those_of_runs_that_are_scored_as_often() -> None:
    fedavg = spec("fedavg", epochs=1)
    rates = history([finished(fedavg, 1, 8.0)])
    assert estimate(rates, fedavg, 1) == (8.0, "runs") and estimate(rates, fedavg) is None, "runs scored less take less"
    assert not history([finished(fedavg, 1, 0.1, peak_device_memory=2**30)]), "which says nothing of a core"


def test_another_machine_s_time_is_scaled_by_a_product() -> None:
    fedavg = spec("fedavg", epochs=1)
    twice = finished(fedavg, 1, 8.0, device="another", product_seconds=product_seconds() / 2)
    known = estimate(history([twice]), fedavg, 1)
    assert known and known.seconds == pytest.approx(16) and known.source == "scaled"
    plain = estimate(history([finished(fedavg, 1, 8.0, device="another")]), fedavg, 1)
    assert plain == (8.0, "unscaled")
