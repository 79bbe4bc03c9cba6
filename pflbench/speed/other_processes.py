"""How much processor time other processes took: timings on a busy machine are worth little (Linux only)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

PROC = Path("/proc")


class Watch:
    """Watches this process's cores from its making on; `pids` are ours."""

    def __init__(self, pids: Sequence[int], proc: Path = PROC):
        self.pids, self.proc = [os.getpid(), *pids], proc
        self.started, self.before = time.perf_counter(), self._foreign()

    def cores(self) -> float | None:
        """Cores that others kept busy on average since; None where that cannot be told."""
        now, elapsed = self._foreign(), time.perf_counter() - self.started
        if now is None or self.before is None or elapsed <= 0:
            return None
        return max(0.0, (now - self.before) / elapsed)

    def _foreign(self) -> float | None:
        try:
            tick = os.sysconf("SC_CLK_TCK")
            mine = {f"cpu{n}" for n in os.sched_getaffinity(0)}
            lines = [line.split() for line in (self.proc / "stat").read_text().splitlines()]
            # user nice system idle iowait irq softirq steal
            busy = sum(int(n) for f in lines if f[0] in mine for n in [*f[1:4], *f[6:9]])
            return (busy - sum(self._own(pid) for pid in self.pids)) / tick
        except (OSError, ValueError, AttributeError, IndexError):
            return None

    def _own(self, pid: int) -> int:
        # After the program's name, which may hold anything, in brackets; user and system time are fields 14 and 15.
        fields = (self.proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
