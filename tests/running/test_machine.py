"""Measured speeds of this machine, in a file of the cache folder."""

import json
from pathlib import Path

import pytest

from pflbench.running import machine
from pflbench.running.machine import processor


def test_measurements_are_kept_by_device_and_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert machine.measured() == {}
    one = machine.Gradient(batch=30, seconds_per_client_step=0.01)
    machine.keep_measurements(processor(), {"cnn2": one, "mlp": one})
    machine.keep_measurements(processor(), {"mlp": {**one, "batch": 10}})
    machine.keep_measurements("NVIDIA H200", {"mlp": one})
    assert {name: m["batch"] for name, m in machine.measured().items()} == {"cnn2": 30, "mlp": 10}
    assert set(machine.measured("NVIDIA H200")) == {"mlp"}
    assert [p.name for p in machine.file().parent.iterdir()] == ["speed.json"]
    machine.file().write_text("{broken")
    assert machine.measured() == {}
    bad = {"a": {**one, "batch": "ten"}, "b": 3, "c": {"batch": 1}, "d": {**one, "batch": 0}, "e": one}
    machine.file().write_text(json.dumps({processor(): bad, "x": "nonsense"}))
    assert set(machine.seconds_per_example()) == {"e"} and machine.trials() == {}
    machine.keep_measurements("x", {"mlp": one})
    assert set(machine.measured("x")) == {"mlp"}
