"""Tensors among what an operation is called with, faster than pytree finds them: these tests ask a million times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def tensors(*values: Any) -> list[Tensor]:
    """The tensors among these values, and in their lists, tuples and dicts."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors(*value)
        elif isinstance(value, dict):
            found += tensors(*value.values())
    return found


def mapped(fn: Callable[[Any], Any], value: Any) -> Any:
    """The same lists, tuples and dicts of what the function makes of each leaf."""
    if type(value) in (list, tuple):
        return type(value)([mapped(fn, x) for x in value])
    return {key: mapped(fn, x) for key, x in value.items()} if type(value) is dict else fn(value)
