"""A request to end soon: what is under way writes its checkpoint after the round, and nothing more begins.

A scheduler that takes a machine back sends SIGTERM, to one process or to all of a job. Only the first of them, which
started the others, hears it; the others look at what it noted.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from typing import Any

_flag: Any = None
"""A shared byte; None where nobody listens."""


@contextlib.contextmanager
def heeding() -> Iterator[None]:
    """Within this context SIGTERM is a request, here and in the worker processes that are started. Main thread only."""
    global _flag
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _flag = multiprocessing.get_context("spawn").RawValue("b", 0)
    before = signal.signal(signal.SIGTERM, lambda *_: request())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        _flag = None


def request() -> None:
    """Ask for an end."""
    if _flag is not None:
        _flag.value = 1


def requested() -> bool:
    """Whether an end was asked for."""
    return _flag is not None and bool(_flag.value)


def flag() -> Any:
    """What a worker process is given, to `heed` there."""
    return _flag


def heed(flag: Any) -> None:
    """In a worker: look at what the first process notes, and at no signal that is sent to all."""
    global _flag
    _flag = flag
    if flag is not None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
