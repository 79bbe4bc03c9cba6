"""What this machine is called."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """The processor's model."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
