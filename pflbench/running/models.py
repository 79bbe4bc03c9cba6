"""Models of runs (`--keep-models`): written while they are scored, and read again."""

from __future__ import annotations

import hashlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pflbench.engine import host
from pflbench.errors import StoreError, UsageError
from pflbench.running import build
from pflbench.spec import RunSpec
from pflbench.store import models
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
        path: The safetensors file with all of them.
        spec: The run.
        provenance: Commit, torch and device that made them.
        numbers: By stage and client (-1: the test rows of the federation), the number of a model.
    """

    path: Path
    spec: RunSpec
    provenance: Mapping[str, Any]
    numbers: models.Numbers
    places: Callable[[], Places] = field(repr=False)

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that there are models of: global, finetuned (after the last step), personalized and others."""
        return tuple(self.numbers)

    def clients(self, stage: str) -> tuple[int, ...]:
        """The clients who have a model at a stage; -1: the one that the federation's test rows score."""
        if stage not in self.numbers:
            raise UsageError(f"Run {self.spec.id} has no models at stage {stage!r}; it has {', '.join(self.stages)}.")
        return tuple(sorted(self.numbers[stage]))

    def state_dict(self, stage: str, client: int | None = None) -> dict[str, Tensor]:
        """A model's tensors by their names in the network; `client` may be left out where all share one.

        Raises `UsageError`, and `StoreError` for a damaged file.
        """
        clients = self.clients(stage)
        numbers = {self.numbers[stage][one] for one in clients if client in (None, one)}
        if len(numbers) != 1:
            raise UsageError(f"Name one of the clients {clients}: they have different models at stage {stage!r}.")
        beginning = f"{numbers.pop()}/"
        try:
            with safe_open(self.path, "pt") as file:
                names = [name for name in file.keys() if name.startswith(beginning)]
                return {name.removeprefix(beginning): file.get_tensor(name) for name in names}
        except (OSError, SafetensorError) as error:
            raise StoreError(f"{str(self.path)!r} cannot be read: {error}.") from error

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
            UsageError: There is no such model, or the network's code is not there.
            StoreError: The model's file is damaged.
        """
        state, network = self.state_dict(stage, client), self.network
        if {name: values.shape for name, values in state.items()} != {p.name: p.shape for p in network.parameters}:
            raise StoreError(f"{str(self.path)!r} has other tensors than the network of run {self.spec.id}.")
        vector = torch.cat([one.flat(state[one.name]) for one in network.parameters])
        with torch.no_grad():
            return network.logits([vector], images.to(vector.dtype))


def read(run: Stored, results: Path, places: Callable[[], Places]) -> KeptModels:
    """The models of a stored run. `places`: where the user's own code is, asked for a network.

    Raises `UsageError` if none were kept, and `StoreError` if their index is damaged.
    """
    path = models.find(results, run.spec.id)
    if path is None:
        raise UsageError(
            f"No models of run {run.spec.id} are kept in {str(results)!r}, where a link is not followed: `pflbench run "
            "--keep-models` keeps those that it trains, and with --redo always also trains finished runs again."
        )
    provenance, numbers = models.read(path, run.spec.id)
    return KeptModels(path, run.spec, provenance, numbers, places)


STORED = ("commit", "dirty", "torch", "device", "finished")
"""Entries of a run's provenance that are stored with its models."""


class Models:
    """Takes the models of a group's runs (see `evaluate.OnModel`), each distinct one once, until they are written.

    `layout`: that of their network, whose names the tensors have.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.vectors = defaultdict[int, dict[bytes, tuple[int, np.ndarray]]](dict)
        """By index of a run, the numbers of its models and their parameters ["params"], by a digest of these."""
        self.numbers = defaultdict[int, models.Numbers](dict)

    def __call__(self, index: int, stage: str, client: int, model: Params) -> None:
        """Take a model ["params"]."""
        vector, taken = host.read(model, "models"), self.vectors[index]
        digest = hashlib.sha256(vector.tobytes()).digest()
        if digest not in taken:
            taken[digest] = len(taken), vector.copy()
        self.numbers[index].setdefault(stage, {})[client] = taken[digest][0]

    def write(self, results: Path, id: str, index: int, record: Mapping[str, Any]) -> None:
        """Write the models of a run with some of its provenance. Warns if they cannot be written."""
        tensors = {
            f"{number}/{name}": values.contiguous().numpy()
            for number, vector in self.vectors[index].values()
            for name, values in self.layout.views([torch.from_numpy(vector)]).items()
        }
        provenance = {name: record[name] for name in STORED if record.get(name) is not None}
        try:
            models.write(results, id, self.numbers[index], provenance, tensors)
        except StoreError as error:
            warnings.warn(f"The models of run {id} are not kept: {error}", stacklevel=2)
