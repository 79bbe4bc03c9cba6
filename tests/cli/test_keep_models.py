"""`run --keep-models` on the command line."""

from __future__ import annotations

from pathlib import Path

from pflbench import load_models
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
