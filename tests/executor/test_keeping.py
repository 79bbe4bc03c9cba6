"""Models that are kept: those that the stored scores are of, of every kind of method, and nothing half written."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pflbench import load_models
from pflbench.catalog import complete, describe
from pflbench.engine.batches import query_batches
from pflbench.errors import StoreError, UsageError
from pflbench.executor import build, keeping
from pflbench.executor.checkpoint import Checkpoints
from pflbench.executor.keeping import Unkept
from pflbench.executor.task import Place, Task, run_task
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import Store
from pflbench.store.merging import merge
from pflbench.store.removal import remove
from pflbench.testing import tiny_spec
from pflbench.units import Interval

TUNED = Scoring(clients="all", first=4, stages=("global", "finetuned"), finetune=Finetune(steps=2, lr=0.05))
PERSONAL = Scoring(clients="all", first=4, stages=("global", "personalized"))
LATER = Scoring(clients="training", first=4, stages=("personalized",))
LEFT = Scoring(clients="training", first=4, stages=("personalized",), moment="before-aggregation")
HOW = {
    "fedavg": TUNED,
    "ifca": TUNED,
    "ditto": PERSONAL,
    "pfedme": LEFT,
    "fedrep": LEFT,
    "fedec": LEFT,
    "per-fedavg": PERSONAL,
}
HYPER: dict[str, dict[str, Any]] = {"per-fedavg": {"personal_epochs": 1}, "fedavg": {"epochs": 1}}
CNN = {"model": "cnn2", "rounds": 1}
"""Which normalizes batches, and whose convolutions lie in the vector in another order."""


def spec(name: str, scoring: Scoring, seed: int = 0, **changes: Any) -> RunSpec:
    info = describe(name)
    fields = {
        "dataset": "digits",
        "partition": Named(name="shards", options={"shards": 40}),
        "model": "mlp",
        "clients": 20,
        "training_clients": 18,
        "cohort": 3,
        "query": 0.2,
        "batch": 10,
        "batches": "reshuffled",
        "rounds": 2,
        "scoring": scoring,
    }
    method = MethodSpec(name=info.name, version=info.version, hyper=complete(info, HYPER.get(name, {})))
    return tiny_spec(seed, **{"method": method} | fields | changes)


def place(folder: Path, **changes: Any) -> Place:
    return Place(folder / "results", folder, keep_models=True, **changes)


def rescored(one: RunSpec, folder: Path, results: Path) -> dict[tuple[str, int], int]:
    """Right answers of each kept model on its client's query, by stage and client."""
    federation, models = build.federation(one, folder), load_models(one.id, results)
    found = {}
    for stage in models.stages:
        for client in models.clients(stage):
            batches = [federation.query[client]]
            if models.network.batchwise:
                batches = query_batches(federation, client, one)
            answers = [models.logits(federation.x[rows].float() / 255, stage, client).argmax(1) for rows in batches]
            right = torch.cat(answers) == torch.as_tensor(federation.labels[np.concatenate(batches)])
            found[stage, client] = int(right.sum())
    return found


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
@pytest.mark.parametrize("name", HOW)
def test_kept_models_have_the_stored_scores(tmp_path: Path, name: str, execution: Any) -> None:
    changes = CNN if name == "fedavg" else {}
    several = [spec(name, HOW[name], seed, **changes) for seed in ((0,) if execution == "loop" else (0, 1))]
    dones = run_task(Task(tuple(several)), place(tmp_path, execution=execution))
    assert [done.status for done in dones] == ["done"] * len(several), dones
    for one in several:
        stored = Store(tmp_path / "results").read(one.id)
        last = max(score.step for score in stored.scores if score.round == one.rounds)
        scored = {
            (score.stage, score.client): score.correct
            for score in stored.scores
            if score.step == (last if score.stage == "finetuned" else 0)
        }
        again = rescored(one, tmp_path, tmp_path / "results")
        assert scored and scored == {key: again[key] for key in scored}
        assert ("global" in {stage for stage, _ in again}) == (name != "fedrep")  # which has none
        models = load_models(one.id, tmp_path / "results")
        assert models.provenance["torch"] and models.spec == one
        assert set(models.state_dict(*next(iter(again)))) == {p.name for p in models.network.parameters}
    assert not list((tmp_path / "results" / "models").glob(".*"))


def test_clients_with_the_same_model_share_a_file(tmp_path: Path) -> None:
    one = spec("fedavg", TUNED)
    run_task(Task((one,)), place(tmp_path))
    models = load_models(one.id[:6], tmp_path / "results")
    assert len({models.path("global", client) for client in models.clients("global")}) == 1
    assert len({models.path("finetuned", client) for client in models.clients("finetuned")}) == 4
    assert models.path("global") == models.path("global", 3)
    with pytest.raises(UsageError, match="a model of its own at stage 'finetuned'"):
        models.path("finetuned")
    with pytest.raises(UsageError, match="no models at stage 'personalized'; it has global, finetuned"):
        models.clients("personalized")
    with pytest.raises(UsageError, match="Client 19 has no model"):
        models.path("global", 19)


def test_a_finished_result_stays_and_models_are_kept_only_of_the_same_scores(tmp_path: Path) -> None:
    one, where = spec("fedavg", TUNED), place(tmp_path, replace=True)
    run_task(Task((one,)), Place(tmp_path / "results", tmp_path))
    path = Store(where.results).path(one.id)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="pflbench run --keep-models"):
        load_models(one.id, where.results)
    (done,) = run_task(Task((one,)), where)
    assert done.status == "done" and path.read_bytes() == before
    assert load_models(one.id, where.results).stages == ("global", "finetuned")
    result = Store(where.results).read(one.id)
    scores = [score._replace(loss_sum=score.loss_sum + 1e-12) for score in result.scores]
    Store(where.results).write(replace(result, scores=scores))
    before = path.read_bytes()
    remove_models(where.results, one)
    (done,) = run_task(Task((one,)), where)
    assert done.status == "error" and "not the same to the last bit" in done.message
    assert path.read_bytes() == before and not list((where.results / "models").glob("*"))


def remove_models(results: Path, one: RunSpec) -> None:
    for path in (results / "models" / one.id).iterdir():
        path.unlink()
    (results / "models" / one.id).rmdir()


@pytest.mark.parametrize(("scoring", "rounds"), [(LEFT, [1]), (LATER, [1, 2])])
def test_no_checkpoint_is_of_a_moment_after_models_were_made_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scoring: Scoring, rounds: list[int]
) -> None:
    """Taken up after the last round, a run would have the scores of models before aggregation, and not the models."""
    kept: list[int] = []
    monkeypatch.setattr(Checkpoints, "keep", lambda _, walked, simulation: kept.append(simulation.rounds))
    run_task(Task((spec("fedrep", scoring),)), place(tmp_path, checkpoint_every=Interval(rounds=1)))
    assert kept == rounds


def test_a_full_disk_costs_the_models_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeping, "save_file", full)
    one = spec("fedavg", TUNED)
    with pytest.warns(Unkept, match="are not kept: No space left on device"):
        (done,) = run_task(Task((one,)), place(tmp_path))
    assert done.status == "done" and Store(tmp_path / "results").find(one.id)
    assert not list((tmp_path / "results" / "models").glob("*"))


def test_a_run_that_fails_leaves_no_models(tmp_path: Path) -> None:
    one = spec("fedavg", Scoring(clients="all", stages=("finetuned",), finetune=Finetune(steps=4, lr=1e308)))
    (done,) = run_task(Task((one,)), place(tmp_path))
    assert done.status == "failed"
    assert not list((tmp_path / "results").glob("models/*"))


def test_they_go_with_their_run_and_are_merged_with_it(tmp_path: Path) -> None:
    one, results = spec("fedavg", TUNED), tmp_path / "results"
    run_task(Task((one,)), place(tmp_path))
    index = results / "models" / one.id / "models.json"
    assert merge([results], tmp_path / "other").good
    there = load_models(one.id, tmp_path / "other")
    assert there.path("global").read_bytes() == load_models(one.id, results).path("global").read_bytes()
    remove(Store(results), [one.id])
    assert not (results / "models").exists() and there.path("global").is_file()
    assert json.loads((there.folder / "models.json").read_text())["run"] == one.id and not index.exists()
    (there.folder / "models.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        load_models(one.id, tmp_path / "other")


def test_a_file_that_is_cut_off_is_one_message(tmp_path: Path) -> None:
    one = spec("fedavg", TUNED)
    run_task(Task((one,)), place(tmp_path))
    models = load_models(one.id, tmp_path / "results")
    path = models.path("global")
    assert load_file(path).keys() == models.state_dict("global").keys()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match="cannot be read"):
        models.state_dict("global")
