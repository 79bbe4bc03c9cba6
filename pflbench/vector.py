"""A model as one vector: where each named parameter and each named part lies in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pflbench.errors import UsageError


@dataclass(frozen=True)
class Parameter:
    """One named parameter. The name's first word is its part: `base.conv1.weight` belongs to part `base`.

    `bound`: initial values are uniform in ±bound (PyTorch's default for its layers: 1/sqrt(fan in));
    `fill`: a constant instead (1 and 0 for a normalization's scale and shift).
    """

    name: str
    shape: tuple[int, ...]
    bound: float | None = None
    fill: float = 0.0

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def part(self) -> str:
        """The first word of the name."""
        return self.name.split(".", 1)[0]

    def draw(self, generator: torch.Generator) -> Tensor:
        """Initial values, flat, float64 ["size"]."""
        if self.bound is None:
            return torch.full((self.size,), self.fill, dtype=torch.float64)
        return (torch.rand(self.size, generator=generator, dtype=torch.float64) * 2 - 1) * self.bound


@dataclass(frozen=True)
class Layout:
    """The order of a network's parameters in its vector. Parts must be contiguous."""

    parameters: tuple[Parameter, ...]

    @cached_property
    def size(self) -> int:
        """Length of the vector."""
        return sum(p.size for p in self.parameters)

    @cached_property
    def parts(self) -> dict[str, slice]:
        """Part name → slice of the vector, in order."""
        found: dict[str, slice] = {}
        start = 0
        for p in self.parameters:
            before = found.get(p.part)
            if before is not None and before.stop != start:
                raise ValueError(f"part {p.part!r} is not contiguous")
            found[p.part] = slice(before.start if before else start, start + p.size)
            start += p.size
        return found

    def part(self, name: str) -> slice:
        """The slice of one part. Raises `UsageError` if this network has none of that name."""
        if name not in self.parts:
            raise UsageError(f"This network has no part {name!r}; its parts are {', '.join(self.parts)}.")
        return self.parts[name]

    def views(self, pieces: Sequence[Tensor]) -> dict[str, Tensor]:
        """Named views of a vector given in consecutive pieces (cut at parameter boundaries).

        Each piece is ["piece"] or ["clients", "piece"]; a view is [*shape] or ["clients", *shape].
        """
        found: dict[str, Tensor] = {}
        waiting = list(self.parameters)
        for piece in pieces:
            mine: list[Parameter] = []
            room = piece.shape[-1]
            while room and waiting:
                mine.append(waiting.pop(0))
                room -= mine[-1].size
            chunks = torch.split(piece, [p.size for p in mine], dim=-1)
            for p, chunk in zip(mine, chunks, strict=True):
                found[p.name] = chunk.reshape(*piece.shape[:-1], *p.shape)
        return found


def replace(w: Tensor, where: slice, piece: Tensor) -> Tensor:
    """A copy of the vector `w` ["params"] with `w[where]` replaced by `piece`."""
    return torch.cat([w[: where.start], piece, w[where.stop :]])
