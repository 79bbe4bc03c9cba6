"""What `pflbench speed` found out on this machine, kept for `pflbench plan`; imports no torch."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TypedDict

from pflbench.data.root import cache_folder
from pflbench.executor.machine import processor


class Measured(TypedDict):
    """One network on one machine: training only, one run on one core (or alone on a GPU)."""

    batch: int
    seconds_per_client_step: float
    torch: str
    pflbench: str


def file() -> Path:
    """`speed.json` in pflbench's cache folder (it may not exist)."""
    return cache_folder() / "speed.json"


def measured(device: str | None = None) -> dict[str, Measured]:
    """Network → what was measured last on a device given by name (default: this machine's processor)."""
    networks = _read().get(device or processor(), {})
    return networks if isinstance(networks, dict) else {}


def seconds_per_example(device: str | None = None) -> dict[str, float]:
    """Network → seconds of one example's gradient, as measured last on a device (default: this machine's processor)."""
    return {name: one["seconds_per_client_step"] / one["batch"] for name, one in measured(device).items()}


def remember(device: str, networks: dict[str, Measured]) -> None:
    """Keep new measurements, atomically; earlier ones of other networks and devices stay."""
    everything = _read()
    everything[device] = {**everything.get(device, {}), **networks}
    target = file()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".speed-", suffix=".json")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(everything, stream, indent=2, sort_keys=True)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read() -> dict[str, dict[str, Measured]]:
    """All that is kept; nothing of a file that cannot be read: it is only a cache."""
    try:
        kept = json.loads(file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
