"""Identity of a process on a machine, by which others can tell if it still lives.

A process id alone says nothing: systems reuse it, and each container counts from 1.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Process:
    """A process as others may know it. `boot`, `space` and `started` are empty where the system does not tell them.

    Attributes:
        host: The machine's name, for people.
        boot: Name of the time since the machine was started.
        space: Name of the processes among which `pid` is one: containers have other ones.
        pid: Its number.
        started: When it started, in the system's words: systems reuse numbers.
    """

    host: str
    boot: str
    space: str
    pid: int
    started: str

    def fields(self) -> dict[str, Any]:
        """Return the fields as a dictionary, which `read` takes."""
        return asdict(self)

    @classmethod
    def read(cls, found: Any) -> Process | None:
        """Parse the fields of a process; None if they are none."""
        kinds = {"host": str, "boot": str, "space": str, "pid": int, "started": str}
        if not isinstance(found, dict) or any(not isinstance(found.get(name), kind) for name, kind in kinds.items()):
            return None
        return cls(**{name: found[name] for name in kinds})

    @property
    def gone(self) -> bool:
        """True if it has certainly ended; False also where that cannot be known from here."""
        if not self.boot or not self.space or (self.boot, self.space) != (_boot(), _space()):
            return False
        return not self.started or _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def here() -> Process:
    """This process."""
    return Process(_HOST, _boot(), _space(), os.getpid(), _started(os.getpid()))


def host_name() -> str:
    """Name of this machine in file names, in letters, digits and hyphens; containers of one name differ."""
    space = re.sub(r"[^0-9]", "", _space())
    return re.sub(r"[^A-Za-z0-9-]", "-", _HOST) + (f"-{space}" if space else "")


_HOST = socket.gethostname()


@cache
def _boot() -> str:
    return _text(Path("/proc/sys/kernel/random/boot_id"))


@cache
def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Clock ticks from the machine's start to the process's; empty if there is no such process, or a dead one."""
    state, *rest = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split() or [""]
    return "" if state in ("", "Z", "X") else rest[18]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
