"""This machine: its processor's name, and how fast it trains, as `plan` measured it. Imports no torch."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from pflbench.data.root import cache_folder, read_json, write_json
from pflbench.spec import RunSpec


def processor() -> str:
    """The processor's model."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


class Gradient(TypedDict):
    """Training one network alone on one core."""

    batch: int
    seconds_per_client_step: float


class RunSeconds(TypedDict):
    """Seconds that a run needs on one core: before its first round, for a round, and for scoring once."""

    loading: float
    round: float
    scoring: float


def file() -> Path:
    """`speed.json` in pflbench's cache folder (it may not exist)."""
    return cache_folder() / "speed.json"


def seconds_per_example() -> dict[str, float]:
    """Seconds of one example's gradient on this machine's processor, by `running.estimate.timed_as`."""
    known = measured().items()
    return {name: one["seconds_per_client_step"] / one["batch"] for name, one in known if one.get("batch")}


def trials() -> dict[str, RunSeconds]:
    """Costs of trials on this machine's processor, by `trial_key`."""
    return {key: one for key, one in measured().items() if "scoring" in one}


def trial_key(spec: RunSpec) -> str:
    """Key of a trial: all of a run but its rounds and seed."""
    return "trial " + spec.model_copy(update={"rounds": 1, "seed": 0}).id


def measured(device: str | None = None) -> dict[str, Any]:
    """All that was measured last on a device given by name (default: this machine's processor), and is whole."""
    known = _read().get(device or processor(), {})
    kinds = [one.__annotations__.keys() for one in (Gradient, RunSeconds)]
    return {
        key: one
        for key, one in (known.items() if isinstance(known, dict) else ())
        if isinstance(one, dict) and one.keys() in kinds and all(isinstance(n, int | float) for n in one.values())
    }


def keep_measurements(device: str, measurements: Mapping[str, Gradient | RunSeconds]) -> None:
    """Keep new measurements; earlier ones of other networks, runs and devices stay. Raises `OSError`."""
    write_json(file(), _read() | {device: measured(device) | dict(measurements)})


def _read() -> dict[str, Any]:
    kept = read_json(file())
    return kept if isinstance(kept, dict) else {}
