"""A request to end soon: what is under way writes its checkpoint after the round, and nothing more begins.

A scheduler that takes a machine back sends SIGTERM, or what it was told to, to one process or to all of a job. Only the
first of them, which started the others, hears it; the others look at what it noted.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from typing import Any

_flag: Any = None
"""A shared byte, which holds what asked for an end; None where nobody listens."""
_signals: tuple[signal.Signals, ...] = ()
"""Signals that this process takes as requests."""


@contextlib.contextmanager
def heeding(*signals: signal.Signals) -> Iterator[None]:
    """Within this context SIGTERM is a request, here and in the worker processes that are started. Main thread only.

    So are other `signals`. Within such a context another one changes nothing.
    """
    global _flag, _signals
    if threading.current_thread() is not threading.main_thread() or _flag is not None:
        yield
        return
    _flag, _signals = multiprocessing.get_context("spawn").RawValue("b", 0), (signal.SIGTERM, *signals)
    before = {one: signal.signal(one, lambda number, _: request(number)) for one in _signals}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        _flag, _signals = None, ()


def request(number: int) -> None:
    """Ask for an end. Of several signals one other than SIGTERM counts, whichever came first."""
    if _flag is not None and _flag.value in (0, signal.SIGTERM):
        _flag.value = number


def heard() -> int:
    """The number of the signal that asked for an end; 0: none."""
    return 0 if _flag is None else int(_flag.value)


def signals() -> tuple[signal.Signals, ...]:
    """Signals that this process takes as requests. Worker processes, which may get them too, ignore them."""
    return _signals


def flag() -> Any:
    """Flag that a worker process needs for `heed`."""
    return _flag


def heed(flag: Any) -> None:
    """In a worker, which was started with `signals` ignored: look at what the first process notes."""
    global _flag
    _flag = flag
