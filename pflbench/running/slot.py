"""What an actor of a Ray cluster does: tell what it is, and train one task at a time for a driver elsewhere.

It is told JSON, and answers with numbers, texts and the bytes of Parquet files, which the driver stores. Its data are
those of its own machine; nothing of the driver's folders need be there.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import multiprocessing
import platform
import queue
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pflbench.data.root import cache_folder, data_root
from pflbench.errors import PflbenchError
from pflbench.running import luggage, provenance, stopping
from pflbench.running.allocator import tune_allocator
from pflbench.running.checkpoint import code
from pflbench.running.datasets import DataCheck
from pflbench.running.local import Throttle
from pflbench.running.task import Done, Place, Task, run_task
from pflbench.spec import RunSpec

Message = Any
"""A number of rounds, a warning, or at the end the outcomes, see `Slot.train`."""


@dataclass(frozen=True)
class Order:
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
        packed = luggage.pack(task.places)
        return (
            TypeAdapter(cls).dump_json(cls(list(task.specs), dict(task.places), packed, task.unchecked, asked)).decode()
        )

    @classmethod
    def read(cls, text: str) -> Order:
        """What `of` made."""
        return TypeAdapter(cls).validate_json(text)

    def task(self) -> Task:
        """The task, with the user's code in a folder of this machine."""
        places = self.places
        if self.packed:
            told = hashlib.sha256(json.dumps(self.packed, sort_keys=True).encode()).hexdigest()[:16]
            places = luggage.unpack(self.packed, places, _folder() / told)
        return Task(tuple(self.specs), places, self.unchecked, self.asked)


@cache
def _folder() -> Path:
    """A folder of this process alone."""
    folder = Path(tempfile.mkdtemp(prefix="pflbench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Slot:
    """One of the places where a cluster trains. `place`: how, as JSON of a `Place`; its folders are looked up here."""

    def __init__(self, place: str, data_dir: str | None, lanes: int) -> None:
        self.place = replace(TypeAdapter(Place).validate_json(place), data_root=data_root(data_dir))
        self.lanes = lanes
        stopping.heed(multiprocessing.get_context("spawn").RawValue("b", 0))
        tune_allocator()

    def about(self, samples: Sequence[str]) -> dict[str, Any]:
        """What runs here: code, versions, and of each of these tasks, as JSON, what data it lacks, in sentences."""
        check, lacks = DataCheck(self.place.data_root), []
        for text in samples:
            try:
                task = Order.read(text).task()
                lacks.append(list(check.problems(task.specs[0], task.places)))
            except PflbenchError as error:
                lacks.append([str(error)])
        versions = provenance.versions()
        here = {"code": code(), **{name: str(versions[name]) for name in ("pflbench", "torch")}}
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
        order = Order.read(text)
        try:
            with tempfile.TemporaryDirectory(prefix="pflbench-") as folder:
                place = replace(self.place, results=Path(folder), checkpoints=cache_folder() / "ray")
                dones = run_task(order.task(), place, Throttle(messages.put), lambda: self.lanes)
                files = {path.stem: path.read_bytes() for path in Path(folder).glob("runs/*.parquet")}
        except BaseException as error:  # of the folder, or code that ends its process: else nothing would be sent
            dones, files = [Done(spec, "error", str(error) or repr(error)) for spec in order.specs], {}
        told = [{"id": one.spec.id, "message": one.message, "detail": one.detail} for one in dones]
        messages.put({"dones": json.dumps(told), "files": files})
