"""`pflbench speed`: the real contenders at a tiny scale once, and what is wrong is said before anything is timed."""

import importlib.util
import json
from pathlib import Path

import pytest

from pflbench.errors import PflbenchError
from pflbench.running import machine


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


TINY = ("speed", "-n", "mlp", "--scale", "tiny", "--passes", "2", "--seconds", "0.02", "--device", "cpu")


def test_the_engine_races_the_careful_loop(cli, folder: Path) -> None:
    done = cli(*TINY, "--cores", "1", "-o", "speed.json")
    assert done.code == 0, done.err
    assert done.err.startswith("Measuring 1 network: about "), "how long it takes is said before anything is timed"
    assert "mlp · 2 clients × 2 steps × batch 4 · training only, equal client-steps" in done.out
    for text in (
        "careful, 1 thread",
        "patched, 1 thread",
        "engine, 1 core",
        "matmul, 1 core",
        "load average before",
        "torch 2",
    ):
        assert text in done.out
    document = json.loads((folder / "speed.json").read_text())
    assert {"schema", "what", "machine", "versions", "commit", "dirty", "options", "networks"} == set(document)
    contenders = document["networks"]["mlp"]["contenders"]
    assert set(contenders) == {"careful-1", "patched-1", "engine-1", "matmul-1"}
    assert all(len(c["seconds"]) == 2 for c in contenders.values())
    assert {c["ready"]["parameters"] for c in contenders.values()} == {79510, None}
    shares = {row["contender"]: row["share_of_matmul"] for row in document["networks"]["mlp"]["rows"]}
    assert shares["careful-1"] is None and shares["engine-1"]["median"] > 0
    assert not machine.file().exists(), "tiny numbers are no measurements"


def test_each_network_is_printed_and_kept_as_soon_as_it_is_done(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends it in the middle costs the networks only that were not measured yet."""
    from pflbench.speed import results

    real, networks = results.time_all, []

    def time_all(*given, **options):
        networks.append(given)
        if len(networks) == 2:
            raise PflbenchError("The second one died.")
        return real(*given, **options)

    monkeypatch.setattr(results, "time_all", time_all)
    monkeypatch.setattr(results, "FOREIGN", 100.0)  # whatever else this machine does
    monkeypatch.setattr("pflbench.speed.contenders.Options.rehearsal", False)
    told = cli(*TINY, "-n", "lenet", "--cores", "1")
    assert told.code == 1 and "The second one died." in told.err
    assert "mlp · 2 clients" in told.out and "lenet" not in told.out
    assert set(machine.measured()) == {"mlp"}


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
    def time_all(*_: object, **__: object) -> None:
        raise AssertionError("something was timed")

    monkeypatch.setattr("pflbench.speed.results.time_all", time_all)
    done = cli("speed", "--device", "cpu", *arguments)
    assert done.code == 2 and message in done.err


def test_more_cores_than_there_are_is_an_error(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every core gets a process with a network of its own: a hundred of them bring a laptop down."""
    monkeypatch.setattr("pflbench.running.local.cores", lambda: 2)
    told = cli("speed", "-n", "mlp", "--cores", "3")
    assert told.code == 2 and "--cores 3: this machine has 2" in told.err
