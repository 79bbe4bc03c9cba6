"""Methods that once had other names: what an old name is now, and which hyperparameter distinguishes the two."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class Rename(NamedTuple):
    """A method once called `old`, now `new`. `having`: a hyperparameter that today's `old`, another method, lacks."""

    old: str
    having: str
    new: str


METHODS = (
    Rename("fedrep", "head_steps", "fedrep-averaged"),
    Rename("fedrep-personal", "head_epochs", "fedrep"),
)


def method_now(name: str, hyper: Container[str]) -> str | None:
    """Today's name of the method that was called `name` and had these hyperparameters; None if that is its name."""
    return next((r.new for r in METHODS if r.old == name and r.having in hyper), None)


def hint(name: str, known: Container[str]) -> str:
    """A hint for an old name where `known` ones are expected; empty if it is none."""
    found = [rename for rename in METHODS if rename.old == name and rename.new in known]
    return f" With {found[0].having} it is called {found[0].new!r} now." if found else ""
