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

flag: Any = None
"""A shared byte, which holds what asked for an end; None where nobody listens. A worker process has its parent's."""
signals: tuple[signal.Signals, ...] = ()
"""Signals that this process takes as requests. Worker processes, which may get them too, ignore them."""


@contextlib.contextmanager
def heeding(*more: signal.Signals) -> Iterator[None]:
    """Within this context SIGTERM is a request, here and in the worker processes that are started. Main thread only.

    So are the signals `more`. Within such a context another one changes nothing.
    """
    global flag, signals
    if threading.current_thread() is not threading.main_thread() or flag is not None:
        yield
        return
    flag, signals = multiprocessing.get_context("spawn").RawValue("b", 0), (signal.SIGTERM, *more)
    before = {one: signal.signal(one, request) for one in signals}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        flag, signals = None, ()


def request(number: int, _: object) -> None:
    """Ask for an end. Of several signals one other than SIGTERM counts, whichever came first."""
    if flag is not None and flag.value in (0, signal.SIGTERM):
        flag.value = number


def heard() -> int:
    """The number of the signal that asked for an end; 0: none."""
    return 0 if flag is None else int(flag.value)
