"""A finished run that is made again for more scores replaces what is stored only if it is the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pflbench.catalog import complete, describe
from pflbench.result import RunResult, Score
from pflbench.running.again import difference_text
from pflbench.running.execution import Execution
from pflbench.running.job import Job, run_job
from pflbench.spec import MethodSpec, Named, Scoring
from pflbench.store import Store
from pflbench.testing import tiny_spec


def result(*scores: tuple[int, int, float], stage: str = "global") -> RunResult:
    """Scores by round, client and accuracy."""
    rows = tuple(Score(stage, round, 0, client, 0, 1000, 0.0, accuracy) for round, client, accuracy in scores)
    return RunResult(tiny_spec(), rows, {})


def test_means_over_clients_at_shared_rounds_decide() -> None:
    stored = result((5, 0, 0.5), (5, 1, 0.7), (10, 0, 0.6), (10, 1, 0.8))
    assert difference_text(stored, stored) is None
    assert difference_text(stored, result((2, 0, 0.1), (10, 0, 0.6), (10, 1, 0.802))) is None  # exactly 0.1 points
    found = difference_text(stored, result((5, 0, 0.5), (5, 1, 0.703), (10, 0, 0.6), (10, 1, 0.81)))
    assert found == (
        "by +0.50 points after round 10 (global): stored 70.00 % (unknown, torch unknown, commit unknown), "
        "now 70.50 % (unknown, torch unknown, commit unknown)"
    )
    assert difference_text(stored, result((3, 0, 0.1))) is None
    assert difference_text(stored, result((10, 0, 0.1), stage="personalized")) is None


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_made_again_for_more_scores(tmp_path: Path, changed: bool) -> None:
    info = describe("fedavg")
    method = MethodSpec(name=info.name, version=info.version, hyper=complete(info, {}))
    shards = Named(name="shards", options={"shards": 180})
    setting = {"dataset": "digits", "partition": shards, "model": "cnn2", "clients": 90, "query": 0.2, "tail": "drop"}
    spec = tiny_spec(method=method, rounds=4, cohort=2, batch=10, scoring=Scoring(), **setting)
    place, store = Execution(results=tmp_path, data_dir=tmp_path), Store(tmp_path)
    (first,) = run_job(Job((spec,)), place)
    assert first.status == "done"
    stored = store.read(spec.id)
    if changed:
        scores = tuple(score._replace(accuracy=0.987) for score in stored.scores)
        store.write(replace(stored, scores=scores))
    (again,) = run_job(Job((spec,)), replace(place, evaluate_every=1))
    rounds = {score.round for score in store.read(spec.id).scores}
    if changed:
        assert again.status == "failed" and rounds == {4}
        assert again.message.startswith("The remade scores differ by ") and "after round 4 (global)" in again.message
        assert again.message.count(str(stored.provenance["device"])) == 2, "both machines"
        assert "The stored result is kept" in again.message
        assert store.read(spec.id).scores == scores
        (forced,) = run_job(Job((spec,)), replace(place, evaluate_every=1, redo="always"))
        assert forced.status == "done"
        rounds = {score.round for score in store.read(spec.id).scores}
    assert rounds == {1, 2, 3, 4}
