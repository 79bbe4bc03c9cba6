"""Models that are kept: those that the stored scores are of, of every kind of method, and nothing half written."""

from __future__ import annotations

import errno
import json
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
from pflbench.running import build
from pflbench.running.checkpoint import Checkpoints
from pflbench.running.models import Unkept
from pflbench.running.task import Environment, Task, run_task
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import Store, files, models
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


def place(folder: Path, **changes: Any) -> Environment:
    return Environment(folder / "results", folder, keep_models=True, **changes)


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


def test_models_of_a_finished_run_come_with_its_new_result(tmp_path: Path) -> None:
    one, where = spec("fedavg", TUNED), place(tmp_path, replace=True)
    run_task(Task((one,)), Environment(tmp_path / "results", tmp_path))
    before = Store(where.results).read(one.id)
    with pytest.raises(UsageError, match="pflbench run --keep-models"):
        load_models(one.id, where.results)
    (done,) = run_task(Task((one,)), where)
    assert done.status == "done" and Store(where.results).read(one.id).scores == before.scores
    assert load_models(one.id, where.results).stages == ("global", "finetuned")


def test_scores_of_more_rounds_are_added_to_a_finished_result(tmp_path: Path) -> None:
    """Else it would be trained again at every command that asks for them."""
    one = spec("fedavg", TUNED)
    run_task(Task((one,)), Environment(tmp_path / "results", tmp_path))
    before = Store(tmp_path / "results").read(one.id)
    (done,) = run_task(Task((one,)), place(tmp_path, evaluate_every=1))
    after = Store(tmp_path / "results").read(one.id)
    assert done.status == "done" and {score.round for score in after.scores} == {1, 2}
    assert [score for score in after.scores if score.round == 2] == list(before.scores)
    assert load_models(one.id, tmp_path / "results").stages == ("global", "finetuned")


def test_models_go_with_a_result_that_is_replaced_without_them(tmp_path: Path) -> None:
    one, without = spec("fedavg", TUNED), Environment(tmp_path / "results", tmp_path, replace=True)
    run_task(Task((one,)), place(tmp_path))
    load_models(one.id, without.results)
    run_task(Task((one,)), without)
    with pytest.raises(UsageError, match="No models of run"):
        load_models(one.id, without.results)


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
    monkeypatch.setattr(Checkpoints, "keep", lambda _, simulation: kept.append(simulation.rounds))
    run_task(Task((spec("fedrep", scoring),)), place(tmp_path, checkpoint_every=Interval(rounds=1)))
    assert kept == rounds


def test_a_full_disk_costs_the_models_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pflbench.running.models.save_file", full)
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


def test_models_that_were_not_kept_say_what_makes_them(tmp_path: Path) -> None:
    one = spec("fedavg", TUNED)
    run_task(Task((one,)), Environment(tmp_path / "results", tmp_path))
    with pytest.raises(UsageError, match="and with --redo always also trains finished runs again for them"):
        load_models(one.id, tmp_path / "results")


def test_a_file_that_is_cut_off_is_one_message(tmp_path: Path) -> None:
    one = spec("fedavg", TUNED)
    run_task(Task((one,)), place(tmp_path))
    models = load_models(one.id, tmp_path / "results")
    path = models.path("global")
    assert load_file(path).keys() == models.state_dict("global").keys()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match="cannot be read"):
        models.state_dict("global")


def test_a_checkpoint_after_the_last_round_gives_the_scores_without_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written without `--keep-models`, and whoever goes on from it does not make the models any more."""
    one, score = spec("fedrep", LEFT), Simulation.score

    def killed(self: Simulation, last: bool = True) -> None:
        if last:
            raise KeyboardInterrupt
        score(self, last)

    monkeypatch.setattr(Simulation, "score", killed)
    with pytest.raises(KeyboardInterrupt):
        run_task(Task((one,)), Environment(tmp_path / "results", tmp_path, checkpoint_every=Interval(rounds=1)))
    monkeypatch.setattr(Simulation, "score", score)
    with pytest.warns(Unkept, match="from a checkpoint without them"):
        (done,) = run_task(Task((one,)), place(tmp_path, checkpoint_every=Interval(rounds=1)))
    assert done.status == "done" and Store(tmp_path / "results").find(one.id)


def test_models_that_cannot_be_written_leave_their_room_to_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(*args: Any) -> None:
        save_file(*args)
        if args[1].name.startswith("finetuned"):
            raise OSError(errno.ENOSPC, "No space left on device")

    write = Store.write

    def there(self: Store, result: Any) -> Path:
        assert not list(tmp_path.rglob("*.safetensors"))
        return write(self, result)

    monkeypatch.setattr("pflbench.running.models.save_file", half)
    monkeypatch.setattr(Store, "write", there)
    with pytest.warns(Unkept, match="are not kept: No space left on device"):
        (done,) = run_task(Task((spec("fedavg", TUNED),)), place(tmp_path))
    assert done.status == "done"


def test_results_for_which_models_leave_no_room_are_written_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Store.write

    def full(self: Store, result: Any) -> Path:
        if list(tmp_path.rglob("*.safetensors")):
            raise StoreError("No space left on device.")
        return write(self, result)

    monkeypatch.setattr(Store, "write", full)
    one = spec("fedavg", TUNED)
    with pytest.warns(Unkept, match="are not kept: the results needed their room"):
        (done,) = run_task(Task((one,)), place(tmp_path))
    assert done.status == "done" and Store(tmp_path / "results").find(one.id)
    assert not list((tmp_path / "results" / "models").glob("*"))


def test_a_disk_that_breaks_costs_the_models_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = files.sync_folder

    def broken(folder: Path) -> None:
        if "models" in folder.parts:
            raise StoreError("Cannot write: Input/output error.")
        sync(folder)

    monkeypatch.setattr(files, "sync_folder", broken)
    with pytest.warns(Unkept, match="Input/output error"):
        (done,) = run_task(Task((spec("fedavg", TUNED),)), place(tmp_path))
    assert done.status == "done" and not list((tmp_path / "results" / "models").iterdir())


def test_older_models_stay_until_the_new_ones_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, tree = spec("fedavg", TUNED), shutil.rmtree
    run_task(Task((one,)), place(tmp_path))

    def killed(path: Path, **how: Any) -> None:
        load_models(one.id, tmp_path / "results")
        tree(path, **how)
        load_models(one.id, tmp_path / "results")

    monkeypatch.setattr(shutil, "rmtree", killed)
    (done,) = run_task(Task((one,)), place(tmp_path, replace=True))
    assert done.status == "done" and [path.name for path in (tmp_path / "results" / "models").iterdir()] == [one.id]


@pytest.mark.parametrize("stage", ["a/b", "{outside}/x", "..", "x" * 300])
def test_a_stage_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """A method of one's own may return models of stages that are no names of files."""
    personal, stage = Ditto.personal_model, stage.format(outside=tmp_path / "results")
    monkeypatch.setattr(
        Ditto, "personal_model", lambda *args, **how: {"personalized": (w := personal(*args, **how)), stage: w + 1}
    )
    one = spec("ditto", PERSONAL)
    run_task(Task((one,)), place(tmp_path))
    kept = load_models(one.id, tmp_path / "results")
    assert {path.parent for path in tmp_path.rglob("*.safetensors")} == {kept.folder}
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
        run_task(Task((one,)), place(tmp_path))
        assert max(scored) == 2
        assert len(load_models(one.id, tmp_path / "results").clients("global")) == 4


@pytest.mark.parametrize(
    "text",
    ["[]", "null", "{}", '{"files": []}', '{"files": {"global": {"0": 5}}}', '{"files": {"global": {"0": "../x"}}}'],
)
def test_an_index_that_is_none_is_one_message(tmp_path: Path, text: str) -> None:
    (tmp_path / models.INDEX).write_text(text)
    with pytest.raises(StoreError, match="is damaged"):
        models.read(tmp_path, "a")


def test_an_empty_stage_is_none(tmp_path: Path) -> None:
    (tmp_path / models.INDEX).write_text('{"run": "a", "files": {"global": {}}}')
    assert models.read(tmp_path, "a")[1] == {}


def test_models_of_another_run_are_not_taken_for_its_own(tmp_path: Path) -> None:
    one, other = spec("fedavg", TUNED), spec("fedavg", TUNED, 1)
    for run in (one, other):
        run_task(Task((run,)), place(tmp_path))
    remove_models(tmp_path / "results", one)
    shutil.copytree(
        models.models_folder(tmp_path / "results", other.id), models.models_folder(tmp_path / "results", one.id)
    )
    with pytest.raises(StoreError, match=f"has the models of run {other.id}"):
        load_models(one.id, tmp_path / "results")


def test_what_the_network_does_not_take_is_one_message(tmp_path: Path) -> None:
    one, images = spec("fedavg", TUNED), torch.zeros(2, 1, 28, 28)
    run_task(Task((one,)), place(tmp_path))
    kept = load_models(one.id, tmp_path / "results")
    assert kept.logits(images, "global").shape == (2, 10)
    for wrong in (images[0], torch.zeros(2, 1, 8, 8)):
        with pytest.raises(UsageError, match=r"takes images \[batch, 1, 28, 28\], not"):
            kept.logits(wrong, "global")
    whole = kept.state_dict("global")
    for state in ({"a": images}, {name: values[:1].contiguous() for name, values in whole.items()}):
        save_file(state, kept.path("global"))
        with pytest.raises(StoreError, match=f"other tensors than the network of run {one.id}"):
            kept.logits(images, "global")


def test_a_copy_that_does_not_fit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in (models.INDEX, "global.safetensors"):
        (source / name).write_text("{}")

    def full(_: object, to: Path, **__: object) -> None:
        to.write_text("{")
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("copyfile", "copy2"):
        monkeypatch.setattr(shutil, name, full)
    with pytest.raises(StoreError, match=r"cannot be copied: No space left on device\.$"):
        models.copy(source, tmp_path, "a" * 16)
    assert not list((tmp_path / "models").iterdir())


def test_models_that_a_killed_process_left_go_with_their_run(tmp_path: Path) -> None:
    one, results = spec("fedavg", TUNED), tmp_path / "results"
    run_task(Task((one,)), place(tmp_path))
    models.begin(results, one.id)
    remove(Store(results), [one.id])
    assert not (results / "models").exists()
