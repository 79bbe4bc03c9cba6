"""A model as one vector: where each named parameter and each named part lies in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Literal, get_args

import torch
from torch import Tensor

from pflbench.errors import UsageError

Kind = Literal["weight", "bias", "normalization", "statistic"]
"""Role of a parameter; a statistic is a running mean, variance or count of batch normalization."""


@dataclass(frozen=True)
class Parameter:
    """One named parameter. The name's first word is its part: `base.conv1.weight` belongs to part `base`.

    A convolution's weight [out, in, height, width] lies in the vector as [out, height, width, in], the order that
    convolutions of channels-last images take: a view of the vector is then ready for use, and so is its gradient.
    `bound`: initial values are uniform in ±bound (PyTorch's default for its layers: 1/sqrt(fan in));
    `fill`: a constant instead (1 and 0 for a normalization's scale and shift).
    `role`: what it is for, where the name does not tell (see `kind`).
    """

    name: str
    shape: tuple[int, ...]
    bound: float | None = None
    fill: float = 0.0
    role: Kind | None = None

    @cached_property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def part(self) -> str:
        """The first word of the name."""
        return self.name.split(".", 1)[0]

    @property
    def kind(self) -> Kind:
        """Its role, or by name and shape: a normalization's have `.norm.` in their names, a bias has one dimension."""
        if self.role is not None:
            return self.role
        return "normalization" if ".norm." in self.name else "weight" if len(self.shape) > 1 else "bias"

    @property
    def weight(self) -> bool:
        """True for a layer's weight; False for a bias and for a normalization's parameters."""
        return self.kind == "weight"

    def draw(self, generator: torch.Generator) -> Tensor:
        """Initial values in the vector's order, float64 ["size"]."""
        if self.bound is None:
            return torch.full((self.size,), self.fill, dtype=torch.float64)
        values = (torch.rand(self.size, generator=generator, dtype=torch.float64) * 2 - 1) * self.bound
        return self.flat(values.view(self.shape))

    def flat(self, values: Tensor) -> Tensor:
        """Values of the parameter's shape in the vector's order ["size"]."""
        return (values.movedim(1, -1) if len(self.shape) == 4 else values).flatten()

    def view(self, flat: Tensor) -> Tensor:
        """The reverse, for [*lead, "size"]: [*lead, *shape], without a copy where strides allow."""
        if len(self.shape) == 1:
            return flat
        lead = flat.shape[:-1]
        if len(self.shape) != 4:
            return flat.reshape(lead + self.shape)
        out, channels, height, width = self.shape
        return flat.reshape((*lead, out, height, width, channels)).movedim(-1, -3)


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
        result, start = dict[str, slice](), 0
        for part, parameters in groupby(self.parameters, lambda p: p.part):
            if part in result:
                raise ValueError(f"part {part!r} is not contiguous")
            result[part] = slice(start, start := start + sum(p.size for p in parameters))
        return result

    def part(self, name: str) -> slice:
        """The slice of one part. Raises `UsageError` if this network has none of that name."""
        if name not in self.parts:
            parts, layers = ", ".join(self.parts), ", ".join(self.layers)
            raise UsageError(f"This network has no part {name!r}; its parts are {parts}, its layers {layers}.")
        return self.parts[name]

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers in order, each of a weight's: `base.conv1`."""
        return tuple(p.name.removesuffix(".weight") for p in self.parameters if p.weight)

    def last(self, layers: int) -> slice:
        """The slice of the last so many layers; a layer begins with its weight, and a normalization belongs to it.

        Raises `UsageError` unless the network has so many, and `layers` is at least 1.
        """
        begins = accumulate((p.size for p in self.parameters), initial=0)
        starts = [start for p, start in zip(self.parameters, begins, strict=False) if p.weight]
        if not 1 <= layers <= len(starts):
            raise UsageError(f"This network has {len(starts)} layers, so there are no last {layers}.")
        return slice(starts[-layers], self.size)

    def entries(self, kind: Kind) -> Tensor:
        """Mark the entries of parameters of a kind, bool ["size"].

        Raises:
            UsageError: There is no such kind.
        """
        if kind not in get_args(Kind):
            raise UsageError(f"There are no entries of kind {kind!r}; the kinds are {', '.join(get_args(Kind))}.")
        return torch.cat([torch.full((p.size,), p.kind == kind) for p in self.parameters])

    @cached_property
    def _of_part(self) -> dict[str, Layout]:
        return {part: Layout(tuple(p for p in self.parameters if p.part == part)) for part in self.parts}

    def of(self, part: str | None) -> Layout:
        """The layout of one part alone; the whole for None. Raises `UsageError` like `part`."""
        if part is None:
            return self
        self.part(part)
        return self._of_part[part]

    def views(self, pieces: Sequence[Tensor]) -> dict[str, Tensor]:
        """Named views of a vector given in consecutive pieces (cut at parameter boundaries).

        Each piece is ["piece"] or ["clients", "piece"]; a view is [*shape] or ["clients", *shape].
        """
        result: dict[str, Tensor] = {}
        for piece, group in zip(pieces, self._cut(tuple(piece.shape[-1] for piece in pieces)), strict=True):
            for p, chunk in zip(group, torch.split_with_sizes(piece, [p.size for p in group], -1), strict=True):
                result[p.name] = p.view(chunk)
        return result

    def _cut(self, lengths: tuple[int, ...]) -> list[tuple[Parameter, ...]]:
        """The parameters of each of several consecutive pieces."""
        if lengths == (self.size,):
            return [self.parameters]
        result, waiting = [], list(self.parameters)
        for room in lengths:
            group: list[Parameter] = []
            while room and waiting:
                group.append(waiting.pop(0))
                room -= group[-1].size
            result.append(tuple(group))
        return result


def replace(w: Tensor, where: slice, piece: Tensor) -> Tensor:
    """A copy of the vector `w` ["params"] with `w[where]` replaced by `piece`."""
    return torch.cat([w[: where.start], piece, w[where.stop :]])
