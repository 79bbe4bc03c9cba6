"""Models of runs (`--keep-models`): written while they are scored, and read again."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from pflbench.engine import host
from pflbench.errors import StoreError, UsageError
from pflbench.running import build
from pflbench.spec import RunSpec
from pflbench.store import models
from pflbench.store.files import error_text
from pflbench.store.header import Stored
from pflbench.typing import Params
from pflbench.vector import Layout

if TYPE_CHECKING:
    from pflbench.models.network import Network
    from pflbench.names import Places


@dataclass(frozen=True)
class KeptModels:
    """The models that a run's last scores are of.

    Attributes:
        folder: Where they are, a safetensors file for each.
        spec: The run.
        provenance: Commit, torch and device that made them.
        files: By stage and client (-1: the test rows of the federation), which file; the same models share one.
    """

    folder: Path
    spec: RunSpec
    provenance: Mapping[str, Any]
    files: models.Files
    places: Callable[[], Places] = field(repr=False)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that there are models of: global, finetuned (after the last step), personalized and others."""
        return tuple(self.files)

    def clients(self, stage: str) -> tuple[int, ...]:
        """The clients who have a model at a stage; -1: the one that the federation's test rows score."""
        if stage not in self.files:
            raise UsageError(f"Run {self.spec.id} has no models at stage {stage!r}; it has {', '.join(self.stages)}.")
        return tuple(sorted(self.files[stage]))

    def path(self, stage: str, client: int | None = None) -> Path:
        """The file of a model; `client` may be left out where all share one. Raises `UsageError`."""
        own, clients = self.files.get(stage, {}), self.clients(stage)
        if client is None:
            if len(names := set(own.values())) > 1:
                raise UsageError(f"Each client has a model of its own at stage {stage!r}; name one of {clients}.")
            return self.folder / names.pop()
        if client not in own:
            raise UsageError(f"Client {client} has no model at stage {stage!r}; these have: {clients}.")
        return self.folder / own[client]

    def state_dict(self, stage: str, client: int | None = None) -> dict[str, Tensor]:
        """A model's tensors by their names in the network. Raises `UsageError`, and `StoreError` for a damaged file."""
        path = self.path(stage, client)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise StoreError(f"{str(path)!r} cannot be read: {error}.") from error

    @cached_property
    def network(self) -> Network:
        """The run's network, as its method trains it.

        Raises `UsageError` where the run's is of a file of one's own that is not there, or is another one now.
        """
        places = self.places()
        return build.method(self.spec, places).network(build.network(self.spec, places))

    def logits(self, images: Tensor, stage: str, client: int | None = None) -> Tensor:
        """Logits of a model for images.

        Args:
            images: ["batch", "channels", "height", "width"], floats, normalized as in training. A network with batch
                normalization takes them as one batch, and one that needs a context as that, too; a run's scores are of
                minibatches.
            stage: The model's stage.
            client: Whose model; may be left out where all share one.

        Returns:
            ["batch", "classes"].

        Raises:
            UsageError: There is no such model, the network's code is not there, or the images are of another shape.
            StoreError: The model's file is damaged.
        """
        state, network = self.state_dict(stage, client), self.network
        if {name: values.shape for name, values in state.items()} != {p.name: p.shape for p in network.parameters}:
            path = str(self.path(stage, client))
            raise StoreError(f"{path!r} has other tensors than the network of run {self.spec.id}.")
        if images.dim() != 4 or images.shape[1:] != network.shape:
            must = ", ".join(map(str, network.shape))
            raise UsageError(f"The network takes images [batch, {must}], not {[*images.shape]}.")
        vector = torch.cat([one.flat(state[one.name]) for one in network.parameters])
        with torch.no_grad():
            return network.logits([vector], images.to(vector.dtype))


def read(run: Stored, results: Path, places: Callable[[], Places]) -> KeptModels:
    """The models of a stored run. `places`: where the user's own code is, asked for a network.

    Raises `UsageError` if none were kept, and `StoreError` if their index is damaged.
    """
    path = models.find(results, run.spec.id)
    if path is None:
        if (link := models.link(results, run.spec.id)) is not None:
            raise UsageError(f"{str(link)!r} is a link, which is not followed. Move the folder behind it here.")
        raise UsageError(
            f"No models of run {run.spec.id} are kept in {str(results)!r}: `pflbench run --keep-models` keeps those "
            "that it trains, and with --redo always also trains finished runs again for them."
        )
    index, files = models.read(path, run.spec.id)
    told = {name: value for name, value in index.items() if name not in ("run", "files", "spec")}
    return KeptModels(path, run.spec, told, files, places)


TOLD = ("commit", "dirty", "torch", "device", "finished")
"""Entries of a run's provenance that are stored with its models."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Stages that files are named by; a method of one's own may give a stage any name."""


class Unkept(UserWarning):
    """Models could not be written; the message says whose and why. Their run is not concerned."""


class Models:
    """Takes the models of a group's runs (see `evaluate.OnModel`). Those of a run appear when it is published.

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
                self.give_up(error_text(error))

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
                models.publish_models(self._folders[index], self.results, spec.id, whole)
                del self._folders[index]
            except (OSError, StoreError) as error:
                problem = error_text(error)
        if problem:
            warnings.warn(f"The models of run {spec.id} are not kept: {problem}.", Unkept, stacklevel=2)

    def discard(self) -> None:
        """Remove what was not published."""
        while self._folders:
            shutil.rmtree(self._folders.popitem()[1], ignore_errors=True)
