"""User-supplied code that this process may import: only what was granted.

pflbench's catalog and installed entry points need no grant. All other code does, and `names.load`, the one place that
imports by reference, asks for it. Grants come from verbs that train or check: for the command line, for the suite file
that they are given, and for `rerun --code DIR`. A stored run grants nothing, so reading one never runs code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pflbench.errors import UsageError

_granted: set[str] = set()


class Untrusted(UsageError):
    """User-supplied code would have to be imported that was not granted."""


def grant(reference: str) -> None:
    """Let this process import what a reference points at (`path/to/file.py:Name`, `module:Name`)."""
    _granted.add(_key(reference))


def grant_places(places: Mapping[str, str]) -> None:
    """Grant the code among `names.Places`; the others are paths of data."""
    for kind, reference in places.items():
        if "." not in kind:
            grant(reference)


def revoke_all() -> None:
    """Take back every grant: a new command begins."""
    _granted.clear()


def check(reference: str) -> None:
    """Raise `Untrusted` unless the reference was granted."""
    if _key(reference) not in _granted:
        raise Untrusted(
            f"{reference!r} is user-supplied code, which is not imported here: reading results runs none. "
            "`pflbench run` and `pflbench check` import what you name, `pflbench rerun --code DIR` what a run names."
        )


def _key(reference: str) -> str:
    where, _, attribute = reference.rpartition(":")
    return f"{Path(where).resolve() if where.endswith('.py') else where}:{attribute}"
