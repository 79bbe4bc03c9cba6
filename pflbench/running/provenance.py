"""Provenance of a run: code, versions, machine, cost. Recorded with every run, never part of its identity."""

from __future__ import annotations

import contextlib
import platform
import subprocess
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from pflbench.package import FOLDER, __version__
from pflbench.running.machine import processor, product_seconds


@cache
def checkout() -> dict[str, Any]:
    """Commit and dirty flag of the checkout that pflbench runs from; None for an installed wheel."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        top = Path(_git("rev-parse", "--show-toplevel"))
        if top == FOLDER.parent:  # else it is an installed copy inside somebody else's repository
            changed = _git("status", "--porcelain", "--", "pflbench", "benchmarks", cwd=top)
            return {"commit": _git("rev-parse", "--short=12", "HEAD"), "dirty": bool(changed)}
    return {"commit": None, "dirty": None}


def _git(*arguments: str, cwd: Path = FOLDER) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@cache
def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return {
        "pflbench": __version__,
        "torch": torch.__version__,
        "torchvision": version("torchvision"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }


@cache
def device_name(device: str) -> str:
    """The device in words: the GPU's name, or the processor's model."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return processor()


def record(device: torch.device, data_hash: str) -> dict[str, Any]:
    """Record of a run that ends now, without its costs: code, versions, device, time and data. JSON-ready."""
    return {
        **checkout(),
        **versions(),
        "device": device_name(str(device)),
        "finished": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "product_seconds": round(product_seconds(), 6),
        "data_hash": data_hash,
    }
