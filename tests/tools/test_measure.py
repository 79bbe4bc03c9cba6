"""`tools/speed/measure.py`: the real contenders at a tiny scale."""

import importlib.util
import json
import sys
from pathlib import Path

import measure
import pytest

pytestmark = pytest.mark.slow

TINY = ("-n", "mlp", "--scale", "tiny", "--passes", "2", "--seconds", "0.02", "--device", "cpu", "--cores", "1")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["measure.py", *TINY, *arguments])
    return measure.main()


def test_the_engine_races_the_careful_loop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, "-o", str(tmp_path / "speed.json")) == 0
    assert "engine, 1 core" in capsys.readouterr().out
    document = json.loads((tmp_path / "speed.json").read_text())
    assert {"schema", "what", "machine", "versions", "commit", "dirty", "options", "networks"} == set(document)
    contenders = document["networks"]["mlp"]["contenders"]
    assert set(contenders) == {"careful-1", "patched-1", "engine-1", "matmul-1"}
    assert all(len(c["seconds"]) == 2 for c in contenders.values())
    assert {c["ready"]["parameters"] for c in contenders.values()} == {79510, None}
    shares = {row["contender"]: row["share_of_matmul"] for row in document["networks"]["mlp"]["rows"]}
    assert shares["careful-1"] is None and shares["engine-1"]["median"] > 0


def test_a_stack_can_be_raced_on_a_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert call(monkeypatch, "--execution", "vectorized", "-o", str(tmp_path / "speed.json")) == 0
    document = json.loads((tmp_path / "speed.json").read_text())
    assert document["options"]["execution"] == "vectorized"
    contenders = document["networks"]["mlp"]["contenders"]
    assert contenders["engine-all"]["ready"]["client_steps_per_round"] == 5 * 4


@pytest.mark.skipif(importlib.util.find_spec("pfl") is not None, reason="pfl-research is installed")
def test_a_missing_peer_is_one_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--against", "pfl") == 2
    assert "pip install pfl" in capsys.readouterr().err
