"""`--keep-models`: the models of a group of runs, written while they are scored."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from pflbench.engine import host
from pflbench.errors import StoreError
from pflbench.spec import RunSpec
from pflbench.store import models
from pflbench.typing import Params
from pflbench.vector import Layout

TOLD = ("commit", "dirty", "torch", "device", "finished")
"""Entries of a run's provenance that are stored with its models."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Stages that files are named by; a method of one's own may give a stage any name."""


class Unkept(UserWarning):
    """Models could not be written; the message says whose and why. Their run is not concerned."""


class Models:
    """Takes the models of a group's runs (see `evaluate.Kept`). Those of a run appear when it is published.

    `layout`: that of their network, whose names the tensors have.
    """

    def __init__(self, results: Path, specs: Sequence[RunSpec], layout: Layout) -> None:
        self.results, self.specs, self.layout = results, specs, layout
        self._folders: dict[int, Path] = {}
        self._files: dict[int, dict[str, dict[int, str]]] = {}
        self._digests: dict[tuple[int, str], str] = {}
        self._problem: str | None = None

    def __call__(self, index: int, stage: str, client: int, model: Params) -> None:
        """Write a model ["params"] to a file, unless another of the run's is the same; a full disk is no error here."""
        if self._problem is None:
            try:
                self._write(index, stage, client, torch.from_numpy(host.read(model, "models")).contiguous())
            except (OSError, SafetensorError) as error:
                self.give_up(_said(error))

    def give_up(self, problem: str) -> None:
        """Keep no models, and leave their room to the results. `problem`: why, which `publish` warns of."""
        self._problem = problem
        self.discard()

    def _write(self, index: int, stage: str, client: int, model: Params) -> None:
        id = self.specs[index].id
        if index not in self._folders:
            self._folders[index] = models.begin(self.results, id)
        digest = hashlib.sha256(model.numpy().tobytes()).hexdigest()
        own = stage if _PLAIN.fullmatch(stage) else digest[:16]
        own = own if client < 0 else f"{own}-{client}"
        name = self._digests.setdefault((index, digest), f"{own}.safetensors")
        path = self._folders[index] / name
        if not path.exists():
            views = self.layout.views([model]).items()
            save_file(
                {name: view.clone(memory_format=torch.contiguous_format) for name, view in views},
                path,
                {"run": id, "stage": stage},
            )
            with path.open("rb") as file:
                os.fsync(file.fileno())
        self._files.setdefault(index, {}).setdefault(stage, {})[client] = name

    def publish(self, spec: RunSpec, record: Mapping[str, Any]) -> None:
        """Let a run's models appear. Warns `Unkept` if they could not be written."""
        index, problem = self.specs.index(spec), self._problem
        if problem is None and index in self._folders:
            told = {name: record[name] for name in TOLD if record.get(name) is not None}
            whole = {"run": spec.id, **told, "files": self._files[index], "spec": spec.model_dump(mode="json")}
            try:
                models.publish(self._folders[index], self.results, spec.id, whole)
                del self._folders[index]
            except (OSError, StoreError) as error:
                problem = _said(error)
        if problem:
            warnings.warn(f"The models of run {spec.id} are not kept: {problem}.", Unkept, stacklevel=2)

    def discard(self) -> None:
        """Remove what was not published."""
        while self._folders:
            shutil.rmtree(self._folders.popitem()[1], ignore_errors=True)


def _said(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error).splitlines()[0].rstrip(".")
