"""Actor of a Ray cluster: it says what it has, and trains one task at a time for a driver elsewhere.

It receives JSON, and answers with numbers, texts and the bytes of Parquet files, which the driver stores. Its data are
those of its own machine; user-supplied code comes as text. Nothing of the driver's folders need be there.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import multiprocessing
import platform
import queue
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pflbench import names, usercode
from pflbench.data.root import cache_folder, data_root
from pflbench.errors import PflbenchError, UsageError
from pflbench.names import Places
from pflbench.running import provenance, stopping
from pflbench.running.allocator import tune_allocator
from pflbench.running.checkpoint import package_digest
from pflbench.running.datasets import DataCheck
from pflbench.running.local import Throttle
from pflbench.running.task import Done, Environment, Task, run_task
from pflbench.spec import RunSpec

Message = Any
"""A number of rounds, a warning, or at the end the outcomes, see `Slot.train`."""


@dataclass(frozen=True)
class SlotInput:
    """A task as a slot is told it: `Task`'s fields, and the user's code."""

    specs: list[RunSpec]
    places: dict[str, str]
    packed: dict[str, dict[str, str]]
    unchecked: bool
    asked: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, task: Task) -> str:
        """A task as JSON. Raises `UsageError` if a user's file is not there."""
        asked = {spec.id: dict(task.asked[spec.id]) for spec in task.specs if spec.id in task.asked}
        packed = pack_code(task.places)
        return (
            TypeAdapter(cls).dump_json(cls(list(task.specs), dict(task.places), packed, task.unchecked, asked)).decode()
        )

    @classmethod
    def read(cls, text: str) -> SlotInput:
        """Parse the JSON of `of`."""
        return TypeAdapter(cls).validate_json(text)

    def task(self) -> Task:
        """The task, with the user's code in a folder of this machine."""
        places = self.places
        if self.packed:
            told = hashlib.sha256(json.dumps(self.packed, sort_keys=True).encode()).hexdigest()[:16]
            places = unpack_code(self.packed, places, _folder() / told)
        return Task(tuple(self.specs), places, self.unchecked, self.asked)


@cache
def _folder() -> Path:
    """A folder of this process alone."""
    folder = Path(tempfile.mkdtemp(prefix="pflbench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Slot:
    """Actor that trains. `env`: an `Environment` as JSON; its folders are those of this machine."""

    def __init__(self, env: str, data_dir: str | None, lanes: int) -> None:
        self.env = replace(TypeAdapter(Environment).validate_json(env), data_root=data_root(data_dir))
        self.lanes = lanes
        stopping.heed(multiprocessing.get_context("spawn").RawValue("b", 0))
        tune_allocator()

    def about(self, samples: Sequence[str]) -> dict[str, Any]:
        """Return code, versions, and sentences on the data that each of these tasks (as JSON) lacks here."""
        check, lacks = DataCheck(self.env.data_root), []
        for text in samples:
            try:
                task = SlotInput.read(text).task()
                lacks.append(list(check.problems(task.specs[0], task.places)))
            except PflbenchError as error:
                lacks.append([str(error)])
        versions = provenance.versions()
        here = {"code": package_digest(), **{name: str(versions[name]) for name in ("pflbench", "torch")}}
        return {"host": platform.node(), "versions": here, "lacks": lacks}

    def train(self, text: str) -> Iterator[Message]:
        """Train a task. Yields numbers of rounds, warnings, and last a dictionary.

        `dones` are its outcomes as JSON (the fields of `Done`, with the run's id for its spec), and `files` the bytes
        of the Parquet file of each run that has one, by id.
        """
        messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        warnings.showwarning = lambda message, *_, **__: messages.put(str(message))
        threading.Thread(target=self._train, args=(text, messages), daemon=True).start()
        while True:
            yield (message := messages.get())
            if isinstance(message, dict):
                return

    def stop(self) -> None:
        """Have what trains write its checkpoint after the round that is under way."""
        stopping.request()

    def _train(self, text: str, messages: queue.SimpleQueue[Message]) -> None:
        order = SlotInput.read(text)
        try:
            with tempfile.TemporaryDirectory(prefix="pflbench-") as folder:
                env = replace(self.env, results=Path(folder), checkpoints=cache_folder() / "ray")
                dones = run_task(order.task(), env, Throttle(messages.put), lambda: self.lanes)
                files = {path.stem: path.read_bytes() for path in Path(folder).glob("runs/*.parquet")}
        except BaseException as error:  # of the folder, or code that ends its process: else nothing would be sent
            dones, files = [Done(spec, "error", str(error) or repr(error)) for spec in order.specs], {}
        told = [{"id": one.spec.id, "message": one.message, "detail": one.detail} for one in dones]
        messages.put({"dones": json.dumps(told), "files": files})


PackedCode = Mapping[str, Mapping[str, str]]
"""Texts of files by kind, as in `Places`, and path below the folder of the user's file or of its outermost package."""


def pack_code(places: Places) -> dict[str, dict[str, str]]:
    """The code behind these references that is no installed package. Paths of data (`datasets.OPTION`) are not packed.

    Raises:
        UsageError: A file is missing.
    """
    packed = {}
    for kind, reference in places.items():
        if "." not in kind and names.is_users(reference):
            code = names.code(reference)
            if not usercode.is_installed(code.path):
                packed[kind] = {code.name: code.source, **code.imports}
    return packed


def unpack_code(packed: PackedCode, places: Places, folder: Path) -> dict[str, str]:
    """Write packed code into a folder, which nobody else may write to; returns these places with the code there.

    Raises:
        UsageError: A path leads out of the folder.
        OSError: It cannot be written.
    """
    unpacked = dict(places)
    for kind, files in packed.items():
        base = (folder / kind).resolve()
        for name, text in files.items():
            file = (base / name).resolve()
            if base not in file.parents:
                raise UsageError(f"The code of a run has a file {name!r}, which lies outside of its folder.")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        where, attribute = names.split_reference(places[kind])
        if where.endswith(".py"):
            unpacked[kind] = f"{base / Path(where).name}:{attribute}"
        elif str(base) not in sys.path:
            sys.path.insert(0, str(base))
    return unpacked
