"""Number of clients at a time, by measurement: in a stack those that fit into memory, in a loop as is faster.

A loop on a CPU may train several clients on a thread each. Threads share one interpreter: a convolutional network's
step leaves it free, a small step is mostly Python, and then several threads are slower than one.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

_WORDS = ("can't allocate memory", "could not create a primitive", "bad_alloc", "can't start new thread")
"""Messages of PyTorch, oneDNN, C++ and Python when a CPU's memory runs out."""
_CUDA_WORDS = ("CUDA error: out of memory", "_STATUS_ALLOC_FAILED")
"""Messages of CUDA, cuBLAS and cuDNN about memory that they take past PyTorch's allocator (pytorch#128601)."""


def out_of_memory(error: BaseException) -> bool:
    """True if an error says that memory ran out, on a device or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in (*_WORDS, *_CUDA_WORDS))


def in_use(device: torch.device) -> int:
    """Bytes in use now: allocated on a GPU, resident in this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    trim()  # what is freed but kept for later does not count
    return _status("VmRSS") or peak(device)


def trim() -> None:
    """Give memory that is freed, but kept for later, back to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def writable() -> int:
    """Bytes that this process may write to, touched or not; 0 where the system does not say."""
    return _status("VmData")


def peak(device: torch.device) -> int:
    """The largest number of bytes in use since `reset_peak`, or since the start where that cannot be reset."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if found := _status("VmHWM"):
        return found
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def reset_peak(device: torch.device) -> None:
    """Start measuring `peak` anew, where the system allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


PROBE = 2
"""Clients in the first stack of a kind, whose memory is measured."""
MARGIN = 0.9
"""The share of the free memory that a stack may fill, since allocators lose some to gaps."""


@dataclass
class Room:
    """Largest number of clients in a stack, by a limit in bytes on the device memory that this process uses.

    `limit` None: all of a GPU's memory; on a CPU, no bound. Clients of one kind (`key`) are taken to need the same.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    limit: int | None = None
    _highest: int = field(default=0, init=False)
    _most: dict[Hashable, int] = field(default_factory=dict, init=False)
    _need: dict[Hashable, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.limit is None and self.device.type == "cuda":
            self.limit = torch.cuda.get_device_properties(self.device).total_memory

    @property
    def highest(self) -> int:
        """The largest number of bytes in use so far: measuring a stack resets the system's own count."""
        return max(self._highest, peak(self.device))

    def most(self, key: Hashable) -> int:
        """The number of clients that a stack of this kind may hold now; at least 1."""
        return self._most.get(key, sys.maxsize if self.limit is None else PROBE)

    def begin(self, key: Hashable) -> None:
        """Before a stack: make it smaller where results and states have grown since the last one."""
        if self.limit is not None and key in self._need:
            self._most[key] = min(self._most[key], self._fitting(key, in_use(self.device)))

    @contextlib.contextmanager
    def measured(self, key: Hashable, clients: int) -> Iterator[None]:
        """Measure what a stack of so many clients adds, if that is not known yet."""
        if self.limit is None or key in self._need:
            yield
            return
        before = in_use(self.device)
        self._highest = self.highest
        reset_peak(self.device)
        yield
        self._need[key] = max(peak(self.device) - before, 1) / clients
        self._most[key] = self._fitting(key, before)

    def halve(self, key: Hashable, clients: int) -> None:
        """Halve the stacks of a kind after one of so many clients did not fit."""
        self._most[key] = max(1, clients // 2)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _fitting(self, key: Hashable, used: int) -> int:
        assert self.limit is not None
        return max(1, int(MARGIN * (self.limit - used) / self._need[key]))


AGAIN = 50
"""After so many maps the slower setting is tried again, as other programs on the machine come and go."""


@dataclass
class LanePace:
    """Seconds per image, with one client at a time and with several."""

    maps: int = 0
    latest: dict[int, float] = field(default_factory=dict)

    def choose(self, most: int) -> int:
        """1 or `most` clients at a time: an untried one first, then the faster one."""
        self.maps += 1
        if most <= 1:
            return 1
        for lanes in (1, most):
            if lanes not in self.latest:
                return lanes
        best, other = sorted((1, most), key=self.latest.__getitem__)
        return best if self.maps % AGAIN else other

    def note(self, lanes: int, rows: int, seconds: float) -> None:
        """Note that so many images took so many seconds. Only the last measurement counts."""
        if rows:
            self.latest[lanes] = seconds / rows
