"""The memory allocator's settings: by default glibc returns large blocks and requests them again every step."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_MADV_HUGEPAGE = 14  # sys/mman.h
_HUGE_PAGE, _HEAP = 2 << 20, 768 << 20


def tune_allocator() -> bool:
    """Let this process keep freed memory for the next step. Returns whether it could be set (Linux with glibc only).

    Activations are larger than glibc's thresholds, so that each step maps, faults in and unmaps all of them: up to
    half of a convolutional network's step on a CPU, depending on what was allocated before.

    All threads share one heap: else each keeps as much as it ever needed, and other threads have no use of it.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")  # which only Linux has
        # Blocks below 1 GiB are reused. At most 2 GiB, the largest int, may lie free at the end of the heap.
        is_set = bool(libc.mallopt(_MMAP_THRESHOLD, 1 << 30)) and bool(libc.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1))
        if is_set:
            libc.mallopt(_ARENA_MAX, 1)
            _ask_for_huge_pages(libc)
        return is_set
    return False


def tidy() -> None:
    """Give back the memory that loading used: copies of the pool, which would stay with this process to its end."""
    trim()
    tune_allocator()  # what comes after the heap's new end is not of huge pages yet


def _ask_for_huge_pages(libc: ctypes.CDLL) -> None:
    """Let the part of the heap that comes next be of huge pages: about a twentieth of a step. Touches no memory."""
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(_HEAP)
    if block:
        start = -(-block // _HUGE_PAGE) * _HUGE_PAGE
        libc.madvise(start, (block + _HEAP - start) // _HUGE_PAGE * _HUGE_PAGE, _MADV_HUGEPAGE)
        libc.free(block)


@contextlib.contextmanager
def limited(limit: int | None, device: torch.device) -> Iterator[None]:
    """Let allocations fail, rather than the machine run out, above so many bytes (None: no limit).

    On a GPU it bounds what PyTorch takes of it; on a CPU, the memory that this process may write to (on Linux).
    """
    if limit is not None and device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)
    elif limit is not None and sys.platform.startswith("linux"):
        import resource  # which Windows has not

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        # The system counts what could be written to, we what is: the allocator's reserves must not count.
        wanted = limit + max(0, _status("VmData") - in_use())
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    else:
        yield


def trim() -> None:
    """Give memory that is freed, but cached, back to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def in_use() -> int:
    """Bytes of this process that are in memory now; 0 where the system does not say it."""
    trim()  # what is freed but cached does not count
    return _status("VmRSS")


def _status(field: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0
