"""A worker process's manners: Ctrl-C is its parent's to handle, and it does not outlive it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """A process started in here ignores Ctrl-C from its first moment on: importing torch takes seconds.

    Nor does it run this one's script or notebook again, whose code would start processes.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    handles = threading.current_thread() is threading.main_thread()  # which alone may change that
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if handles else None
    try:
        yield
    finally:
        if handles:
            signal.signal(signal.SIGINT, before)
        sys.modules["__main__"] = main


def end_with_parent() -> None:
    """End this process when its parent does."""
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def cause_of_death(code: int) -> str:
    """What the exit code of a worker that ended by itself says."""
    if code == -signal.SIGKILL:
        return "its worker process was killed: probably the machine ran out of memory (fewer --jobs need less)."
    return f"its worker process ended unexpectedly, with exit code {code}."
