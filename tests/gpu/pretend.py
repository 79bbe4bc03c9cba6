"""A made-up GPU: tensors on the CPU that say that they are on `cuda:0`, and what of `torch.cuda` the engine calls.

In `pretended()` the engine takes each of its branches for a GPU. Streams keep a record of who waited for whom, memory
is counted in bytes of living storages, and an operation that would go beyond `Memory.most` raises
`torch.OutOfMemoryError`. Graphs are recorded and run again by `recorder.FakeGraph`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.cuda._utils import _get_device_index
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpu.leaves import tensors
from pflbench.engine import objective

GPU, CPU = torch.device("cuda:0"), torch.device("cpu")
_DEVICE, _IS_CUDA = Tensor.device.__get__, Tensor.is_cuda.__get__
HOST_READS = {
    Tensor.cpu,
    Tensor.item,
    Tensor.tolist,
    Tensor.numpy,
    Tensor.__bool__,
    Tensor.__float__,
    Tensor.__int__,
    Tensor.__index__,
    Tensor.__array__,
    Tensor.equal,
    torch.equal,
    torch.allclose,
    Tensor.nonzero,
    torch.nonzero,
}
"""What on a GPU waits for it; on a CPU some of these are no operation that a dispatch mode sees."""


class Pretended(TorchFunctionMode):
    """All tensors that have content say that they are on the GPU; what is asked to be there is made on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        """Reads by the host while `watched`."""
        self.watched = self.capturing = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (_DEVICE, _IS_CUDA):
            there = _DEVICE(args[0])
            there = GPU if there == CPU else there
            return there if func == _DEVICE else there.type == "cuda"
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        if func in HOST_READS and self.watched:
            self.read.append(f"the host reads a number by {func.__name__}(), not through engine.host")
        if func is Tensor.pin_memory and self.capturing:
            self.read.append("a tensor is copied from the host in a capture")
        if func is Tensor.pin_memory:
            return args[0].clone()
        kwargs = dict(kwargs or {})
        if func is Tensor.to and any(_on_gpu(a) for a in (*args[1:2], kwargs.get("device"))):
            kwargs["copy"] = True
            if self.watched and not kwargs.get("non_blocking"):
                self.read.append("the host waits for a copy to the device, which goes through engine.host")
        if _on_gpu(kwargs.get("device")):
            kwargs["device"] = CPU
        return func(*(CPU if _on_gpu(a) else a for a in args), **kwargs)


def _on_gpu(value: Any) -> bool:
    return (isinstance(value, torch.device) and value.type == "cuda") or (
        isinstance(value, str) and value.startswith("cuda")
    )


class Counted(TorchDispatchMode):
    """Counts the bytes of storages that operations make, and refuses to make too many."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            for leaf in tensors(result):
                if leaf.device == CPU:
                    self.memory.add(leaf.untyped_storage())
        return result


@dataclass
class Memory:
    """Bytes of the made-up GPU, which has `most`: of living tensors (`used`), and of graphs (`pools`).

    As on a GPU, what a graph needs for itself does not count as allocated.
    """

    most: int = 1 << 60
    used: int = 0
    peak: int = 0
    pools: int = 0
    fullest: int = 0
    """The most bytes that tensors and graphs ever took together."""
    emptied: int = 0
    """Calls of `empty_cache`."""
    refused: int = 0
    """Allocations that did not fit."""
    capturing: bool = False
    _known: dict[int, Any] = field(default_factory=dict)

    def add(self, storage: Any) -> None:
        """A storage that an operation returned, new or not."""
        key = storage._cdata
        if key in self._known or self.capturing:
            return
        size = storage.nbytes()
        self.fit(size)
        self.used += size
        self.peak = max(self.peak, self.used)
        self._known[key] = weakref.ref(storage, lambda gone: self._free(key, size))

    def fit(self, size: int) -> None:
        """Room for so many bytes more. Raises `torch.OutOfMemoryError`."""
        if self.used + self.pools + size > self.most:
            self.refused += 1
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes of {self.most}")
        self.fullest = max(self.fullest, self.used + self.pools + size)

    def pool(self, size: int, graph: Any) -> None:
        """A graph keeps so many bytes for as long as it lives."""
        self.fit(size)
        self.pools += size
        weakref.finalize(graph, self._unpool, size)

    def _free(self, key: int, size: int) -> None:
        self._known.pop(key, None)
        self.used -= size

    def _unpool(self, size: int) -> None:
        self.pools -= size

    def reset(self) -> None:
        """Begin to measure the peak anew."""
        self.peak = self.used


@dataclass(eq=False)
class Stream:
    """A stream, and whom it has waited for since they last worked."""

    gpu: MadeUp
    seen: dict[Stream, int] = field(default_factory=dict)
    worked: int = 0

    def wait_stream(self, other: Stream) -> None:
        self.seen[other] = other.worked

    def follows(self, other: Stream) -> bool:
        """Whether what the other stream did so far is done before what this one does next."""
        return other is self or self.seen.get(other, -1) == other.worked


@dataclass
class MadeUp:
    """The made-up GPU. `wrong`: what a real one would not have forgiven."""

    memory: Memory = field(default_factory=Memory)
    wrong: list[str] = field(default_factory=list)
    graphs: list[Any] = field(default_factory=list)
    """All graphs captured so far (weakly: an evicted one is gone)."""
    synchronized: int = 0
    reads: list[tuple[int, str]] = field(default_factory=list)
    """After how many rounds numbers were read at the engine's own seam, and why."""
    chosen: list[str] = field(default_factory=list)
    """The devices that were made the current one."""
    limits: list[int] = field(default_factory=list)
    """How many bytes PyTorch was allowed, one after the other."""
    constants: set[int] = field(default_factory=set)
    """Where the engine's own constants lie."""

    def limit(self, share: float, total: int, most: int) -> None:
        """PyTorch takes so much of what the GPU says that it has."""
        self.limits.append(round(share * total))
        self.memory.most = min(most, round(share * total))

    def __post_init__(self) -> None:
        self.main = Stream(self)
        self.current = self.main
        self.function_mode = Pretended()

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """Work on another stream than the current one."""
        before = self.current
        before.worked += 1
        if not stream.follows(before) and not _waited(stream, before):
            self.wrong.append("a side stream begins before what it reads is computed")
        self.current = stream
        try:
            yield
        finally:
            stream.worked += 1
            self.current = before
            self.sides = [*getattr(self, "sides", []), stream]

    @property
    def settled(self) -> bool:
        """Whether the current stream waits for all others."""
        return all(self.current.follows(side) for side in getattr(self, "sides", []))


def _waited(stream: Stream, other: Stream) -> bool:
    return stream.seen.get(other) == other.worked - 1


def _noting(cache: Any, gpu: MadeUp) -> Any:
    """A cache of constants whose places are noted."""

    def found(*args: Any) -> Any:
        made = cache(*args)
        for leaf in tensors(made):
            gpu.constants.add(leaf.untyped_storage().data_ptr())
        return made

    return found


def indexed(device: str | torch.device) -> str:
    """A device's name. Raises `ValueError` for `cuda`, as PyTorch does wherever it makes a device the current one."""
    _get_device_index(device)
    return str(device)


@contextlib.contextmanager
def pretended(most: int = 1 << 60, believed: int | None = None, count: bool = False) -> Iterator[MadeUp]:
    """A machine with a made-up GPU of so many bytes; it says that it has as many as `believed` (None: as it has).

    `count`: bytes are counted, which takes time.
    """
    from gpu.recorder import FakeGraph, capturing

    gpu = MadeUp(Memory(most))
    memory, total = gpu.memory, believed or most
    fakes = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "set_device": lambda device: gpu.chosen.append(indexed(device)),
        "get_device_name": lambda device=None: "made-up GPU",
        "get_device_properties": lambda device=None: SimpleNamespace(total_memory=total),
        "set_per_process_memory_fraction": lambda share, device: indexed(device) and gpu.limit(share, total, most),
        "mem_get_info": lambda device=None: (total // 2, total),
        "memory_reserved": lambda device=None: max(memory.used + memory.pools, memory.fullest),
        "memory_allocated": lambda device=None: memory.used,
        "max_memory_allocated": lambda device=None: memory.peak,
        "reset_peak_memory_stats": lambda device=None: memory.reset(),
        "empty_cache": lambda: setattr(memory, "emptied", memory.emptied + 1),
        "synchronize": lambda device=None: setattr(gpu, "synchronized", gpu.synchronized + 1),
        "Stream": lambda *args, **kwargs: Stream(gpu),
        "current_stream": lambda device=None: gpu.current,
        "stream": gpu.stream,
        "CUDAGraph": lambda *args, **kwargs: FakeGraph(gpu),
        "graph": capturing,
    }
    caches = (objective._channels, objective._decay, objective._entries)
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as entered:
        for name, fake in fakes.items():
            patch.setattr(torch.cuda, name, fake)
        for cache in caches:  # by device: what is found in there must have been put there by this GPU
            if clear := getattr(cache, "cache_clear", None):
                clear()
                entered.callback(clear)
            patch.setattr(objective, cache.__name__, _noting(cache, gpu))
        if count:
            entered.enter_context(Counted(memory))
        entered.enter_context(gpu.function_mode)
        yield gpu
