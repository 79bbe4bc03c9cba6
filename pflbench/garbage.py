"""Garbage collection, put off while a verb starts.

Importing PyTorch makes 300,000 objects and torchvision as many, none of them garbage; looking through them takes a
seventh of that time.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
from collections.abc import Iterator

USUAL = gc.get_threshold()
AT_START = 1_000_000
"""After so many new objects Python looks for garbage while a verb starts; none makes so many before it trains."""


@contextlib.contextmanager
def seldom(never: bool = False) -> Iterator[None]:
    """Look for garbage seldom until `as_usual`, or, in a verb that reads much and then ends, not at all."""
    if never:
        atexit.register(gc.freeze)  # nor does the interpreter look through all of it when it ends
    gc.set_threshold(0 if never else AT_START, *USUAL[1:])
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*USUAL)


def as_usual() -> None:
    """Look for garbage as Python does, but not in what is there now: called before training, when all is imported."""
    if gc.get_threshold() != USUAL:
        gc.freeze()
        gc.set_threshold(*USUAL)
