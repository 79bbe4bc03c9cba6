"""A CUDA graph on a CPU: the operations of a capture are written down, and done again on the same storages.

As on a GPU, a capture computes nothing that can be used: what it made is overwritten with nonsense, until a replay
computes it. What the capture did not make itself is read again where it lay: only a weak reference is kept, so that
reading what was freed is an error here and not what happens to lie there.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from gpu.leaves import mapped, tensors

if TYPE_CHECKING:
    from gpu.pretend import MadeUp


MADE = {torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default}
"""What `torch.tensor` begins with."""


class Freed(AssertionError):
    """A replay reads memory that was freed."""


class Place(NamedTuple):
    """A tensor in a storage that the capture did not make."""

    storage: int
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class Operation(NamedTuple):
    """One operation: what it was called with, and which of its results, by their numbers, are in new storages."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    fresh: tuple[tuple[int, Tensor], ...]


@dataclass(eq=False)
class FakeGraph:
    """In place of `torch.cuda.CUDAGraph`."""

    gpu: MadeUp
    operations: list[Operation] = field(default_factory=list)
    outside: dict[int, StorageWeakRef] = field(default_factory=dict)
    """Storages that were there before, by their address."""
    scalars: dict[int, Tensor] = field(default_factory=dict)
    """What `torch.vmap` makes of Python numbers: values of a kernel's arguments, on a GPU."""
    born: dict[int, Tensor] = field(default_factory=dict)
    """What the capture made."""
    spans: dict[int, list[int]] = field(default_factory=dict)
    """Of what it made: the operation that did, and the last one that takes it."""
    replays: int = 0

    def replay(self) -> None:
        """Do it all again, on the same storages."""
        self.replays += 1
        self.forget()
        there = {}
        for address, reference in self.outside.items():
            storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is None and address in self.scalars:
                storage = self.scalars[address].untyped_storage()
            if storage is None:
                raise Freed("a replay reads memory that was freed: nobody keeps a tensor that the capture read")
            there[address] = storage

        def back(value: Any) -> Any:
            if not isinstance(value, Place):
                return value
            empty = torch.empty(0, dtype=value.dtype)
            return empty.set_(there[value.storage], value.offset, value.size, value.stride)

        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            for one in self.operations:
                args, kwargs = mapped(back, (one.args, one.kwargs))
                made = one.func(*args, **kwargs)
                new = tensors(made)
                for place, mine in one.fresh:
                    mine.copy_(new[place])

    def needs(self) -> int:
        """Bytes that it keeps for itself: as many as are alive at a time."""
        change = [0] * (len(self.operations) + 1)
        for address, (first, last) in self.spans.items():
            size = self.born[address].untyped_storage().nbytes()
            change[first] += size
            change[last + 1] -= size
        return max(accumulate(change))

    def forget(self) -> None:
        """What the capture made is nonsense."""
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            for tensor in self.born.values():
                tensor.fill_(float("nan") if tensor.is_floating_point() else 1)


class Log(TorchDispatchMode):
    """Writes down what is done while a graph is captured."""

    def __init__(self, graph: FakeGraph) -> None:
        super().__init__()
        self.graph = graph

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, graph = kwargs or {}, self.graph
        result = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            mine = {x.untyped_storage().data_ptr() for x in tensors(args, kwargs)}
            kept = mapped(partial(self._kept, func), (args, kwargs))
            fresh = []
            for place, x in enumerate(tensors(result)):
                address = x.untyped_storage().data_ptr()
                if address and address not in mine and address not in graph.born:
                    fresh.append((place, x.detach()))
                    graph.born[address] = x.detach()
                    graph.spans[address] = [len(graph.operations)] * 2
            graph.operations.append(Operation(func, *kept, tuple(fresh)))
        return result

    def _kept(self, func: Any, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        storage = value.untyped_storage()
        address = storage.data_ptr()
        if address in self.graph.born:
            self.graph.spans[address][1] = len(self.graph.operations)
        if address in self.graph.born or not storage.nbytes():
            return value.detach()
        if address not in self.graph.outside:
            self.graph.outside[address] = StorageWeakRef(storage)
            if func not in MADE and value.untyped_storage().nbytes() <= 8:
                self.graph.scalars[address] = value.clone()
        return Place(address, value.dtype, value.storage_offset(), tuple(value.shape), value.stride())


@contextlib.contextmanager
def capturing(graph: FakeGraph, **options: Any) -> Iterator[None]:
    """In place of `torch.cuda.graph`. An error inside is covered up by one of the capture's own, as on a GPU."""
    gpu = graph.gpu
    if not gpu.settled:
        gpu.wrong.append("a capture begins before the side stream's warm-up is waited for")
    gpu.graphs.append(weakref.ref(graph))
    watched = gpu.function_mode.watched
    gpu.function_mode.watched = gpu.function_mode.capturing = gpu.memory.capturing = True
    try:
        with Log(graph):
            yield
        gpu.memory.pool(graph.needs(), graph)
    except Exception as error:
        graph.operations.clear()
        graph.born.clear()
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture") from (
            None if isinstance(error, torch.OutOfMemoryError) else error
        )
    finally:
        gpu.function_mode.watched, gpu.function_mode.capturing, gpu.memory.capturing = watched, False, False
    graph.forget()
