"""`run --keep-models` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pflbench import load_models
from pflbench.errors import UsageError
from pflbench.running import training
from pflbench.running.sharing import Shared
from pflbench.store import Store

COMMAND = ("run", "-s", "tiny.toml", "--column", "shards", "-m", "fedavg", "--seeds", "0")


def test_models_lie_beside_the_results(cli, folder: Path) -> None:
    assert cli(*COMMAND).code == 0
    told = cli(*COMMAND, "--keep-models")
    assert told.code == 0 and "1 finished run without models; --redo always trains again for them." in told.out, told
    assert not (folder / "results" / "models").exists()
    again = cli(*COMMAND, "--keep-models", "--redo", "always")
    assert again.code == 0 and "1 run finished, 0 failed." in again.out, again
    (run,) = Store(folder / "results").list()
    models = load_models(run.spec.id, folder / "results")
    assert models.stages == ("global", "finetuned") and models.clients("global") == run_clients(folder, run.spec.id)
    assert "without models" not in cli(*COMMAND, "--keep-models").out
    assert cli("rm", run.spec.id, "--yes").code == 0 and not (folder / "results" / "models").exists()


def run_clients(folder: Path, id: str) -> tuple[int, ...]:
    return tuple(sorted({score.client for score in Store(folder / "results").read(id).scores}))


def test_actors_of_ray_keep_none(cli, folder: Path) -> None:
    told = cli(*COMMAND, "--keep-models", "--executor", "ray")
    assert told.code == 2 and "--keep-models goes with --executor local or slurm." in told.err, told


def test_models_are_asked_for_of_a_run_that_another_trains_without(
    cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes it once this one has seen that it is missing."""
    assert cli(*COMMAND).code == 0
    (path,) = (folder / "results" / "runs").glob("*.parquet")
    path = path.rename(folder / path.name)

    def other(*given: object, **more: object) -> Shared:
        path.rename(folder / "results" / "runs" / path.name)
        return Shared(*given, **more)

    monkeypatch.setattr(training, "Shared", other)
    told = cli(*COMMAND, "--keep-models")
    assert told.code == 0 and "1 finished run without models; --redo always trains again for them." in told.out, told


def test_models_of_a_method_of_ones_own_are_read_without_its_file(cli, folder: Path) -> None:
    mine = folder / "mine.py"
    mine.write_text(
        "from dataclasses import dataclass\n\nfrom pflbench.methods.fedavg import FedAvg\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(FedAvg):\n    '''As it is.'''\n"
    )
    assert cli(*COMMAND[:-3], "mine.py:Mine", *COMMAND[-2:], "--keep-models").code == 0
    (run,) = Store(folder / "results").list()
    models, images = load_models(run.spec.id, code="."), torch.zeros(2, 1, 28, 28)
    client = models.clients("finetuned")[0]
    assert models.logits(images, "finetuned", client).shape == (2, 10)
    with pytest.raises(UsageError, match="which is not part of pflbench"):
        load_models(run.spec.id).logits(images, "finetuned", client)
    mine.unlink()
    models = load_models(run.spec.id, code=".")
    assert models.state_dict("finetuned", client)
    with pytest.raises(UsageError, match="There is no file"):
        models.logits(images, "finetuned", client)
