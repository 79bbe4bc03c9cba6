"""Checkpoints of runs under way: `<results>/checkpoints/<key>.safetensors`, one file for each group of runs.

A checkpoint appears whole. It is read only if its checksum holds, and only by what would compute the same: the same
runs, code, versions and settings. A looped run goes on bit for bit; a stacked one to rounding, as stacks follow free
memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
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
from pflbench.spec import RunSpec
from pflbench.store.files import error_text, sync_folder
from pflbench.units import Interval

VALUES = "values"
"""Name of the tensor of bytes that holds all that is no tensor, as JSON."""
CHECKSUM = "sha256"
"""Entry of a checkpoint's metadata: SHA-256 over the names and bytes of its tensors."""
Clock = Callable[[], float]


class Stopped(PflbenchError):
    """Training ended on request, after its checkpoint was tried: a warning says so if it was not written."""


class Unusable(UserWarning):
    """A checkpoint could not be written or is not read; the message says which and why."""


@dataclass
class Checkpoints:
    """The checkpoints of one group of runs; `conditions`: what must be the same for one to be read.

    `of` finds one. Training calls `restore` before it begins, and `keep` after each round.
    """

    path: Path
    every: Interval
    conditions: Mapping[str, Any]
    clock: Clock = time.monotonic
    seconds: float = 0.0
    """Spent before this process took the runs up."""
    resumed: int = 0
    """Number of times that they were taken up."""
    _begun: float = field(init=False)
    _last: tuple[int, float] = field(init=False)
    _stored: tuple[dict[str, Any], dict[str, Tensor]] | None = field(default=None, init=False)
    _failed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._begun = self.clock()
        self._last = (0, self._begun)

    @property
    def rounds(self) -> int:
        """The round of the latest checkpoint; 0 without one."""
        return self._last[0]

    @classmethod
    def of(cls, path: Path, specs: Sequence[RunSpec], every: Interval, conditions: Mapping[str, Any]) -> Checkpoints:
        """Checkpoints of these runs in their file (`path_of`), which is read."""
        made = cls(path, every, {"runs": [spec.id for spec in specs], **conditions})
        made._read()
        return made

    def restore(self, simulation: Simulation) -> None:
        """Set a simulation to the checkpoint's state; without a checkpoint do nothing."""
        if self._stored is not None:
            values, tensors = self._stored
            snapshot.restore(simulation, values["simulation"], tensors.__getitem__)
            self._stored = None

    def keep(self, simulation: Simulation) -> None:
        """Write a checkpoint where one is due, also after the last round, since scores may take longer than training.

        Raises:
            Stopped: An end was asked for.
        """
        rounds, now = simulation.rounds, self.clock()
        stop = stopping.end_requested()
        if stop or self.every.over(rounds - self._last[0], now - self._last[1]):
            if failure := self._write(rounds, simulation):
                if stop:
                    _warn(f"No checkpoint after round {rounds}: {failure}. The rounds since the one before are lost.")
                elif not self._failed:
                    _warn(f"No checkpoint after round {rounds}: {failure}. Training goes on.")
                self._failed = True
            self._last = rounds, self.clock()
        if stop:
            raise Stopped(f"stopped after round {rounds}")

    def _read(self) -> None:
        if not self.path.exists():
            return
        begins = "and training begins anew"
        try:
            values, tensors = _load(self.path)
            written, rounds = values["conditions"], int(values["simulation"]["rounds"])
            other = [name for name, value in written.items() if value != self.conditions.get(name)]
            seconds, resumed = float(values["seconds"]), int(values["resumed"])
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _warn(f"The checkpoint {str(self.path)!r} is unusable, {begins}: {error_text(error)}.")
            return
        if other:
            are = " and ".join(f"{name} {written[name]}, now {self.conditions.get(name)}" for name in other)
            _warn(f"The checkpoint {str(self.path)!r} is not used, {begins}: it is of {are}.")
            return
        self._stored, self.seconds, self.resumed = (values, tensors), seconds, resumed + 1
        self._last = rounds, self._begun

    def _write(self, rounds: int, simulation: Simulation) -> str:
        """Write a checkpoint. Returns why it could not be written; empty if it was."""
        temporary = self.path.with_name(f".{self.path.stem}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                values = {
                    "conditions": self.conditions,
                    "seconds": self.seconds + self.clock() - self._begun,
                    "resumed": self.resumed,
                    "simulation": snapshot.values(simulation),
                }
                text = json.dumps(values, default=lambda number: number.item())
                tensors = {VALUES: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)}
                for name, tensor in snapshot.tensors(simulation):  # which may share memory with another
                    tensors[name] = tensor.detach().cpu().contiguous().clone()
                save_file(tensors, temporary, {CHECKSUM: _checksum(tensors)})
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
                temporary.replace(self.path)
                sync_folder(self.path.parent)
            finally:
                temporary.unlink(missing_ok=True)
        except (OSError, SafetensorError, PflbenchError) as error:
            return error_text(error)
        return ""


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


def tell_unread(path: Path) -> None:
    """Say that runs begin anew though they have a checkpoint, as nobody asked for checkpoints."""
    if path.exists():
        _warn(f"The checkpoint {str(path)!r} is not used without --checkpoint-every.")


@cache
def package_digest() -> str:
    """A digest of this package's own code, which a dirty checkout's commit does not name."""
    found = hashlib.sha256()
    for path in sorted(set(FOLDER.rglob("*.py")) - set((FOLDER / "benchmarks").rglob("*"))):  # which wheels have in it
        found.update(f"{path.relative_to(FOLDER)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def conditions(device: str) -> dict[str, Any]:
    """Code, versions and kind of device, which must be the same where a checkpoint is read."""
    versions = provenance.versions()
    return {
        "commit": provenance.checkout()["commit"],
        "code": package_digest(),
        **{name: versions[name] for name in ("pflbench", "torch", "numpy")},
        "device": provenance.device_name(device),
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


def _warn(message: str) -> None:
    warnings.warn(message, Unusable, stacklevel=4)
