"""Methods that once had other names: what a name of then is called now, and by what the two are told apart."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple


class Rename(NamedTuple):
    """What was called `old` and has the hyperparameter `having` is called `new`.

    An old name may be another method's today, which does not have that hyperparameter.
    """

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
    """What to say to who uses an old name where `known` ones are expected; empty if it is none."""
    found = [rename for rename in METHODS if rename.old == name and rename.new in known]
    return f" With {found[0].having} it is called {found[0].new!r} now." if found else ""
