"""Operations on tensors of device "meta", which have a shape and no content, remembered by the shapes that they met.

PyTorch finds the shape of most results in Python, which takes long, and imports its compiler for that. Here an
operation is done once, on zeros, and from then on the shape of its result is known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

META = torch.device("meta")
_BY_CONTENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}


class _Form(NamedTuple):
    """All that a tensor without content is."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> _Form:
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def empty(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=META)


class Shapes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context operations are looked up. `met`: the ids of all tensors that operations were given.

    What reads a tensor's content is left to PyTorch, which refuses it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known: dict[Hashable, Any] = {}
        self.met: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler at the first operation, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The result of one operation."""
        kwargs = kwargs or {}
        tensors = list(_tensors((*args, *kwargs.values())))
        self.met.update(map(id, tensors))
        if not tensors or not _BY_CONTENT.isdisjoint(func.tags) or any(t.device != META for t in tensors):
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            within = func._schema.name.endswith("_") and func._schema.arguments[0].is_write
            return args[0] if within else func(*args, **kwargs)
        key = func, _key(args), _key(tuple(kwargs.items()))
        if key not in self._known:
            self._known[key] = _result(func, args, kwargs)
        return pytree.tree_map(_Form.empty, self._known[key], is_leaf=lambda one: isinstance(one, _Form))


def _result(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The forms of what an operation comes to."""
    on_cpu = {key: torch.device("cpu") if key == "device" and value else value for key, value in kwargs.items()}
    filled, named = pytree.tree_map_only(Tensor, lambda t: torch.zeros(t.shape, dtype=t.dtype), (args, on_cpu))
    result = func(*filled, **named)
    if not all(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(result)):
        raise TypeError(f"{func} reads content, and there is none.")
    return pytree.tree_map(_Form.of, result)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among an operation's arguments, and in lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _key(value: Any) -> Hashable:
    """What the shape of a result depends on in an argument, hashable."""
    if isinstance(value, Tensor):
        return _Form.of(value)
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    key: Hashable = (type(value), value)
    return key
