"""Checkpoints of runs under way: `<results>/checkpoints/<key>/<rounds>/`, safetensors, one JSON and a checksum.

A checkpoint is a folder that appears whole. It is read only if the checksum over its files holds, and only by what
would compute the same: the same runs, code, versions and settings. A looped run goes on bit for bit; a stacked one to
rounding, as stacks follow free memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

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

NAME = "checkpoint.json"
CHECKSUM = "sha256"
"""File with the SHA-256 over the names and bytes of all others."""
PART = 128 << 20
"""Bytes of tensors in a file, about: clients' states may be more than memory holds."""
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

    folder: Path
    every: Interval
    conditions: Mapping[str, Any]
    clock: Clock = time.monotonic
    seconds: float = 0.0
    """Spent before this process took the runs up."""
    resumed: int = 0
    """Number of times that they were taken up."""
    _begun: float = field(init=False)
    _last: tuple[int, float] = field(init=False)
    _found: tuple[Path, dict[str, Any]] | None = field(default=None, init=False)
    _failed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._begun = self.clock()
        self._last = (0, self._begun)

    @property
    def rounds(self) -> int:
        """The round of the latest checkpoint; 0 without one."""
        return self._last[0]

    @classmethod
    def of(cls, folder: Path, specs: Sequence[RunSpec], every: Interval, conditions: Mapping[str, Any]) -> Checkpoints:
        """Checkpoints of these runs in their folder (`folder_of`), the latest one looked up."""
        made = cls(folder, every, {"runs": [spec.id for spec in specs], **conditions})
        made._find()
        return made

    def restore(self, simulation: Simulation) -> None:
        """Set a simulation to the checkpoint's state; without a checkpoint do nothing."""
        if self._found is None:
            return
        path, told = self._found
        with _reading(path) as read:
            snapshot.restore(simulation, told["simulation"], read)

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

    def _find(self) -> None:
        for path in sorted(self.folder.glob("[0-9]*"), reverse=True):
            try:
                if (path / CHECKSUM).read_text() != _checksum(path):
                    raise ValueError("its files are not those that were written (SHA-256)")
                told = json.loads((path / NAME).read_text())
                other = [name for name, value in told["conditions"].items() if value != self.conditions.get(name)]
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                _warn(f"The checkpoint {str(path)!r} is unusable, and training begins anew: {error_text(error)}.")
                continue
            if other:
                are = " and ".join(
                    f"{name} {told['conditions'][name]}, now {self.conditions.get(name)}" for name in other
                )
                _warn(f"The checkpoint {str(path)!r} is not used, and training begins anew: it is of {are}.")
                return
            self._found, self.seconds, self.resumed = (path, told), told["seconds"], told["resumed"] + 1
            self._last = int(path.name), self._begun
            return

    def _write(self, rounds: int, simulation: Simulation) -> str:
        """Write a checkpoint. Returns why it could not be written; empty if it was."""
        final = self.folder / f"{rounds:08d}"
        temporary = self.folder / f".{rounds}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            try:
                temporary.mkdir(parents=True)
                _write_parts(temporary, snapshot.tensors(simulation))
                told = {
                    "conditions": self.conditions,
                    "seconds": self.seconds + self.clock() - self._begun,
                    "resumed": self.resumed,
                    "simulation": snapshot.values(simulation),
                }
                _write_text(temporary / NAME, json.dumps(told, default=lambda number: number.item()))
                _write_text(temporary / CHECKSUM, _checksum(temporary))
                shutil.rmtree(final, ignore_errors=True)  # of a run that began anew
                temporary.rename(final)
                sync_folder(self.folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        except (OSError, SafetensorError, PflbenchError) as error:
            return error_text(error)
        for path in self.folder.iterdir():
            if path != final:
                shutil.rmtree(path, ignore_errors=True)
        return ""


def folder_of(results: Path, specs: Sequence[RunSpec]) -> Path:
    """Folder of the checkpoints of these runs in a results folder."""
    ids = [spec.id for spec in specs]
    key = ids[0] if len(ids) == 1 else hashlib.sha256("".join(ids).encode()).hexdigest()[:16]
    return results / "checkpoints" / key


def remove(folder: Path) -> None:
    """Remove the checkpoints of some runs, if there are any: the runs are stored."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # if it was the last


def tell_unread(folder: Path) -> None:
    """Say that runs begin anew though they have a checkpoint, as nobody asked for checkpoints."""
    for path in sorted(folder.glob("[0-9]*"))[-1:]:
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


def _checksum(folder: Path) -> str:
    """Return the SHA-256 over the names and bytes of a checkpoint's files, as hexadecimal digits. Raises `OSError`."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != CHECKSUM:
            found.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    found.update(block)
    return found.hexdigest()


def _write_text(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _write_parts(folder: Path, tensors: Iterator[tuple[str, Tensor]]) -> None:
    """Write tensors to files of about `PART` bytes. Raises `OSError` or `SafetensorError`."""
    part: dict[str, Tensor] = {}
    number, size = 0, 0

    def write() -> None:
        path = folder / f"{number}.safetensors"
        save_file(part, path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        part.clear()

    for name, tensor in tensors:
        part[name] = tensor.detach().cpu().contiguous().clone()  # which may share memory with another
        size += tensor.nbytes
        if size > PART:
            write()
            number, size = number + 1, 0
    write()


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Callable[[str], Tensor]]:
    """A function that reads a tensor by its name. Raises `OSError` or `SafetensorError`, it `KeyError`."""
    with contextlib.ExitStack() as files:
        where: dict[str, Any] = {}
        for part in sorted(path.glob("*.safetensors")):
            opened = files.enter_context(safe_open(part, framework="pt"))
            where |= dict.fromkeys(opened.keys(), opened)
        yield lambda name: where[name].get_tensor(name)


def _warn(message: str) -> None:
    warnings.warn(message, Unusable, stacklevel=4)
