"""`tools/speed/gpu.py`, rehearsed on a processor: it writes what it finds, and a failing part loses no other."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pflbench import names

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "tools" / "speed" / "gpu.py"


COMPUTED = ("loop", "stack, no graphs", "stack", "grouped stack")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")  # it is changed, and so put back
    spec = importlib.util.spec_from_file_location("speed_gpu", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "speed_gpu", module)
    spec.loader.exec_module(module)
    return module


def found(out: Path) -> dict[str, object]:
    (file,) = out.glob("gpu-*.json")
    return json.loads(file.read_text())


def rehearse(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, *more: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(out), "--tiny", "--device", "cpu", *more])
    return gpu.main()


def test_every_method_is_checked_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path), "--tiny", "--device", "cpu", "--parts", "methods"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    every = found(tmp_path)["methods"]
    assert set(every) == {"fedavg", "ifca"}
    for told in every.values():
        assert told["correctness"] == dict.fromkeys(COMPUTED, "equal")
        assert told["synchronization"]["finite"] == 32 and told["synchronization"]["scores"]
        assert max(told["precision"]["fp32"]) < min(1e-4, *told["precision"]["tf32"])
        assert told["deterministic"] == "the same bits"
    (text,) = tmp_path.glob("gpu-*.md")
    assert "| fedavg | equal | equal | equal | equal |" in text.read_text()


def test_a_failing_part_loses_no_other(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(context: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setitem(gpu.PARTS, "speed", broken)
    monkeypatch.setitem(gpu.PARTS, "cafeme", lambda context: context.found.update(cafeme="done"))
    assert rehearse(gpu, monkeypatch, tmp_path, "--parts", "speed,cafeme") == 1
    kept = found(tmp_path)
    assert "no such luck" in kept["failed"]["speed"] and kept["cafeme"] == "done"


def test_no_part_begins_without_time(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert rehearse(gpu, monkeypatch, tmp_path, "--budget", "1") == 0
    assert found(tmp_path)["skipped"] == list(gpu.PARTS)


def test_a_command_is_interrupted_when_its_time_is_up(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import time\ntry:\n    print('on', flush=True)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('off')"
    start = subprocess.Popen

    def popen(command: list[str], **options: object) -> object:
        return start([sys.executable, "-c", program], **options)

    monkeypatch.setattr(gpu.subprocess, "Popen", popen)
    code, printed = gpu.command([], 1.0)
    assert code != 0 or printed.splitlines()[-1] == "off"  # it ended; a slow start is interrupted before its `try`


def test_every_cafeme_variant_has_options_the_engine_knows(gpu: ModuleType) -> None:
    text = SCRIPT.with_name("protocol.py").read_text()
    for flags in gpu.CAFEME.values():
        assert all(f'"{flag}"' in text for flag in flags if flag.startswith("--"))


def test_kinds_of_stacks_are_timed(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert rehearse(gpu, monkeypatch, tmp_path, "--parts", "stacks") == 0
    (network,) = found(tmp_path)["stacks"]
    times = found(tmp_path)["stacks"][network]["milliseconds_per_round_and_run"]
    assert set(times) == {"stack of 1 seed", "stack of 5 seeds"} and all(one > 0 for (one,) in times.values())


def test_what_is_wrong_is_named(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where TF32 is used though nobody asked for it, which the expected distances were measured without."""
    import checks
    import precision

    def broken(name: str, device: torch.device) -> str:
        raise RuntimeError("an illegal address")

    assert tuple(checks.CHECKS) == gpu.CHECKED
    monkeypatch.setattr(precision, "_rounding", lambda *_: precision.TF32())
    monkeypatch.setitem(checks.CHECKS, "correctness", broken)
    monkeypatch.setitem(checks.CHECKS, "deterministic", lambda name, device: "differs (None)")
    told = gpu.wrong({"fedavg": checks.check("fedavg", "cpu")})
    assert len(told) == 3
    assert told[0] == "fedavg: correctness: RuntimeError: an illegal address"
    assert told[1] == "fedavg: deterministic: differs (None)"
    assert told[2].startswith("fedavg in fp32: ")


def test_a_check_without_an_answer_is_told(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def killed(command: list[str], **options: object) -> object:
        raise subprocess.TimeoutExpired(command, 1.0, stderr="half a line")

    monkeypatch.setattr(gpu, "subprocess", SimpleNamespace(run=killed))
    assert rehearse(gpu, monkeypatch, tmp_path, "--parts", "methods", "--methods", "fedavg") == 1
    told = found(tmp_path)
    assert "no answer: TimeoutExpired" in told["methods"]["fedavg"]["correctness"]
    assert "fedavg: precision: no answer" in told["failed"]["methods"]


def test_every_method_has_its_expected_distance(gpu: ModuleType) -> None:
    assert list(gpu.expected()) == list(names.BUILT_IN["methods"])


def test_tf32_s_rounding_is_to_the_nearest_of_ten_bits() -> None:
    import precision

    x = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11 + 2**-20, 1 + 2**-12, -3.0000002, 0.0])
    assert precision.rounded(x).tolist() == [1.0, 1 + 2**-10, 1 + 2**-10, 1.0, -3.0, 0.0]
    with precision.TF32():
        assert float(x[3:4].reshape(1, 1) @ torch.ones(1, 1)) == 1.0
