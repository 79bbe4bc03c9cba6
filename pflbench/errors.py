"""Errors a user meets: one readable message, one exit code, no traceback."""

from __future__ import annotations

import difflib
import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

from pflbench.package import FOLDER


class PflbenchError(Exception):
    """Something went wrong that the message explains in full; the CLI prints it and exits with `code`."""

    code = 1


class UsageError(PflbenchError):
    """The request itself is wrong: an unknown name, a bad option, an unreadable suite file."""

    code = 2


class DataMissing(PflbenchError):
    """A dataset is neither in the data root nor downloadable; the message names the files to put there."""


class Diverged(PflbenchError):
    """A run's parameters or losses stopped being finite."""


class StoreError(PflbenchError):
    """The results folder cannot be read or written."""


def unknown(kind: str, name: str, known: Iterable[str], listed: str = "") -> UsageError:
    """The error for a name that does not exist, with near matches and all known names, or the command `listed`."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    near += [one for one in names if one not in near and (_initials(one) == name or _initials(name) == one)]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    every = f"`{listed}` lists them." if listed else f"Known: {', '.join(names) or 'none'}."
    return UsageError(f"Unknown {kind} {name!r}.{hint} {every}")


def _initials(name: str) -> str:
    """`lr` of `learning_rate`; empty for a name of one word."""
    words = re.split("[-_]", name)
    return "".join(word[:1] for word in words) if len(words) > 1 else ""


def one_line(error: BaseException) -> str:
    """Type and first line of an error, with the innermost line of the user's code; else of any."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = {FOLDER, Path(sysconfig.get_path("stdlib"))}
    users = [f for f in frames if ours.isdisjoint(Path(f.filename).parents) and "site-packages" not in f.filename]
    frame = (users or frames)[-1]
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {first} ({frame.filename}, line {frame.lineno})"
