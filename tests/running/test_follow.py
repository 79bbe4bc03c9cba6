"""The lines of JSON that every round adds to a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pflbench.catalog import complete, describe
from pflbench.errors import UsageError
from pflbench.running.again import means
from pflbench.running.execution import Execution
from pflbench.running.job import Job, run_job
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import Store
from pflbench.testing import tiny_spec


def spec(seed: int) -> RunSpec:
    info = describe("fedavg")
    return tiny_spec(
        seed,
        MethodSpec(name=info.name, version=info.version, hyper=complete(info, {})),
        dataset="digits",
        partition=Named(name="shards", options={"shards": 180}),
        model="cnn2",
        clients=90,
        cohort=2,
        query=0.2,
        batch=10,
        tail="drop",
        rounds=4,
        scoring=Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=2, lr=0.05)),
    )


def test_every_round_of_every_run_has_a_line_and_scored_ones_their_accuracies(tmp_path: Path) -> None:
    specs, file = (spec(0), spec(1)), tmp_path / "new" / "rounds.jsonl"
    requests = {specs[0].id: [{"suite": "s", "column": "c", "row": "r", "profile": "p"}]}
    place = Execution(results=tmp_path / "results", data_dir=tmp_path, stacked=True, evaluate_every=2, follow=str(file))
    assert [done.status for done in run_job(Job(specs, requests=requests), place)] == ["done"] * 2
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["run"], line["round"]) for line in lines] == [(one.id, n) for n in (1, 2, 3, 4) for one in specs]
    assert {line["rounds"] for line in lines} == {4} and {line["seed"] for line in lines} == {0, 1}
    assert all(("column" in line) == (line["run"] == specs[0].id) for line in lines)
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds) and seconds[0] >= 0
    assert [line["round"] for line in lines if "accuracy" in line] == [2, 2], "the last round is scored at the end"
    for line in lines:
        if "accuracy" in line:
            stored = means(Store(place.results).read(line["run"]).scores)
            assert line["accuracy"] == {
                "global": pytest.approx(stored["global", 2, 0], abs=1e-4),
                "finetuned": pytest.approx(stored["finetuned", 2, 2], abs=1e-4),
            }


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_costs_one_warning_and_no_training(tmp_path: Path) -> None:
    place = Execution(results=tmp_path / "results", data_dir=tmp_path, follow="/dev/full")
    with pytest.warns(UserWarning, match="'/dev/full'") as warned:
        (done,) = run_job(Job((spec(0),)), place)
    assert done.status == "done" and len([one for one in warned if "--follow" in str(one.message)]) == 1
    assert Store(place.results).status(spec(0).id) == "done"


def test_a_folder_of_curves_that_cannot_be_written_costs_no_training(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    place = Execution(
        results=tmp_path / "results", data_dir=tmp_path, follow=f"tensorboard:{tmp_path / 'file' / 'board'}"
    )
    with pytest.warns(UserWarning, match="--follow"):
        (done,) = run_job(Job((spec(0),)), place)
    assert done.status == "done"


def test_tensorboard_has_the_accuracies_of_the_lines(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    file, board = tmp_path / "rounds.jsonl", tmp_path / "board"
    requests = {spec(0).id: [{"suite": "s.toml", "column": "c", "row": "r", "profile": "p"}]}
    for follow in (str(file), f"tensorboard:{board}"):
        place = Execution(
            results=tmp_path / "results", data_dir=tmp_path, evaluate_every=2, follow=follow, redo="always"
        )
        assert [done.status for done in run_job(Job((spec(0),), requests=requests), place)] == ["done"]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    read = EventAccumulator(str(board / "s" / "c" / "r, seed 0"))
    read.Reload()
    for stage in ("global", "finetuned"):
        points = {point.step: point.value for point in read.Scalars(f"accuracy/{stage}")}
        assert points == {
            line["round"]: pytest.approx(line["accuracy"][stage], abs=1e-4) for line in lines if "accuracy" in line
        }
    assert [point.step for point in read.Scalars("seconds")] == [1, 2, 3, 4]


def test_what_is_not_installed_is_said_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'pflbench\[tensorboard\]'"):
        Execution(device="cpu", follow="tensorboard:board")


@pytest.mark.parametrize("follow", ["tensorboard:", "wandb:x"])
def test_what_is_unknown_is_said_before_anything_is_trained(follow: str) -> None:
    with pytest.raises(UsageError, match="write a file or tensorboard:FOLDER"):
        Execution(device="cpu", follow=follow)


@pytest.mark.parametrize("follow", ["new/rounds.jsonl", "file", "./wandb:x", "tensorboard:new/board"])
def test_looking_whether_it_can_be_written_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: str
) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Execution(device="cpu", follow=follow)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
