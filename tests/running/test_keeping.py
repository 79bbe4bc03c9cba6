"""Models that are kept: those that the stored scores are of, of every kind of method, and nothing half written."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pflbench import load_models
from pflbench.catalog import complete, describe
from pflbench.engine import client_map
from pflbench.engine.batches import query_batches
from pflbench.engine.simulate import Simulation
from pflbench.errors import StoreError, UsageError
from pflbench.methods.ditto import Ditto
from pflbench.running import build, checkpoint
from pflbench.running.execution import Execution
from pflbench.running.job import Job, run_job
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import CorruptFile, Store, models
from pflbench.store.verbs import merge, remove
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


def place(folder: Path, **changes: Any) -> Execution:
    return Execution(results=folder / "results", data_dir=folder, keep_models=True, **changes)


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
def test_kept_models_have_the_stored_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, execution: str
) -> None:
    changes = CNN if name == "fedavg" else {}
    several = [spec(name, HOW[name], seed, **changes) for seed in ((0,) if execution == "loop" else (0, 1))]
    monkeypatch.setattr(Execution, "client_map", execution)
    dones = run_job(Job(tuple(several)), place(tmp_path))
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
    names = {path.name for path in (tmp_path / "results" / "models").iterdir()}
    assert names == {f"{one.id}.safetensors" for one in several}


def test_clients_with_the_same_model_share_it(tmp_path: Path) -> None:
    one = spec("fedavg", TUNED)
    run_job(Job((one,)), place(tmp_path))
    models = load_models(one.id[:6], tmp_path / "results")
    assert [len(set(models.numbers[stage].values())) for stage in ("global", "finetuned")] == [1, 4]
    states = [models.state_dict("global", client) for client in (None, 3)]
    assert all(torch.equal(states[0][name], values) for name, values in states[1].items())
    for client in (None, 19):
        with pytest.raises(UsageError, match="different models at stage 'finetuned'"):
            models.state_dict("finetuned", client)
    with pytest.raises(UsageError, match="no models at stage 'personalized'; it has global, finetuned"):
        models.clients("personalized")


def test_models_of_a_finished_run_come_with_its_new_result(tmp_path: Path) -> None:
    one, where = spec("fedavg", TUNED), place(tmp_path, redo="always")
    run_job(Job((one,)), Execution(results=tmp_path / "results", data_dir=tmp_path))
    before = Store(where.results).read(one.id)
    with pytest.raises(UsageError, match="pflbench run --keep-models"):
        load_models(one.id, where.results)
    (done,) = run_job(Job((one,)), where)
    assert done.status == "done" and Store(where.results).read(one.id).scores == before.scores
    assert load_models(one.id, where.results).stages == ("global", "finetuned")


def test_scores_of_more_rounds_are_added_to_a_finished_result(tmp_path: Path) -> None:
    """Else it would be trained again at every command that asks for them."""
    one = spec("fedavg", TUNED)
    run_job(Job((one,)), Execution(results=tmp_path / "results", data_dir=tmp_path))
    before = Store(tmp_path / "results").read(one.id)
    (done,) = run_job(Job((one,)), place(tmp_path, evaluate_every=1))
    after = Store(tmp_path / "results").read(one.id)
    assert done.status == "done" and {score.round for score in after.scores} == {1, 2}
    assert [score for score in after.scores if score.round == 2] == list(before.scores)
    assert load_models(one.id, tmp_path / "results").stages == ("global", "finetuned")


def test_models_go_with_a_result_that_is_replaced_without_them(tmp_path: Path) -> None:
    one, without = spec("fedavg", TUNED), Execution(results=tmp_path / "results", data_dir=tmp_path, redo="always")
    run_job(Job((one,)), place(tmp_path))
    load_models(one.id, without.results)
    run_job(Job((one,)), without)
    with pytest.raises(UsageError, match="No models of run"):
        load_models(one.id, without.results)


def test_no_checkpoint_is_of_the_last_round_whose_models_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken up after the last round, a run would have the scores of models before aggregation, and not the models."""
    kept: list[int] = []
    monkeypatch.setattr(checkpoint, "_write", lambda path, simulation, values: kept.append(simulation.rounds))
    run_job(Job((spec("fedrep", LEFT),)), place(tmp_path, checkpoint_every=Interval(rounds=1)))
    assert kept == [1]


def test_a_full_disk_costs_the_models_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save", full)
    one = spec("fedavg", TUNED)
    with pytest.warns(UserWarning, match="are not kept: .*No space left on device"):
        (done,) = run_job(Job((one,)), place(tmp_path))
    assert done.status == "done" and Store(tmp_path / "results").find(one.id)
    assert not list((tmp_path / "results").glob("models/*"))


def test_a_run_that_fails_leaves_no_models(tmp_path: Path) -> None:
    one = spec("fedavg", Scoring(clients="all", stages=("finetuned",), finetune=Finetune(steps=4, lr=1e308)))
    (done,) = run_job(Job((one,)), place(tmp_path))
    assert done.status == "failed"
    assert not list((tmp_path / "results").glob("models/*"))


def test_they_go_with_their_run_and_are_merged_with_it(tmp_path: Path) -> None:
    one, results = spec("fedavg", TUNED), tmp_path / "results"
    run_job(Job((one,)), place(tmp_path))
    assert not merge([results], tmp_path / "other").unread
    path = load_models(one.id, tmp_path / "other").path
    assert path.read_bytes() == load_models(one.id, results).path.read_bytes()
    remove(Store(results), [one.id])
    assert not (results / "models").exists() and path.is_file()
    path.write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        load_models(one.id, tmp_path / "other")
    with pytest.warns(CorruptFile, match="is damaged.* It is not merged"):
        assert not merge([tmp_path / "other"], results).others
    assert Store(results).find(one.id) and not (results / "models").exists()


def test_models_that_were_not_kept_say_what_makes_them(tmp_path: Path) -> None:
    one = spec("fedavg", TUNED)
    run_job(Job((one,)), Execution(results=tmp_path / "results", data_dir=tmp_path))
    with pytest.raises(UsageError, match="and with --redo always also trains finished runs again"):
        load_models(one.id, tmp_path / "results")


def test_a_file_that_is_cut_off_is_one_message(tmp_path: Path) -> None:
    one = spec("fedavg", TUNED)
    run_job(Job((one,)), place(tmp_path))
    models = load_models(one.id, tmp_path / "results")
    whole = {name.partition("/")[2] for name in load_file(models.path) if name.startswith("0/")}
    assert whole == models.state_dict("global").keys()
    models.path.write_bytes(models.path.read_bytes()[:-4])
    with pytest.raises(StoreError, match="cannot be read"):
        models.state_dict("global")
    with pytest.raises(StoreError, match="is damaged"):
        load_models(one.id, tmp_path / "results")


def test_a_checkpoint_without_models_is_not_taken_up_to_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, score = spec("fedrep", LEFT), Simulation.score

    def killed(self: Simulation, last: bool = True) -> None:
        if last:
            raise KeyboardInterrupt
        score(self, last)

    monkeypatch.setattr(Simulation, "score", killed)
    without = Execution(results=tmp_path / "results", data_dir=tmp_path, checkpoint_every=Interval(rounds=1))
    with pytest.raises(KeyboardInterrupt):
        run_job(Job((one,)), without)
    monkeypatch.setattr(Simulation, "score", score)
    with pytest.warns(UserWarning, match="its keep_models is False, now True"):
        (done,) = run_job(Job((one,)), place(tmp_path, checkpoint_every=Interval(rounds=1)))
    assert done.status == "done" and load_models(one.id, tmp_path / "results").stages


def test_older_models_stay_until_the_new_ones_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, replace = spec("fedavg", TUNED), Path.replace
    run_job(Job((one,)), place(tmp_path))

    def watched(self: Path, target: Path) -> Path:
        load_models(one.id, tmp_path / "results")
        replaced = replace(self, target)
        load_models(one.id, tmp_path / "results")
        return replaced

    monkeypatch.setattr(Path, "replace", watched)
    (done,) = run_job(Job((one,)), place(tmp_path, redo="always"))
    assert done.status == "done"
    assert [path.stem for path in (tmp_path / "results" / "models").iterdir()] == [one.id]


@pytest.mark.parametrize("stage", ["a/b", "{outside}/x", "..", "x" * 300])
def test_a_stage_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """A method of one's own may return models of stages that are no names of files."""
    personal, stage = Ditto.personal_model, stage.format(outside=tmp_path / "results")
    monkeypatch.setattr(
        Ditto, "personal_model", lambda *args, **how: {"personalized": (w := personal(*args, **how)), stage: w + 1}
    )
    one = spec("ditto", PERSONAL)
    run_job(Job((one,)), place(tmp_path))
    kept = load_models(one.id, tmp_path / "results")
    assert [*tmp_path.rglob("*.safetensors")] == [kept.path]
    mine, other = kept.state_dict("personalized", 1), kept.state_dict(stage, 1)
    assert all(torch.equal(other[name], values + 1) for name, values in mine.items())


def test_models_of_few_clients_are_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored, call = list[int](), client_map.ClientMap.__call__

    def counted(self: Any, fn: Any, shared: Any, items: Any, key: Any = None) -> Any:
        scored.append(len(items))
        return call(self, fn, shared, items, key)

    monkeypatch.setattr(client_map, "PORTION", 2)
    monkeypatch.setattr(client_map.ClientMap, "__call__", counted)
    for one in (spec("fedavg", TUNED), spec("ditto", LATER)):
        run_job(Job((one,)), place(tmp_path))
        assert max(scored) == 2
        assert len(load_models(one.id, tmp_path / "results").clients("global")) == 4


@pytest.mark.parametrize(
    "text",
    ["[]", "null", "5", "{", "[" * 100_000, '{"global": 5}', '{"global": {"0": "../x"}}', '{"global": {"a": 1}}'],
)
def test_models_that_are_none_are_one_message(tmp_path: Path, text: str) -> None:
    for metadata in ({"run": "a", "models": text, "provenance": "{}"}, {"run": "a", "models": "{}"}, {}):
        save_file({}, tmp_path / "a", metadata)
        with pytest.raises(StoreError, match="is damaged"):
            models.read(tmp_path / "a", "a")


def test_models_of_another_run_are_not_taken_for_its_own(tmp_path: Path) -> None:
    one, other = spec("fedavg", TUNED), spec("fedavg", TUNED, 1)
    for run in (one, other):
        run_job(Job((run,)), place(tmp_path))
    shutil.copy(*(models.path_of(tmp_path / "results", run.id) for run in (other, one)))
    with pytest.raises(StoreError, match=f"has the models of run {other.id}"):
        load_models(one.id, tmp_path / "results")


def test_tensors_of_another_network_are_one_message(tmp_path: Path) -> None:
    one, images = spec("fedavg", TUNED), torch.zeros(2, 1, 28, 28)
    run_job(Job((one,)), place(tmp_path))
    kept = load_models(one.id, tmp_path / "results")
    assert kept.logits(images, "global").shape == (2, 10)
    whole = kept.state_dict("global")
    for state in ({"a": images}, {name: values[:1].contiguous() for name, values in whole.items()}):
        save_file({f"0/{name}": values for name, values in state.items()}, kept.path)
        with pytest.raises(StoreError, match=f"other tensors than the network of run {one.id}"):
            kept.logits(images, "global")


def test_a_copy_that_does_not_fit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    id = "a" * 16
    path = models.path_of(tmp_path / "source", id)
    path.parent.mkdir(parents=True)
    save_file({}, path, {"run": id, "models": "{}", "provenance": "{}"})

    def full(_: object, to: Path) -> None:
        to.write_bytes(b"{")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StoreError, match="No space left on device"):
        models.copy(tmp_path / "source", tmp_path, id)
    assert not list((tmp_path / "models").iterdir())
