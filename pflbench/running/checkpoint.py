"""Checkpoints of runs under way: `<results>/checkpoints/<key>.safetensors`, one file for each group of runs.

A checkpoint appears whole. It is read only if its checksum holds, and only by what would compute the same: the same
runs, code, versions and settings. A looped run goes on bit for bit; a stacked one to rounding, as stacks follow free
memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pflbench.engine import snapshot
from pflbench.engine.simulate import Simulation
from pflbench.errors import PflbenchError
from pflbench.package import FOLDER
from pflbench.running import provenance, stopping
from pflbench.running.execution import Execution
from pflbench.spec import RunSpec
from pflbench.store import files

VALUES = "values"
"""Name of the tensor of bytes that holds all that is no tensor, as JSON."""
CHECKSUM = "sha256"
"""Entry of a checkpoint's metadata: SHA-256 over the names and bytes of its tensors."""


class Stopped(PflbenchError):
    """Training ended on request, after its checkpoint was tried: a warning says so if it was not written."""


@dataclass(frozen=True)
class Checkpoint:
    """The progress that a group of runs goes on from; the default is its beginning.

    `seconds`: spent before; `resumed`: number of times that the runs were taken up.
    """

    rounds: int = 0
    seconds: float = 0.0
    resumed: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def restore(self, simulation: Simulation) -> None:
        """Set a simulation to this state."""
        if self.rounds:
            snapshot.restore(simulation, self.values, self.tensors.__getitem__)


def read(path: Path, conditions: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint in a file, or the beginning without one. Warns of one that is damaged or of others."""
    if not path.exists():
        return Checkpoint()
    try:
        values, tensors = _load(path)
        written, rounds = values["conditions"], int(values["simulation"]["rounds"])
        if other := [name for name, value in written.items() if value != conditions.get(name)]:
            raise ValueError(
                " and ".join(f"its {name} is {written[name]}, now {conditions.get(name)}" for name in other)
            )
        return Checkpoint(rounds, float(values["seconds"]), int(values["resumed"]) + 1, values["simulation"], tensors)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        text = f"The checkpoint {str(path)!r} is not used, and training begins anew: {files.error_text(error)}."
        warnings.warn(text, stacklevel=2)
        return Checkpoint()


def writer(
    path: Path, execution: Execution, conditions: Mapping[str, Any], earlier: Checkpoint
) -> Callable[[Simulation], None]:
    """Return what writes a checkpoint after each round where one is due.

    Also after the last round, since scores may take longer than training, unless models are kept: those that training
    makes would be missing. It raises `Stopped` if an end was requested.
    """
    every, started = execution.checkpoint_every, time.monotonic()
    last, has_failed = (earlier.rounds, started), False

    def write_due(simulation: Simulation) -> None:
        nonlocal last, has_failed
        rounds, now, is_stopped = simulation.rounds, time.monotonic(), bool(stopping.heard())
        if execution.keep_models and rounds == simulation.runs[0].spec.rounds:
            return
        if is_stopped or (every and every.over(rounds - last[0], now - last[1])):
            counts = {"seconds": earlier.seconds + now - started, "resumed": earlier.resumed}
            try:
                _write(path, simulation, {"conditions": conditions, **counts})
            except (OSError, SafetensorError, PflbenchError) as error:
                then = "The rounds since the one before are lost" if is_stopped else "Training goes on"
                if is_stopped or not has_failed:
                    text = f"No checkpoint after round {rounds}: {files.error_text(error)}. {then}."
                    warnings.warn(text, stacklevel=2)
                has_failed = True
            last = rounds, time.monotonic()
        if is_stopped:
            raise Stopped(f"stopped after round {rounds}")

    return write_due


def _write(path: Path, simulation: Simulation, values: Mapping[str, Any]) -> None:
    """Write a checkpoint. Raises `OSError`, `SafetensorError`, and `PflbenchError`, also for a run that diverged."""
    whole = {**values, "simulation": snapshot.values(simulation)}
    text = json.dumps(whole, default=lambda number: number.item())
    tensors = {VALUES: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)}
    for name, tensor in snapshot.tensors(simulation):  # which may share memory with another
        tensors[name] = tensor.detach().cpu().contiguous().clone()
    with files.replacing(path) as (file, temporary):
        save_file(tensors, temporary, {CHECKSUM: _checksum(tensors)})
        files.sync(file)
        temporary.replace(path)
    files.sync_folder(path.parent)


def path_of(results: Path, specs: Sequence[RunSpec]) -> Path:
    """File of the checkpoint of these runs in a results folder."""
    ids = [spec.id for spec in specs]
    key = ids[0] if len(ids) == 1 else hashlib.sha256("".join(ids).encode()).hexdigest()[:16]
    return results / "checkpoints" / f"{key}.safetensors"


def remove(path: Path) -> None:
    """Remove the checkpoint of some runs, if there is one: the runs are stored."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()  # if it was the last


@cache
def package_digest() -> str:
    """A digest of this package's own code, which a dirty checkout's commit does not name."""
    digest = hashlib.sha256()
    for path in sorted(set(FOLDER.rglob("*.py")) - set((FOLDER / "benchmarks").rglob("*"))):  # which wheels have in it
        digest.update(f"{path.relative_to(FOLDER)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def conditions(specs: Sequence[RunSpec], execution: Execution, data_hash: str) -> dict[str, Any]:
    """Runs, code, versions, data and settings, which must be the same where a checkpoint is read."""
    settings = ("client_map", "evaluate_every", "deterministic", "keep_models")
    return {
        "runs": [spec.id for spec in specs],
        "code": package_digest(),
        **{name: provenance.versions()[name] for name in ("torch", "numpy")},
        "device": provenance.device_name(execution.device),
        "data": data_hash,
        **{name: getattr(execution, name) for name in settings},
    }


def _load(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Values and tensors of a checkpoint. Raises what reading raises, and `ValueError` for another checksum."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        if (file.metadata() or {}).get(CHECKSUM) != _checksum(tensors):
            raise ValueError("it is not what was written (SHA-256)")
    return json.loads(tensors.pop(VALUES).numpy().tobytes()), tensors


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over the names and bytes of tensors, as hexadecimal digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
