"""Axis names and the array types that signatures share (jaxtyping; checked at run time in the tests only)."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

Params = Float[Tensor, "params"]
"""A model as one vector, split into named views only inside the network."""
Part = Float[Tensor, "part"]
"""A contiguous piece of a model's vector."""
Scalar = Float[Tensor, ""]
Rows = Int[Tensor, "batch"]
Pool = UInt8[Tensor, "pool channels height width"]

__all__ = ["Bool", "Float", "Int", "Params", "Part", "Pool", "Rows", "Scalar", "Tensor"]
