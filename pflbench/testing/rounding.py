"""Comparison up to rounding, against a control: the same computation from inputs moved by one rounding.

A fixed tolerance is a guess: batch normalization over two rows multiplies rounding by thousands, and the sign of a
gradient near 0 turns it into a whole step. The control shows the effect of rounding on this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Tree = Any

MARGIN = 30
"""Largest ratio of a difference to the control's: both are a few draws of a random number (measured: within 2)."""
FLOOR = 64
"""Roundings of the largest entry that count as no difference, even if the control does not move."""
SMALL = 1e-9
"""Relative difference that `compare` accepts without a control; a mistake is larger, rounding mostly far smaller."""
CONTROLS = 4
"""Controls that `compare` makes, one by one, before it reports a difference."""


def nudged(tree: Tree, seed: int = 0) -> Tree:
    """Replace every floating-point entry by one of its two neighbors, chosen by `seed`.

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
    """Largest difference of an entry of two tensors, with the sizes to compare it with.

    `control`: the largest difference that inputs moved by one rounding make; `scale`: the largest entry, at least 1;
    `eps`: the relative distance of neighboring numbers in the narrower of both types.
    """

    size: float
    control: float
    scale: float
    eps: float

    @property
    def explained(self) -> bool:
        """True if rounding explains the difference; NaN is never explained."""
        return self.size <= max(FLOOR * self.eps * self.scale, MARGIN * self.control)

    @property
    def amplified(self) -> bool:
        """True if the control moves by more than a third of the digits."""
        return self.control > self.scale * math.exp(math.log(self.eps) / 3)


def gaps(result: Tree, expected: Tree, controls: Iterable[Tree] = ()) -> Iterator[RoundingGap]:
    """Yield the gap of each pair of floating-point tensors of two trees; other leaves are skipped.

    `controls`: results of the computation of `expected` from `nudged` inputs.

    Raises:
        ValueError: The trees differ in their number of leaves, or two tensors in shape.
    """
    others = [pytree.tree_leaves(control) for control in controls]
    pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(expected), *others, strict=True)
    for a, b, *moved in pairs:
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a.is_floating_point():
            eps = max(torch.finfo(x.dtype).eps for x in (a, b))
            control = max((_difference(c, b) for c in moved), default=0.0)
            yield RoundingGap(_difference(a, b), control, max(1.0, _largest(b)), eps)


def _difference(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        raise ValueError(f"tensors of shapes {tuple(a.shape)} and {tuple(b.shape)} cannot be compared")
    return _largest(a.double() - b.double())


def _largest(x: Tensor) -> float:
    return x.abs().max().item() if x.numel() else 0.0


def assert_same(result: Tree, expected: Tree, *controls: Tree, what: str = "two results") -> None:
    """Check that two trees differ by rounding only; arguments as in `gaps`.

    Raises:
        AssertionError: A difference is larger than rounding explains.
    """
    for gap in gaps(result, expected, controls):
        assert gap.explained, (
            f"{what} differ by {gap.size:.2e}; inputs moved by one rounding make a difference of {gap.control:.2e}"
        )


def compare(result: Tree, expected: Tree, what: str, control: Callable[[int], Tree] | None = None) -> str:
    """Check that two trees differ by rounding only, with as few controls as necessary.

    Args:
        result: Tree of tensors.
        expected: Tree of the same structure.
        what: Subject of the message, in the plural.
        control: Computes `expected` from inputs that are `nudged` with this seed; None: one rounding has no effect.

    Returns:
        A remark if rounding has so large an effect that mistakes would not be detected; else an empty text.

    Raises:
        AssertionError: A difference is larger than rounding explains.
    """
    controls: list[Tree] = []
    while not all(gap.explained or gap.size <= SMALL * gap.scale for gap in gaps(result, expected, controls)):
        if control is None or len(controls) == CONTROLS:
            assert_same(result, expected, *controls, what=what)
        else:
            controls.append(control(len(controls)))
    moved = max((gap.control for gap in gaps(result, expected, controls) if gap.amplified), default=0.0)
    return f"amplifies rounding: mistakes below {MARGIN * moved:.0e} in {what} are not detected" if moved else ""
