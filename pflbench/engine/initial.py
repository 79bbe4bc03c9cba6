"""The initial model of a run, as a method sees it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pflbench import noise
from pflbench.models.network import Network
from pflbench.typing import Params
from pflbench.vector import Kind


@dataclass(frozen=True)
class Initial:
    """The `methods.base.Initializer` of one run: initial models of its network, drawn from its seed."""

    network: Network
    seed: int
    device: torch.device
    dtype: torch.dtype

    def __call__(self, k: int = 0) -> Params:
        """See `Initializer`, as of all below."""
        return self.network.init(self.seed, k).to(self.device, self.dtype)

    def part(self, name: str) -> slice:
        """A part of the model."""
        return self.network.layout.part(name)

    def last(self, layers: int) -> slice:
        """The last layers of the model."""
        return self.network.layout.last(layers)

    def entries(self, kind: Kind) -> Tensor:
        """The entries of a kind."""
        return self.network.layout.entries(kind).to(self.device)

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers of this name."""
        key = torch.tensor(noise.key(self.seed, "initial"), device=self.device)
        return noise.normal(key, name, shape, self.dtype)
