"""Are two results the same but for rounding? Held against a control: the same computation, from inputs moved by one.

A fixed tolerance is a guess: rounding depends on the processor, and what a computation makes of it on the computation.
Batch normalization over two rows multiplies it by thousands, the sign of a gradient that is nearly 0 turns it into
a whole step. So a difference is compared with what the smallest change of the inputs does on the same machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Tree = Any

MARGIN = 30
"""A difference may be so many times the control's: both are a few draws of a random number (seen: within 2)."""
FLOOR = 64
"""So many roundings of the largest entry are no difference, even where the control does not move."""


def nudged(tree: Tree, seed: int = 0) -> Tree:
    """The tree with every floating-point entry replaced by one of its two neighbors, up or down as `seed` draws it.

    Zeros stay: they are exact (Adam's second moment, which must not become negative).
    """
    generator = torch.Generator().manual_seed(seed)

    def moved(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        up = torch.rand(x.shape, generator=generator) < 0.5
        neighbors = torch.nextafter(x, torch.where(up, torch.inf, -torch.inf).to(x.dtype))
        return torch.where(x == 0, x, neighbors)

    return pytree.tree_map(moved, tree)


class RoundingGap(NamedTuple):
    """Difference of two tensors: the largest of an entry, with the sizes to compare it with.

    `control`: the largest difference of an entry that inputs moved by one rounding make; `scale`: the largest entry;
    `eps`: the relative distance of two neighboring numbers of the narrower of both types.
    """

    size: float
    control: float
    scale: float
    eps: float

    @property
    def explained(self) -> bool:
        """True if rounding explains it; a difference that is not a number is never explained."""
        return self.excess <= 1

    @property
    def excess(self) -> float:
        """Ratio of the difference to the largest one that rounding explains."""
        return self.size / max(FLOOR * self.eps * self.scale, MARGIN * self.control)

    @property
    def amplified(self) -> bool:
        """True if the control itself moves by much more than rounding: of three digits, two at least mean nothing."""
        return self.control > self.scale * math.exp(math.log(self.eps) / 3)


def gaps(found: Tree, expected: Tree, controls: Iterable[Tree] = ()) -> Iterator[RoundingGap]:
    """The gap of each pair of floating-point tensors of two trees of one structure; other leaves are left out.

    `controls`: trees of the same structure, of the computation that made `expected`, from `nudged` inputs.

    Raises:
        ValueError: The trees differ in their number of leaves, or two tensors in shape.
    """
    others = [pytree.tree_leaves(control) for control in controls]
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), *others, strict=True)
    for a, b, *moved in pairs:
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a.is_floating_point():
            eps = max(torch.finfo(x.dtype).eps for x in (a, b))
            yield RoundingGap(_apart(a, b), max((_apart(c, b) for c in moved), default=0.0), max(1.0, _largest(b)), eps)


def _apart(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        raise ValueError(f"tensors of shapes {tuple(a.shape)} and {tuple(b.shape)} cannot be compared")
    return _largest(a.double() - b.double())


def _largest(x: Tensor) -> float:
    return x.abs().max().item() if x.numel() else 0.0


def assert_same(found: Tree, expected: Tree, *controls: Tree, what: str = "two results") -> None:
    """Check that two trees are the same but for what rounding explains; arguments as `gaps` takes them.

    Raises:
        AssertionError: A difference is larger than rounding explains.
    """
    for gap in gaps(found, expected, controls):
        assert gap.explained, (
            f"{what} differ by {gap.size:.2e}, where inputs moved by one rounding make a difference of "
            f"{gap.control:.2e}"
        )
