"""This machine's processor: its name and speed. Imports torch only to measure."""

from __future__ import annotations

import platform
import timeit
from functools import cache
from pathlib import Path


def processor() -> str:
    """The processor's model."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@cache
def product_seconds() -> float:
    """Seconds of a product of two matrices of 512 rows and columns on one core, the least of five."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        factor = torch.ones(512, 512, dtype=torch.float32)
        return min(timeit.repeat(lambda: factor @ factor, number=1, repeat=5))
    finally:
        torch.set_num_threads(threads)
