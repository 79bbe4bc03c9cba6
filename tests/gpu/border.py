"""The border between host and device, watched on device `meta`, whose tensors have no numbers to read."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpu.leaves import mapped, tensors
from pflbench.engine import host

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


def _key(value: Any) -> Hashable:
    """Part of an argument that the shape of a result depends on; hashable."""
    if isinstance(value, Tensor):
        return _Form.of(value)
    return tuple(map(_key, value)) if isinstance(value, list | tuple) else (type(value), value)


@dataclass
class Crossings:
    """`wrong`: operations that two devices take part in; `reads`: why numbers were read at the engine's own seam."""

    wrong: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    operations: int = 0
    uploading: bool = False


_FORMS: dict[Any, Any] = {}
"""What operations on tensors of some shapes came to, which PyTorch takes long to say on device `meta`."""


def _computed(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operation comes to, from memory where it was asked the same before."""
    given = tensors(args, kwargs)
    apart = not given or any(t.device != META for t in given) or not _BY_CONTENT.isdisjoint(func.tags)
    if apart or func._schema.is_mutable:
        return func(*args, **kwargs)
    key = func, _key(args), _key(tuple(kwargs.items()))
    if key not in _FORMS:
        result = func(*args, **kwargs)
        _FORMS[key] = mapped(lambda x: _Form.of(x) if isinstance(x, Tensor) else x, result)
        return result
    return mapped(_made, _FORMS[key])


def _made(one: Any) -> Any:
    return one.empty() if isinstance(one, _Form) else one


class Border(TorchDispatchMode):
    """Notes each operation on tensors of both sides.

    `torch.vmap` makes a tensor on the host of a Python number, which is no crossing; `Said` sees what was written.
    """

    def __init__(self, crossings: Crossings) -> None:
        super().__init__()
        self.crossings = crossings

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = _computed(func, args, kwargs or {})
        self.crossings.operations += 1
        if not self.crossings.uploading:
            given = tensors(args, kwargs)
            there = [x for x in given if x.dim() or x.device == META]
            if len({x.device for x in (*(there or given), *tensors(result))}) > 1:
                self.crossings.wrong.append(f"host and device meet in {func}")
        return result


class Said(TorchFunctionMode):
    """Notes each call that is handed tensors of both sides, a scalar on the host among them."""

    def __init__(self, crossings: Crossings) -> None:
        super().__init__()
        self.crossings = crossings

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.crossings.uploading and func not in _ATTRIBUTES:
            devices = {x.device.type for x in tensors(args, kwargs)}
            if len(devices) > 1:
                self.crossings.wrong.append(f"host and device meet in {getattr(func, '__name__', func)}()")
        return func(*args, **kwargs)


_ATTRIBUTES = {Tensor.device.__get__, Tensor.shape.__get__, Tensor.dtype.__get__}


@contextlib.contextmanager
def watched() -> Iterator[Crossings]:
    """Numbers go up and are read through `engine.host` alone; what is read are ones."""
    found, upload = Crossings(), host.upload

    def read(x: Tensor, reason: host.Reason) -> np.ndarray:
        assert x.device.type in ("meta", "cpu"), x.device
        found.reads.append(reason)
        return np.ones(tuple(x.shape))

    def uploading(values: Any, device: torch.device) -> Tensor:
        found.uploading = True
        try:
            return upload(values, device)
        finally:
            found.uploading = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "read", read)
        patch.setattr(host, "upload", uploading)
        with Border(found), Said(found):
            yield found
