"""Worker processes, which ignore Ctrl-C, since their parent handles it, and end with their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from pflbench.running import stopping


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """A process started in here ignores Ctrl-C from its first moment on: importing torch takes seconds.

    So it does the signals that this process hears as a request to end after the round (`stopping`).

    Nor does it run this one's script or notebook again, whose code would start processes.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    handles = threading.current_thread() is threading.main_thread()  # which alone may change that
    ignored = {signal.SIGINT, *stopping.signals} if handles else set()
    before = {one: signal.signal(one, signal.SIG_IGN) for one in ignored}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        sys.modules["__main__"] = main


@contextlib.contextmanager
def serving(target: Callable[..., None], *arguments: Any) -> Iterator[tuple[Connection, BaseProcess]]:
    """This end of a pipe, and a new process that runs `target(pipe, *arguments)`; it is ended at the end."""
    context = multiprocessing.get_context("spawn")
    here, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(target, theirs, *arguments), daemon=True)
    with _starting():
        process.start()
    theirs.close()
    try:
        yield here, process
    finally:
        process.kill()  # not by a signal that it may take for a request
        process.join()


def _serve(target: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    threading.Thread(target=_die_with_parent, daemon=True).start()
    target(pipe, *arguments)


def _die_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def cause_of_death(code: int) -> str:
    """Describe the exit code of a worker that ended by itself."""
    if code == -signal.SIGKILL:
        return "its worker process was killed: probably the machine ran out of memory (fewer --jobs need less)."
    return f"its worker process ended unexpectedly, with exit code {code}."
