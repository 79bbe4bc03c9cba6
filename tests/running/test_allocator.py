"""The allocator's settings. What they are good for is measured by `benchmarks`; here: they hold, and they end."""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pflbench.engine.client_map import out_of_memory
from pflbench.running.allocator import in_use, limited, tidy, tune_allocator

CPU = torch.device("cpu")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the allocator is tuned on Linux only")


def alone(test: Callable[[], None]) -> Callable[[], None]:
    """The test in a process of its own: where another test's memory lies behind the heap, it cannot grow in place."""

    @functools.wraps(test)
    def run() -> None:
        code = f"import runpy; runpy.run_path({__file__!r})[{test.__name__!r}].__wrapped__()"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr

    return run


def glibc() -> bool:
    try:
        return hasattr(ctypes.CDLL("libc.so.6"), "gnu_get_libc_version")
    except OSError:
        return False


def test_tuning_works_with_glibc_alone_and_may_be_repeated() -> None:
    assert tune_allocator() == tune_allocator() == glibc()


def test_elsewhere_nothing_is_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert not tune_allocator()


@pytest.mark.skipif(not glibc(), reason="tuned with glibc only")
@alone
def test_tuned_memory_is_kept_for_the_next_step() -> None:
    """Otherwise each step faults in every page of it: 2 MiB at a time at best, 32 times a step."""
    import resource

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

    libc = ctypes.CDLL("libc.so.6")
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    size = 64 << 20

    def step() -> None:
        block = libc.malloc(size)
        ctypes.memset(block, 1, size)
        libc.free(block)

    tune_allocator()
    step()
    before = faults()
    for _ in range(5):
        step()
    assert faults() - before < 100


ONE_HEAP = """
import ctypes, threading
from pflbench.running.allocator import tune_allocator
assert tune_allocator()
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
found = []
def keep():
    block = libc.malloc(64 << 20)
    ctypes.memset(block, 1, 64 << 20)
    libc.free(block)
    found.append(block)
for _ in range(3):
    thread = threading.Thread(target=keep)
    thread.start()
    thread.join()
keep()
print(len(set(found)))
"""


@pytest.mark.skipif(not glibc(), reason="tuned with glibc only")
def test_what_a_thread_gave_back_is_used_by_the_next() -> None:
    """Clients that train on a thread each take no memory of their own for good."""
    said = subprocess.run([sys.executable, "-c", ONE_HEAP], capture_output=True, text=True, check=True)
    assert said.stdout == "1\n"


@pytest.mark.skipif(not glibc(), reason="tuned with glibc only")
@alone
def test_what_loading_leaves_is_given_back() -> None:
    """Blocks between others that stay, and those at the heap's end; what comes next is of huge pages all the same."""
    tune_allocator()
    libc = ctypes.CDLL("libc.so.6")
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(1 << 20) for _ in range(200)]
    for block in blocks:
        ctypes.memset(block, 1, 1 << 20)
    before = resident()
    for block in blocks[:100] + blocks[101:]:
        libc.free(block)
    assert resident() > before - (50 << 20)
    tidy()
    assert resident() < before - (150 << 20)
    libc.free(blocks[100])
    block = libc.malloc(400 << 20)
    assert not THP or " hg" in flags(block + (200 << 20))
    libc.free(block)


THP = "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text() if glibc() else False


def flags(address: int) -> str:
    """The flags of the mapping that an address lies in."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            first, end = (int(x, 16) for x in line.split()[0].split("-"))
            inside = first <= address < end
        elif inside and line.startswith("VmFlags:"):
            return line
    raise AssertionError


def resident() -> int:
    """Bytes of this process in memory."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def limits() -> tuple[int, int]:
    import resource

    return resource.getrlimit(resource.RLIMIT_DATA)


@linux
@pytest.mark.parametrize("raises", [False, True])
def test_a_limit_holds_inside_and_ends(raises: bool) -> None:
    before, much = limits(), 1 << 40
    try:
        with limited(much, CPU):
            slack = limits()[0] - much  # what could be written to, but is not in use
            assert 0 <= slack < 1 << 36 and limits()[1] == before[1]
            if raises:
                raise KeyError
    except KeyError:
        assert raises
    assert limits() == before


@linux
def test_above_the_limit_allocations_fail_as_for_want_of_memory() -> None:
    gigabyte = 1 << 30
    with limited(in_use() + gigabyte // 4, CPU), pytest.raises(RuntimeError) as raised:
        torch.empty(gigabyte, dtype=torch.uint8)
    assert out_of_memory(raised.value)
    assert len(torch.empty(gigabyte, dtype=torch.uint8)) == gigabyte


@linux
def test_no_limit_is_none() -> None:
    before = limits()
    with limited(None, CPU):
        assert limits() == before
