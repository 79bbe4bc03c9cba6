"""`pflbench speed`: the real contenders at a tiny scale once, and what is wrong is said before anything is timed."""

import importlib.util
import json
from pathlib import Path

import pytest

from pflbench.executor import measured


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


TINY = ("speed", "-n", "mlp", "--scale", "tiny", "--passes", "2", "--seconds", "0.02", "--device", "cpu")


def test_the_engine_races_the_careful_loop(cli, folder: Path) -> None:
    done = cli(*TINY, "--cores", "1", "-o", "speed.json")
    assert done.code == 0, done.err
    assert "mlp · 2 clients × 2 steps × batch 4 · training only, equal client-steps" in done.out
    for text in ("careful, 1 thread", "patched, 1 thread", "engine, 1 core", "load average before", "torch 2"):
        assert text in done.out
    document = json.loads((folder / "speed.json").read_text())
    assert {"schema", "what", "machine", "versions", "commit", "dirty", "options", "networks"} == set(document)
    contenders = document["networks"]["mlp"]["contenders"]
    assert set(contenders) == {"careful-1", "patched-1", "engine-1"}
    assert all(len(c["seconds"]) == 2 and c["ready"]["parameters"] == 79510 for c in contenders.values())
    assert not measured.file().exists(), "tiny numbers are no measurements"


def test_a_stack_can_be_raced_on_a_processor_and_printed_as_json(cli) -> None:
    done = cli(*TINY, "--execution", "vectorized", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["options"]["execution"] == "vectorized"
    contenders = document["networks"]["mlp"]["contenders"]
    assert contenders["engine-all"]["ready"]["client_steps_per_round"] == 5 * 4


@pytest.mark.skipif(importlib.util.find_spec("pfl") is not None, reason="pfl-research is installed")
def test_a_peer_that_is_not_installed_is_one_message(cli) -> None:
    done = cli(*TINY, "--cores", "1", "--against", "pfl")
    assert (done.code, done.out) == (2, "")
    assert "pip install pfl" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "cnn9"], "Unknown network 'cnn9'. Did you mean 'cnn3' or 'cnn2'?"),
        (["--against", "fedjax"], "Unknown peer 'fedjax'."),
        (["--precision", "fp64"], "Unknown precision 'fp64'."),
        (["--precision", "tf32"], "tf32 is a format of GPUs"),
        (["--device", "tpu"], "Unknown device 'tpu'"),
        (["--scale", "huge"], "Unknown scale 'huge'."),
        (["-o", "nowhere/speed.json"], "Cannot write 'nowhere/speed.json'"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    def compete(*_: object, **__: object) -> None:
        raise AssertionError("something was timed")

    monkeypatch.setattr("pflbench.executor.throughput.compete", compete)
    done = cli("speed", "--device", "cpu", *arguments)
    assert done.code == 2 and message in done.err


def test_more_cores_than_there_are_is_an_error(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every core gets a process with a network of its own: a hundred of them bring a laptop down."""
    monkeypatch.setattr("pflbench.executor.local.cores", lambda: 2)
    told = cli("speed", "-n", "mlp", "--cores", "3")
    assert told.code == 2 and "--cores 3: this machine has 2" in told.err
