"""`run --keep-models` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cli_kit import start

from pflbench import load_models
from pflbench.errors import UsageError
from pflbench.store import Store

COMMAND = ("run", "-s", "tiny.toml", "--column", "shards", "-m", "fedavg", "--seeds", "0")


def test_models_lie_beside_the_results(cli, folder: Path) -> None:
    assert cli(*COMMAND).code == 0
    assert cli(*COMMAND, "--keep-models").code == 0
    assert not (folder / "results" / "models").exists()
    again = cli(*COMMAND, "--keep-models", "--redo", "always")
    assert again.code == 0 and "1 run finished, 0 failed, 0 not started" in again.out, again
    (run,) = Store(folder / "results").list()
    models = load_models(run.spec.id, folder / "results")
    assert models.stages == ("global", "finetuned") and models.clients("global") == run_clients(folder, run.spec.id)
    assert cli("rm", run.spec.id, "--yes").code == 0 and not (folder / "results" / "models").exists()


def run_clients(folder: Path, id: str) -> tuple[int, ...]:
    return tuple(sorted({score.client for score in Store(folder / "results").read(id).scores}))


@pytest.mark.slow
def test_tasks_of_ray_keep_them(folder: Path) -> None:
    pytest.importorskip("ray")
    process = start(*COMMAND, "--keep-models", "--executor", "ray", cwd=folder)
    assert process.communicate(timeout=300) and process.returncode == 0
    (run,) = Store(folder / "results").list()
    assert load_models(run.spec.id, folder / "results").stages == ("global", "finetuned")


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
