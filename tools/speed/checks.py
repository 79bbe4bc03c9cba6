"""What `gpu.py` checks of a method on a device. A process checks one method, since an error of a GPU spoils a process.

python tools/speed/checks.py METHOD [--device cuda]      # prints what it finds as JSON, in the last line
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read once, so before anything is computed
if (HERE.parents[1] / "pflbench").is_dir():  # a checkout: it need not be installed
    sys.path.insert(0, str(HERE.parents[1]))

import precision as measured  # noqa: E402
import torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from pflbench import names  # noqa: E402
from pflbench.engine import host  # noqa: E402
from pflbench.engine.simulate import LOOK_EVERY, Setup, Simulation  # noqa: E402
from pflbench.testing import Case, tiny_federation  # noqa: E402
from pflbench.testing.rounding import nudged  # noqa: E402


def correctness(name: str, device: torch.device) -> dict[str, str]:
    """A method's few rounds on the contract's tiny federation, float64: on the device as on the processor."""
    setups = {
        "loop": Setup(execution="loop", device=device),
        "stack, no graphs": Setup(execution="vectorized", device=device, graphs=False),
        "stack": Setup(execution="vectorized", device=device, graphs=True, stack="columns"),
        "grouped stack": Setup(execution="vectorized", device=device, graphs=True, stack="grouped"),
    }
    # Few rounds, as training amplifies rounding; with clients of one size a stack comes often enough to be replayed.
    kinds: list[tuple[int, dict[str, Any]]] = [(2, {}), (4, {"sizes": (20,) * 8})]
    method = names.resolve("methods", name)()
    case = Case(method)

    def run(setup: Setup, nudge: int | None = None) -> list[Any]:
        outcomes = []
        for rounds, sizes in kinds:
            specs = [case.spec(seed, rounds=rounds) for seed in (0, 1)]
            federations = [tiny_federation(spec.seed, **sizes) for spec in specs]
            simulation = Simulation(specs, federations, method, case.plain, setup)
            if nudge is not None:
                for i, one in enumerate(simulation.runs):
                    one.server, one.fresh = nudged((one.server, one.fresh), nudge * len(specs) + i)
            outcomes += simulation.run()
        if simulation.clients.graphs.enabled and setup.execution == "vectorized":
            assert simulation.clients.graphs.replays, "nothing was replayed"
        for outcome in outcomes:
            assert outcome.failure is None, f"the run failed: {outcome.failure}"
        on_host = lambda x: x.cpu() if isinstance(x, torch.Tensor) else x  # noqa: E731
        return [replace(outcome, server=pytree.tree_map(on_host, outcome.server)) for outcome in outcomes]

    expected, found = run(Setup()), {}
    for title, setup in setups.items():
        try:
            case.same_runs(run(setup), expected, "device and processor", lambda nudge: run(Setup(), nudge))
            found[title] = "equal"
        except Exception as error:
            found[title] = f"{type(error).__name__}: {error}"
    return found


def precision(name: str, device: torch.device) -> dict[str, list[float]]:
    """By precision, how far each seed's run is from float64."""
    setup = Setup(execution="vectorized" if device.type == "cuda" else "loop", device=device)
    found: dict[str, list[float]] = measured.deviations(setup, [name])[name]
    return found


def synchronization(name: str, device: torch.device) -> dict[str, int] | str:
    """What a method's stacked run waits for, by `engine.host.read`'s reasons; text if it waits elsewhere."""
    on_gpu = device.type == "cuda"
    watch = torch.cuda.set_sync_debug_mode if on_gpu else lambda mode: None
    method, reads, read = names.resolve("methods", name)(), Counter[str](), host.read
    case, rounds = Case(method), 2 * LOOK_EVERY
    spec = case.spec(0, rounds=rounds, precision="fp32")
    simulation = Simulation(
        [spec], [tiny_federation(0)], method, case.plain, Setup(execution="vectorized", device=device)
    )

    def named(x: Any, reason: Any) -> Any:
        reads[reason] += 1
        watch("default")
        try:
            return read(x, reason)
        finally:
            watch("error")

    host.read = named
    try:
        watch("error")
        (outcome,) = simulation.run()
    finally:
        host.read = read
        watch("default")
    if outcome.failure is not None:
        return f"the run failed: {outcome.failure}"
    if on_gpu and reads["finite"] > rounds // LOOK_EVERY + 1:
        return f"looked {reads['finite']} times whether it is finite in {rounds} rounds"
    return dict(reads)


def deterministic(name: str, device: torch.device) -> str:
    """A method twice with deterministic algorithms, float32: `the same bits`, or what is not."""
    setup = Setup(execution="vectorized", device=device, graphs=True)
    method = names.resolve("methods", name)()
    case = Case(method)
    spec = case.spec(0, rounds=6, precision="fp32")
    torch.use_deterministic_algorithms(True)
    try:
        a, b = (Simulation([spec], [tiny_federation(0)], method, case.plain, setup).run()[0] for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    pairs = zip(pytree.tree_leaves(a.server), pytree.tree_leaves(b.server), strict=True)
    same = a.scores == b.scores and a.failure is None and all(torch.equal(one, other) for one, other in pairs)
    return "the same bits" if same else f"differs ({a.failure})"


CHECKS: dict[str, Callable[[str, torch.device], Any]] = {
    "correctness": correctness,
    "synchronization": synchronization,
    "precision": precision,
    "deterministic": deterministic,
}


def check(name: str, device: str) -> dict[str, Any]:
    """What every check finds of a method, and of each the seconds; an error is told as text."""
    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    found: dict[str, Any] = {"seconds": {}}
    for title, function in CHECKS.items():
        started = time.monotonic()
        try:
            found[title] = function(name, torch.device(device))
        except Exception as error:
            found[title] = f"{type(error).__name__}: {str(error)[-600:]}"
        found["seconds"][title] = round(time.monotonic() - started, 1)
    return found


def main() -> None:
    """Check one method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    print(json.dumps(check(options.method, options.device)))


if __name__ == "__main__":
    main()
